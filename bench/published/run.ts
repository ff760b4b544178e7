/**
 * @file A published run: from a row of a CSV to model, configuration and cluster, or to the reason why it cannot be used.
 * Columns are those of the published measurements; what a row leaves out is its system's default of the time.
 */
import {
  GPT_STYLE,
  type LanguageModelSizes,
  type LanguageModelStyle,
  LLAMA_STYLE,
} from '../../models/language-model.js';
import { type Cluster, parseCluster } from '../../src/cost-model/cluster.js';
import type { DeviceSpec } from '../../src/cost-model/device.js';
import { deviceLevels } from '../../src/cost-model/levels.js';
import {
  type Precision,
  type Recompute,
  type StepConfiguration,
  usualGradientBytes,
} from '../../src/cost-model/step/configuration.js';
import type { SoftwareName } from '../../src/cost-model/step/constants.js';
import { deviceOf } from './devices.js';
import { publishedModel } from './models.js';

export type Row = Readonly<Record<string, string>>;

export interface PublishedRun {
  readonly row: Row;
  readonly file: string;
  readonly sizes: LanguageModelSizes;
  readonly configuration: StepConfiguration;
  readonly cluster: Cluster;
  /** Measured seconds per step; null where there are none, or none that mean anything. */
  readonly seconds: number | null;
  /** Measured peak bytes per device. */
  readonly memoryBytes: number | null;
  readonly fits: boolean;
  /** False where the table leaves open in which format products are ("fp4 or fp8"), and the run's file does not say. */
  readonly formatStated: boolean;
}

/** Columns without which nothing can be said. */
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
  'iteration_time_s',
] as const;

/** Columns of counts and sizes, with the largest that any run could have. */
const LARGEST: Readonly<Record<string, number>> = {
  ...{ gpus: 1e6, gpus_per_node: 1e6, tp: 1e6, pp: 1e6, cp: 1e6, dp: 1e6, ep: 1e6, vpp: 1e6 },
  ...{ layers: 1e5, hidden: 1e7, heads: 1e6, kv_heads: 1e6, ffn: 1e8, vocab: 1e9, seq: 1e9 },
  ...{ microbatch: 1e6, global_batch: 1e9 },
};

/** A number that no run can have, and would spoil the totals of those that are runs. */
function wrongNumber(row: Row): string | null {
  for (const [column, most] of Object.entries(LARGEST)) {
    const value = number(row, column);
    if (value !== undefined && (value < 0 || value > most)) return `${column} is ${value}`;
  }
  for (const column of ['layers', 'hidden', 'heads', 'seq', 'tp', 'pp'])
    if (!Number.isInteger(number(row, column) ?? 1)) return `${column} is ${row[column]}`;
  const seconds = number(row, 'iteration_time_s');
  return seconds !== undefined && seconds <= 0 ? `iteration_time_s is ${seconds}` : null;
}

/** Whether a run ended or ran out of memory; undefined where it did neither. */
function statusOf(text: string): 'ok' | 'oom' | undefined {
  if (/oom|out.of.memory/i.test(text)) return 'oom';
  return /^(ok|done|completed?|success(ful)?)?$/i.test(text.trim()) ? 'ok' : undefined;
}

