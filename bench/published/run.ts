/**
 * @file A published run: from a row of a CSV to canonical columns, and so to model, configuration and cluster, or to the reason
 * why it cannot be used.
 * Columns are those of the published measurements; a value that a row leaves out is its system's default of the time.
 */
import type { LanguageModelSizes } from '../../models/language-sizes.js';
import { rowOf } from '../../src/api/calibration/columns.js';
import type { CsvRow } from '../../src/api/calibration/csv.js';
import { type MeasuredRow, measuredRow } from '../../src/api/calibration/run.js';
import type { DeviceSpec } from '../../src/cost-model/device.js';
import { findDevice } from '../../src/cost-model/find-device.js';
import type { StepConfiguration } from '../../src/cost-model/step/configuration.js';
import { BEYOND } from './csv.js';
import { deviceOf } from './devices.js';
import { publishedModel } from './models.js';
import { number, UNSTATED, wrongNumber } from './numbers.js';
import { zeroLevel } from './sharding.js';
import { IN_DEEPSPEED, softwareOf } from './software.js';
import { whyOf } from './why.js';
import {
  AMBIGUOUS,
  attentionOf,
  chunksOf,
  expertRanksOf,
  expertsOf,
  flagsOf,
  gradientBytesOf,
  overlapOf,
  plainSoftmax,
  precisionOf,
  predictionsOf,
  recomputeOf,
  statusOf,
  styleOf,
  tpSequenceOf,
} from './wording.js';

export interface PublishedRun extends MeasuredRow {
  readonly row: CsvRow;
  readonly file: string;
  /** The same run in the columns that the product reads, with the reason for each value. */
  readonly canonical: CsvRow;
  /** The unknown words of its table with the assumption made in their place; null if there are none. */
  readonly assumed: string | null;
  /** False if the table leaves the format of matmuls open ("fp4 or fp8"), and the run's file does not state it. */
  readonly formatStated: boolean;
}

/** Columns that a prediction needs. */
export const NEEDED_COLUMNS = [
  'gpu_type',
  'gpus',
  'model',
  'layers',
  'hidden',
  'heads',
  'seq',
  'tp',
  'pp',
  'dp',
  'microbatch',
  'global_batch',
] as const;

/** Columns of the measured time, of which one is needed too. */
export const TIME_COLUMNS = ['iteration_time_s', 'tokens_per_s_per_gpu'] as const;

/** Whether a row states the step time, directly or as tokens per second. */
export function isTimed(row: CsvRow): boolean {
  return TIME_COLUMNS.some((column) => !UNSTATED.test(row[column] ?? ''));
}