/** The run of a row, or why there is none. */
export function publishedRun(row: Row, file: string): PublishedRun | string {
  const wrong = wrongNumber(row);
  if (wrong) return wrong;
  const status = statusOf(row['status'] ?? '');
  if (status === undefined) return `status is ${row['status']}`;
  const timed = number(row, 'iteration_time_s') !== undefined;
  const memory = number(row, 'mem_gb');
  if (!timed && status !== 'oom' && memory === undefined) return 'no time';
  const device = deviceOf(row['gpu_type'] ?? '');
  if (!device) return `device ${row['gpu_type']} is not in the catalogue`;
  const degrees = { tp: number(row, 'tp'), pp: number(row, 'pp'), sp: number(row, 'cp') ?? 1, dp: number(row, 'dp') };
  const { tp, pp, sp } = degrees;
  if (tp === undefined || pp === undefined) return 'degrees are not stated';
  const stated = number(row, 'gpus');
  if (stated === undefined && degrees.dp === undefined) return 'degrees are not stated';
  const gpus = stated ?? tp * pp * degrees.sp * (degrees.dp ?? 1);
  // Some count the ranks of context parallelism among those of data parallelism, which share gradients.
  const dpOfAll = sp > 1 && degrees.dp !== undefined && tp * pp * degrees.dp === gpus ? degrees.dp / sp : degrees.dp;
  const dp = dpOfAll || gpus / (tp * pp * sp);
  if (!Number.isInteger(dp) || dp < 1 || tp * pp * sp * dp !== gpus) return 'degrees do not multiply to the devices';
  const globalBatch = number(row, 'global_batch');
  if (globalBatch === undefined) return 'the global batch is not stated';
  const known = publishedModel(row['model'] ?? '');
  if (known === 'hybrid') return 'layers that are not generated';
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
  const sizes: LanguageModelSizes = {
    batch: microBatch,
    sequence,
    layers,
    hidden,
    heads,
    keyHeads: read('kv_heads') ?? known?.kvHeads ?? heads,
    headWidth: known?.headWidth ?? hidden / heads,
    feedForward,
    vocabulary: padded(read('vocab') ?? known?.vocab ?? 50257, tp),
    dropout: 0,
    ...style,
    ...(known?.latent ? { latent: known.latent } : {}),
    ...(known?.experts ? { experts: known.experts } : {}),
  };
  const software = softwareOf(row);
  const precision = precisionOf(row);
  const zero = zeroOf(row['zero'] ?? '', software);
  // Racks of 72 are one domain of fast links, though a tray holds four.
  const rack = /^GB/.test(row['gpu_type'] ?? '');
  const perNode = Math.min(
    rack ? device.scaleUp.domainSize : (number(row, 'gpus_per_node') ?? device.scaleUp.domainSize),
    gpus,
  );
  const network = number(row, 'internode_gbps_per_gpu');
  const configuration: StepConfiguration = {
    degrees: { tp, pp, sp, dp, ep: Math.min(number(row, 'ep') ?? 1, dp * sp) },
    virtualStages: chunksOf(row, layers, pp),
    fusedNorms: style.norm === 'layer' || software !== 'eager' || /RMS kernel|TE|FA/.test(row['attn'] ?? ''),
    loss: /llm-foundry|Liger|AutoModel/.test(`${row['source']} ${row['notes']}`)
      ? 'fused'
      : software === 'eager'
        ? 'plain'
        : 'parallel',
    scatteredSends:
      (software === 'megatron' && !/BigScience/.test(row['source'] ?? '')) || software === 'megatron-core',
    ...(/LoRA/.test(`${row['source']} ${row['notes']}`) ? { frozen: true } : {}),
    microBatch,
    globalBatch,
    tpSequence: YES.test(row['sp'] ?? '') || (!row['sp']?.trim() && software === 'megatron-core' && tp > 1),
    zero: zero.level,
    ...(/offload/i.test(row['zero'] ?? '') ? { offload: 'optimizer' as const } : {}),
    ...(zero.inNode ? { shardRanks: Math.min(dp, perNode) } : {}),
    recompute: recomputeOf(row['recompute'] ?? ''),
    attention: attentionOf(row['attn'] ?? '', software),
    ...(plainSoftmax(row, software, microBatch * (heads / tp)) ? { plainSoftmax: true } : {}),
    precision,
    software,
    overlap: overlapOf(row, software, zero.level),
    ...(software === 'megatron' && zero.level === 3 ? { gathersPerLayer: 12 } : {}),
    // Megatron has it since early 2022, with sequence parallelism.
    ...(/Korthikanti/.test(row['source'] ?? '') ? { fusedAccumulation: true } : {}),
    gradientBytes: gradientBytesOf(row, software, precision),
  };
  const named = parseCluster(`${Math.ceil(gpus / perNode)}x${perNode}:${device.id}`, undefined);
  const scaleOut = network === undefined ? device.scaleOut : { ...device.scaleOut, bandwidth: (network / 8) * 1e9 };
  const linked: DeviceSpec = { ...device, scaleOut };
  const cluster: Cluster = { ...named, device: linked, levels: deviceLevels(linked, named.nodes, named.perNode) };
  const meaningless = /do not score time/.test(row['time_provenance'] ?? '');
  return {
    row,
    file,
    sizes,
    configuration,
    cluster,
    seconds: timed && !meaningless && status === 'ok' ? (number(row, 'iteration_time_s') ?? null) : null,
    memoryBytes: memory === undefined ? null : memory * 1e9,
    fits: status !== 'oom',
    formatStated: !AMBIGUOUS.test(row['precision'] ?? '') || precision === 'fp4',
  };
}