/** The run of a row, or the reason why there is none. */
export function publishedRun(row: CsvRow, file: string): PublishedRun | string {
  if (row[BEYOND] !== undefined) return `fields that no column is for: ${row[BEYOND]}`;
  const wrong = wrongNumber(row);
  if (wrong) return wrong;
  const status = statusOf(row['status'] ?? '');
  if (status === undefined) return `status is ${row['status']}`;
  const timed = isTimed(row);
  const memory = number(row, 'mem_gb');
  if (!timed && status !== 'oom' && memory === undefined) return 'no time';
  const device = deviceOf(row['gpu_type'] ?? '');
  if (!device)
    return row['gpu_type'] ? `device ${row['gpu_type']} is not in the catalogue` : 'the device is not stated';
  const degrees = { tp: number(row, 'tp'), pp: number(row, 'pp'), dp: number(row, 'dp') };
  const { tp, pp } = degrees;
  if (tp === undefined || pp === undefined) return 'degrees are not stated';
  const stated = number(row, 'gpus');
  if (stated === undefined && degrees.dp === undefined) return 'degrees are not stated';
  // If the degree of context parallelism is not stated, it is the number of devices that the other degrees leave.
  const left = (stated ?? 0) / (tp * pp * (degrees.dp ?? Number.NaN));
  const sp = Math.max(1, number(row, 'cp') ?? (Number.isInteger(left) ? left : 1));
  const gpus = stated ?? tp * pp * sp * (degrees.dp ?? 1);
  // Some tables count context-parallel ranks among the data-parallel ranks, which share gradients.
  const dpOfAll = sp > 1 && degrees.dp !== undefined && tp * pp * degrees.dp === gpus ? degrees.dp / sp : degrees.dp;
  const dp = dpOfAll || gpus / (tp * pp * sp);
  if (!Number.isInteger(dp) || dp < 1 || tp * pp * sp * dp !== gpus) return 'degrees do not multiply to the devices';
  const globalBatch = number(row, 'global_batch');
  if (globalBatch === undefined) return 'the global batch is not stated';
  if (/LoRA/.test(`${row['source']} ${row['notes']}`)) return 'adapters alone are trained, which is not planned';
  const known = publishedModel(row['model'] ?? '');
  if (typeof known === 'string') return known;
  const read = (column: string) => number(row, column);
  const layers = read('layers') ?? known?.layers ?? layersOf(row);
  const hidden = read('hidden') ?? known?.hidden;
  const heads = read('heads') ?? known?.heads;
  const sequence = read('seq');
  if (!layers || !hidden || !heads || !sequence) return 'the model is not described';
  if (pp > layers) return 'more stages than layers';
  if (!known?.headWidth && hidden % heads !== 0) return 'heads do not divide the hidden size';
  const microBatch = Math.max(1, read('microbatch') ?? 1);
  const style = styleOf(row, known?.style);
  const feedForward = read('ffn') ?? known?.ffn ?? 4 * hidden;
  const experts = known?.experts ?? expertsOf(flagsOf(row), feedForward);
  const sizes: LanguageModelSizes = {
    batch: microBatch,
    sequence,
    layers,
    hidden,
    heads,
    keyHeads: keyHeadsOf(read('kv_heads') ?? known?.kvHeads ?? heads, heads, tp),
    headWidth: known?.headWidth ?? hidden / heads,
    feedForward,
    vocabulary: padded(read('vocab') ?? known?.vocab ?? 50257, tp),
    dropout: 0,
    ...style,
    ...(known?.latent ? { latent: known.latent } : {}),
    ...(experts ? { experts } : {}),
    ...known?.also,
  };
  const software = softwareOf(row, device);
  const precision = precisionOf(row);
  if (precision === undefined) return `precision is ${row['precision']}, which is not known`;
  const sharded = zeroLevel(row['zero'] ?? '');
  if (sharded === undefined && !UNSTATED.test(row['zero'] ?? '')) return `zero is ${row['zero']}, which is not known`;
  const zero = sharded ?? (software === 'megatron-core' ? 1 : 0);
  const recomputed = recomputeOf(row);
  // A rack of 72 is one NVLink domain, though a tray holds four.
  const rack = /gb[23]00/i.test(row['gpu_type'] ?? '');
  const { domainSize } = device.scaleUp;
  const perNode = rack ? inRack(gpus, domainSize) : Math.min(number(row, 'gpus_per_node') ?? domainSize, gpus);
  const network = number(row, 'internode_gbps_per_gpu');
  const configuration: StepConfiguration = {
    degrees: { tp, pp, sp, dp, ep: expertRanksOf(row, dp * sp) },
    virtualStages: chunksOf(row, layers, pp),
    fusedNorms: style.norm === 'layer' || software !== 'eager' || /RMS kernel|TE|FA/.test(row['attn'] ?? ''),
    loss: /llm-foundry|Liger|AutoModel|fused.(cross.?entropy|loss)/i.test(`${row['source']} ${row['notes']}`)
      ? 'fused'
      : (software === 'eager' && !IN_DEEPSPEED.test(row['source'] ?? '')) ||
          (/torchtitan/.test(row['source'] ?? '') && tp === 1)
        ? 'plain'
        : 'parallel',
    scatteredSends: software.startsWith('megatron'),
    microBatch,
    globalBatch,
    tpSequence: tpSequenceOf(row, software, tp),
    zero,
    ...(/offload/i.test(row['zero'] ?? '') ? { offload: 'optimizer' as const } : {}),
    recompute: recomputed?.recompute ?? 'none',
    ...(recomputed && recomputed.share < 1 ? { recomputedLayers: layersOfStages(layers, pp, recomputed.share) } : {}),
    attention: attentionOf(row, software),
    ...(plainSoftmax(row, software, microBatch * (heads / tp)) ? { plainSoftmax: true } : {}),
    precision,
    software,
    overlap: overlapOf(row, software, zero, sizes.stateSpace !== undefined),
    gradientBytes: gradientBytesOf(row, software, precision),
  };
  const meaningless = /do not score time/.test(row['time_provenance'] ?? '');
  const canonical = rowOf({
    ...{ model: row['model'], device: device.id, devices: gpus, perNode, network, figures: figuresOf(device) },
    ...{ sizes, configuration, predictions: predictionsOf(row, known?.predictions ?? 0) || undefined },
    seconds: timed && !meaningless && status === 'ok' ? secondsOf(row, globalBatch * sequence, gpus) : undefined,
    memoryBytes: memory === undefined ? undefined : memory * 1e9,
    ...(/rank logged/.test(row['notes'] ?? '') ? { memoryOfLast: true } : {}),
    ...(status === 'oom' ? { fits: false } : {}),
    why: whyOf(row),
  });
  const measured = measuredRow(canonical);
  if (typeof measured === 'string') return measured;
  return {
    ...measured,
    ...{ row, file, canonical },
    assumed: recomputed ? null : `nothing recomputed: what "${row['recompute']}" is, is not known`,
    formatStated: !AMBIGUOUS.test(row['precision'] ?? '') || precision === 'fp4',
  };
}

/** The figures in which a device differs from the catalogue's. */
function figuresOf({ id, memoryBytes, memoryBandwidth, scaleUp }: DeviceSpec): object | undefined {
  const known = findDevice(id);
  if (!known) return undefined;
  const unlike = (own: object, other: object) =>
    Object.fromEntries(Object.entries(own).filter(([key, value]) => (other as Record<string, unknown>)[key] !== value));
  const { bandwidth, latencySeconds, domainSize, topology } = scaleUp;
  const links = { bandwidth, latencySeconds, domainSize, topology };
  const others = known.scaleUp.topology === topology ? unlike(links, known.scaleUp) : links;
  return { ...unlike({ memoryBytes, memoryBandwidth }, known), ...others };
}

/**
 * Devices of a job in each rack: a job takes as many of every rack, in the fewest racks that allow it (256 are four times 64).
 */
function inRack(gpus: number, domainSize: number): number {
  let racks = Math.ceil(gpus / domainSize);
  while (gpus % racks !== 0) racks++;
  return gpus / racks;
}

/** The name of a run's sweep: the runs of one model on the same devices with the same batch. */
export function sweepOf({ row, configuration }: PublishedRun): string {
  return `${row['model']}, ${row['seq']} tokens, ${row['gpus']} ${row['gpu_type']}, batch ${configuration.globalBatch}`;
}

/** Seconds of a step of so many tokens: as stated, or from tokens per second. */
function secondsOf(row: CsvRow, tokens: number, gpus: number): number | null {
  const rate = number(row, 'tokens_per_s_per_gpu');
  return number(row, 'iteration_time_s') ?? (rate === undefined ? null : tokens / (rate * gpus));
}

/** The number of layers that is this share of each stage. */
function layersOfStages(layers: number, pp: number, share: number): readonly number[] {
  return Array.from({ length: pp }, (_, stage) => {
    const own = Math.floor(layers / pp) + (stage < layers % pp ? 1 : 0);
    return Math.floor(own * share);
  });
}

/** Key heads: replicated if tp has more ranks than heads; all heads if the stated number does not divide them. */
function keyHeadsOf(stated: number, heads: number, tp: number): number {
  const most = stated < tp && heads % tp === 0 ? tp : stated;
  return most > 0 && heads % most === 0 ? most : heads;
}

/** Megatron pads vocabularies to a multiple of 128 · tp; for others the padding does no harm. */
function padded(vocabulary: number, tp: number): number {
  return Math.ceil(vocabulary / (128 * tp)) * 128 * tp;
}

/** Layers of a GPT from its parameters, where only the width is stated: P = 12 l h² (1 + …) + V h. */
function layersOf(row: CsvRow): number | undefined {
  const parameters = number(row, 'params_b');
  const hidden = number(row, 'hidden');
  if (parameters === undefined || hidden === undefined) return undefined;
  const vocabulary = number(row, 'vocab') ?? 50257;
  return Math.round((parameters * 1e9 - vocabulary * hidden) / (12 * hidden * hidden));
}