/** Numbers may have commas or underscores between thousands, and lengths of sequences be in thousands of 1,024 ("8k"). */
function number(row: Row, column: string): number | undefined {
  const text = (row[column] ?? '').trim().replace(/(\d)[,_](?=\d{3})/g, '$1');
  const [, count, unit = ''] = /^(\d+)([km])$/i.exec(text) ?? [];
  if (column === 'seq' && count !== undefined) return Number(count) * 1024 ** (unit.toLowerCase() === 'k' ? 1 : 2);
  if (text === '' || Number.isNaN(Number(text))) return undefined;
  return Number(text);
}

/** Megatron pads vocabularies to a multiple of 128 · tp; others do no harm by it. */
function padded(vocabulary: number, tp: number): number {
  return Math.ceil(vocabulary / (128 * tp)) * 128 * tp;
}

function softwareOf(row: Row): SoftwareName {
  const source = `${row['source']} ${row['overlap']}`;
  if (/compile|JAX|XLA|PAX/i.test(source)) return 'compiled';
  if (/llm-foundry|Hagemann|ml-engineering|AutoModel/i.test(source)) return 'eager';
  if (/NeMo|Bridge|MLPerf|MegaScale|H100|functional/i.test(source)) return 'megatron-core';
  if (/vTrain|SC21|SC'21|Korthikanti|BigScience|Megatron/i.test(source)) return 'megatron';
  return row['zero']?.startsWith('3') ? 'eager' : 'megatron-core';
}

function overlapOf(row: Row, software: SoftwareName, zero: number): StepConfiguration['overlap'] {
  const text = row['overlap'] ?? '';
  const tensor =
    /tp_comm_overlap=True|asyncTP|tp-comm|MegaScale/.test(text) || (software === 'megatron-core' && text === '');
  return {
    tensor,
    // ZeRO 3 fetches the next parameters while it computes, in DeepSpeed too.
    data: software !== 'megatron' || zero === 3 || /grad/.test(text),
    pipeline: software === 'megatron-core',
    experts: release(row) >= 26.06,
  };
}

/** The release that a source names, such as 26.06: experts' dispatch runs beside other work from that one on. */
function release(row: Row): number {
  return Number(/Bridge (\d\d\.\d\d)/.exec(row['source'] ?? '')?.[1] ?? 0);
}

/**
 * Chunks per stage. Where only a configuration file says how many ("see config"), each layer is one; where sends between stages
 * overlap, which Megatron has between chunks alone, there are two at least.
 */
function chunksOf(row: Row, layers: number, pp: number): number {
  if (pp === 1) return 1;
  const most = Math.floor(layers / pp);
  const unstated = /config/.test(row['vpp'] ?? '') ? most : /p2p/.test(row['overlap'] ?? '') ? Math.min(2, most) : 1;
  return number(row, 'vpp') ?? unstated;
}

/**
 * In what gradients are reduced, where it is not what the software usually does: NVIDIA's recipes for speed (NeMo, Megatron-Bridge,
 * MLPerf) reduce in bf16. FSDP reduces in fp32 unless told otherwise, as MosaicML's PURE does.
 */
function gradientBytesOf(row: Row, software: SoftwareName, precision: Precision): number {
  const source = `${row['source']} ${row['notes']}`;
  if (precision !== 'fp32' && /NeMo|Bridge|MLPerf|mp_mode=PURE/.test(source)) return 2;
  return /torchtitan|mp_mode=DEFAULT/.test(source) ? 4 : usualGradientBytes(precision, software);
}

/** Yes and true, where a column asks whether. */
const YES = /^\s*(1|true|yes|y|on)\s*$/i;

/** Levels of ZeRO by the names that other systems have for them. */
const ZERO_NAMES: readonly (readonly [pattern: RegExp, level: number])[] = [
  [/shard_grad_op/i, 2],
  [/fsdp|hsdp|full_shard/i, 3],
  [/distributed.optimizer|dist.adam/i, 1],
  [/none|no|ddp/i, 0],
];

function zeroOf(text: string, software: SoftwareName): { readonly level: 0 | 1 | 2 | 3; readonly inNode: boolean } {
  const stated = /(?:^|zero\D{0,3}|stage\D{0,3})([0-3])/i.exec(text)?.[1];
  const named = ZERO_NAMES.find(([pattern]) => pattern.test(text))?.[1];
  const level = Number(stated ?? named ?? (software === 'megatron-core' ? 1 : 0));
  return { level: level as 0 | 1 | 2 | 3, inNode: /HSDP|hybrid/i.test(text) };
}

function recomputeOf(text: string): Recompute {
  if (/^full/i.test(text) || YES.test(text)) return 'full';
  if (/selective\(op\)/i.test(text)) return 'operators';
  if (/^selective/i.test(text)) return 'selective';
  return 'none';
}

function attentionOf(text: string, software: SoftwareName): StepConfiguration['attention'] {
  if (/unfused/.test(text) || text === 'torch' || text === 'fused') return 'parts';
  if (/FA3|FA4|TE|cuDNN/.test(text) || software === 'megatron-core') return 'fused';
  return 'portable';
}

/** Megatron's fused softmax takes batch · heads in fours, and all else goes operator by operator, as "torch" does. */
function plainSoftmax(row: Row, software: SoftwareName, rows: number): boolean {
  return row['attn'] === 'torch' || (software === 'megatron' && rows % 4 !== 0);
}

/** "fp4 or fp8 (see config)". */
const AMBIGUOUS = /fp4 or fp8/;

/**
 * MLPerf's configuration files say fp4 in their names, and most of the others are of 8 bits; but NVIDIA's own runs of Llama 405B in
 * round 5.1, which it announced as those of its 4-bit format, scaling from 512 devices to 5,120.
 */
const FOUR_BITS = /fp4|v5\.1 llama31_405b NVIDIA\//;

function precisionOf(row: Row): Precision {
  const text = row['precision'] ?? '';
  if (AMBIGUOUS.test(text)) return FOUR_BITS.test(`${row['source']} ${row['source_ref']}`) ? 'fp4' : 'fp8';
  return FORMATS.find(([pattern]) => pattern.test(text))?.[1] ?? 'bf16';
}

/** The first that matches counts: mixed recipes multiply in the narrowest that they name, bf16 where they leave it open. */
const FORMATS: readonly (readonly [pattern: RegExp, precision: Precision])[] = [
  [/fp4/i, 'fp4'],
  [/fp8|float8/i, 'fp8'],
  [/bf16|bfloat16/i, 'bf16'],
  [/fp16|float16|half/i, 'fp16'],
  [/fp32|float32/i, 'fp32'],
];

function styleOf(row: Row, stated: 'gpt' | 'llama' | undefined): LanguageModelStyle {
  if (stated) return stated === 'gpt' ? GPT_STYLE : LLAMA_STYLE;
  const name = row['model'] ?? '';
  if (/llama|qwen|deepseek|mixtral|kimi|oss/i.test(name)) return LLAMA_STYLE;
  // Nemotron 4: squared ReLU, rotary, no bias, untied.
  if (/nemotron/i.test(name)) return { ...LLAMA_STYLE, gated: false, norm: 'layer' };
  if (/mpt/i.test(name)) return { ...GPT_STYLE, bias: false };
  return GPT_STYLE;
}

/** Layers of a GPT from its parameters, where only the width is stated: P = 12 l h² (1 + …) + V h. */
function layersOf(row: Row): number | undefined {
  const parameters = number(row, 'params_b');
  const hidden = number(row, 'hidden');
  if (parameters === undefined || hidden === undefined) return undefined;
  const vocabulary = number(row, 'vocab') ?? 50257;
  return Math.round((parameters * 1e9 - vocabulary * hidden) / (12 * hidden * hidden));
}
