/**
 * @file simulate: prices a hand-written choice of degrees, batches, schedule and memory savings, without a search. One
 * micro-batch of each part of the model is lowered and priced; stages, micro-batches and data parallelism follow from it.
 */

import { type GeneratedModel, generatedModel } from '../../models/families.js';
import { type Cluster, clusterSize, parseCluster } from '../cost-model/cluster.js';
import { usualPrecision } from '../cost-model/device.js';
import type { MemoryOverTime } from '../cost-model/memory-over-time.js';
import {
  type Degrees,
  type MatmulPrecision,
  type MeshOrder,
  type Offload,
  type StepConfiguration,
  type StepRecompute,
  usualGradientBytes,
} from '../cost-model/step/configuration.js';
import { type SoftwareName, STEP_CONSTANTS, USUAL_SOFTWARE } from '../cost-model/step/constants.js';
import { type LargeTensor, largestTensors } from '../cost-model/step/largest-tensors.js';
import { modelFlops } from '../cost-model/step/model-flops.js';
import { type HostMemory, hostMemory } from '../cost-model/step/offload.js';
import { chunkCut, layerOrder } from '../cost-model/step/stages.js';
import { type StageMemory, stageMemory } from '../cost-model/step/step-memory.js';
import { microBatches, priceStepExactly, type StepPrice, scheduleRequest } from '../cost-model/step/step-price.js';
import type { ModelWork } from '../cost-model/step/work.js';
import type { StepSpan } from '../cost-model/step-spans.js';
import type { LossOptions } from '../ir/autodiff/append-loss.js';
import { usageError } from '../ir/error.js';
import { interruptible } from '../ir/interruption.js';
import { checkRequest } from '../schedule/make-schedule.js';
import { fewestChunks, type ScheduleKind } from '../schedule/schedule.js';
import { factsOf, type SpaceOptions, withoutSequence } from '../search/configurations/space.js';
import { layoutOfStages, readStageLayout } from '../search/pipeline/stage-layout.js';
import { unitsOfLayers } from '../search/pipeline/units.js';
import type { TpSequence } from '../sharding-propagation/roles.js';
import type { ImportOptions } from './models/import.js';
import type { ModelChoice } from './models/model-choice.js';
import type { WriteModelOptions, WrittenModel } from './models/write-model.js';
import type { Purpose } from './planning/graph-work.js';
import { missingOf, stageMemoryLimits } from './planning/missing-memory.js';
import { cheapestRemedy, type Remedy } from './planning/step-remedy.js';
import { evenShare, statedBatch, workReader } from './planning/step-works.js';
import { type AxisUse, stepAxes } from './reports/mesh-axes.js';
import { pipelineMemory, pipelineSpans, writeTimeline } from './reports/timeline.js';
import { clusterSources } from './requests/cluster-sources.js';

export interface SimulateOptions extends ImportOptions, Partial<Degrees>, ModelChoice, WriteModelOptions {
  readonly cluster?: string;
  readonly devices?: number;
  /** Bytes per device; by default the memory of the device. */
  readonly memory?: number;
  /** Price a training step; if left out, inference (forward only). */
  readonly training?: { readonly loss: LossOptions };
  /** The same as `training.loss`. */
  readonly loss?: LossOptions;
  readonly microBatch?: number;
  readonly microBatches?: number;
  /** Axes of the mesh, outermost first; pp, dp, sp, tp by default. */
  readonly meshOrder?: MeshOrder;
  readonly tpSequence?: TpSequence;
  readonly zero?: 0 | 1 | 2 | 3;
  readonly recompute?: StepRecompute;
  readonly schedule?: ScheduleKind;
  readonly virtualStages?: number;
  /** Units of each part of the pipeline, as `E t*3 | t*3 H`; layers are spread evenly by default. */
  readonly stages?: string;
  /** Data that is offloaded to the host's memory; nothing by default. */
  readonly offload?: Offload;
  readonly precision?: MatmulPrecision;
  readonly software?: SoftwareName;
  /** Bytes of a gradient element in memory and in communication; by default those that the software uses. */
  readonly gradientBytes?: 2 | 4;
  readonly attention?: StepConfiguration['attention'];
  readonly signal?: AbortSignal;
  /** File for the pipeline's timeline, for Perfetto and chrome://tracing. */
  readonly trace?: string;
}

export interface Simulation extends StepPrice, WrittenModel {
  readonly name: string;
  /** Units of each part of the pipeline, in letters; null for one stage. */
  readonly stageLayout: string | null;
  readonly cluster: Cluster;
  readonly configuration: StepConfiguration;
  readonly microBatches: number;
  /** Samples per second on all devices; `tokensPerSecond` is null if the model has no sequence. */
  readonly samplesPerSecond: number;
  readonly tokensPerSecond: number | null;
  /** FLOPs of the model in a step, without recomputation. `utilisation` (MFU) divides them by what all devices can do in the
   * step time at their 16-bit peak (ranks of this machine: fp32 peak). */
  readonly modelFlops: number;
  readonly utilisation: number;
  /** The levels and links of each mesh axis, and the communication over it. */
  readonly axes: readonly AxisUse[];
  readonly stages: readonly StageMemory[];
  /** Memory of a device of the stage with the least free memory; null if it is unknown. */
  readonly memoryBytes: number | null;
  readonly fits: boolean;
  /** Bytes offloaded to the host of the fullest node, and the host's memory; null if nothing is offloaded. */
  readonly host: HostMemory | null;
  /** The stage with the least free memory. */
  readonly tightestStage: number;
  /** The largest tensors of that stage at peak memory, by name; empty if only the model's work is known. */
  readonly largest: readonly LargeTensor[];
  /** Bytes that this stage lacks; 0 if it fits. */
  readonly missingBytes: number;
  /** The timeline of the stages in a step. */
  readonly spans: () => readonly StepSpan[];
  /** Memory of a device over a step, per stage. */
  readonly memoryOverTime: () => readonly MemoryOverTime[];
  /** The cheapest single change that makes the step fit; null if none does, or none is needed. */
  readonly remedy: Remedy | null;
}

/**
 * Prices a choice.
 * @throws AutoparError (usage) `degrees-do-not-match-devices`, `degree-does-not-fit`, `batch-does-not-divide`, `too-many-stages`,
 * `bad-schedule`, and the errors of reading or generating the model
 */
export async function simulate(options: SimulateOptions): Promise<Simulation> {
  checkPurpose(options);
  const generated = options.generate === undefined ? null : generatedModel(options.generate);
  const cluster = parseCluster(options.cluster, options.devices, {
    ...(await clusterSources(options.cluster)),
    degrees: hintOf(options),
  });
  checkOffload(options, cluster);
  const even = configurationOf(await withBatch(options, generated, clusterSize(cluster)), cluster);
  if (even.degrees.pp > 1) checkRequest(scheduleRequest(even));
  const purpose: Purpose = options.loss ? { kind: 'training', loss: options.loss } : { kind: 'inference' };
  const read = workReader(options, generated, purpose, cluster, evenShare(even.globalBatch, cluster));
  const works = async ({ degrees, microBatch }: StepConfiguration) => (await read(degrees.tp, microBatch)).work;
  const { work, tensors } = await read(even.degrees.tp, even.microBatch);
  await interruptible(options.signal);
  checkStages(work, even);
  const configuration = withStages(even, work, options.stages);
  const whole = await read(1, configuration.microBatch);
  await interruptible(options.signal);
  checkCuts(whole.work, configuration);
  const priced = simulationOf({
    name: generated?.text ?? options.model ?? '',
    cluster,
    configuration,
    work,
    modelFlops: modelFlops(whole.work, configuration),
    memory: options.memory,
    sequence: whole.sequence,
  });
  const largest = largestTensors(tensors(), work, configuration, priced.tightestStage).slice(0, NAMED);
  const simulation = { ...priced, largest };
  if (options.trace !== undefined) await writeTimeline(options.trace, configuration, simulation, simulation.stages);
  if (simulation.fits) return simulation;
  return {
    ...simulation,
    remedy: await cheapestRemedy(options, configuration, { cluster, facts: factsOf(whole.work), works }),
  };
}

/** Number of tensors that are named at peak memory. */
const NAMED = 8;

/** Prices a configuration of a model whose work is known; it does not look for a remedy. */
export function simulationOf({ modelFlops: flops, ...priceable }: Priceable): Simulation {
  const { name, cluster, configuration, work, memory, sequence } = priceable;
  const price = priceStepExactly(work, configuration, cluster, STEP_CONSTANTS);
  const stages = stageMemory(work, configuration);
  const limits = stageMemoryLimits(memory, cluster, configuration);
  const missing = missingOf(stages, limits);
  const host = hostMemory(stages, configuration, cluster);
  const fits = missing.bytes <= 0 && (host === null || host.bytes <= host.memoryBytes);
  const samplesPerSecond = configuration.globalBatch / price.stepSeconds;
  return {
    ...price,
    name,
    stageLayout: stageLayoutOf(work, configuration),
    cluster,
    configuration,
    microBatches: microBatches(configuration),
    samplesPerSecond,
    tokensPerSecond: sequence === null ? null : samplesPerSecond * sequence,
    modelFlops: flops,
    utilisation: flops / (price.stepSeconds * peakOf(cluster)),
    axes: stepAxes(configuration, price, cluster),
    stages,
    memoryBytes: limits[missing.stage] ?? null,
    tightestStage: missing.stage,
    largest: [],
    fits,
    host,
    missingBytes: Math.max(0, missing.bytes),
    remedy: null,
    spans: () => pipelineSpans(configuration, price),
    memoryOverTime: () => pipelineMemory(configuration, price, stages),
  };
}

/** The input of a simulation. */
export interface Priceable {
  readonly name: string;
  readonly cluster: Cluster;
  readonly configuration: StepConfiguration;
  readonly work: ModelWork;
  /** FLOPs of the model in a step, all devices together. */
  readonly modelFlops: number;
  /** Bytes per device; if undefined, the memory of each device. */
  readonly memory: number | undefined;
  /** Tokens of a sample; null if its inputs are not tokens. */
  readonly sequence: number | null;
}

/**
 * FLOP/s of all devices at their 16-bit peak; at their fp32 peak if they have none, and for this machine, which computes in fp32.
 */
function peakOf({ nodes, perNode, device, local, kinds = [{ nodes, device }] }: Cluster): number {
  const peaks = kinds.map(({ nodes: count, device: { peakFlops } }) => {
    const peak = (local ? undefined : (peakFlops.bf16 ?? peakFlops.fp16)) ?? peakFlops.fp32 ?? 1;
    return count * perNode * peak;
  });
  return peaks.reduce((sum, peak) => sum + peak, 0);
}

/** The degrees that determine the number of devices if nothing else states it; dp takes the remaining devices if not given. */
function hintOf({ dp, tp = 1, pp = 1, sp = 1 }: SimulateOptions): { readonly dp?: number; readonly tp: number } {
  return { ...(dp === undefined ? {} : { dp }), tp: tp * pp * sp };
}

function configurationOf(options: SimulateOptions, cluster: Cluster): StepConfiguration {
  const devices = clusterSize(cluster);
  const { tp = 1, pp = 1, sp = 1, ep = 1 } = options;
  const dp = options.dp ?? devices / (tp * pp * sp);
  if (dp * tp * pp * sp !== devices || !Number.isInteger(dp))
    throw usageError(
      'degrees-do-not-match-devices',
      options.dp === undefined
        ? `tp ${tp} · pp ${pp} · sp ${sp} is ${tp * pp * sp}, which does not divide the ${devices} devices`
        : `dp ${dp} · tp ${tp} · pp ${pp} · sp ${sp} is ${dp * tp * pp * sp}, which does not make the ${devices} devices`,
      'degrees multiply to the devices; leave out --dp to fill them',
    );
  if ((dp * sp) % ep !== 0)
    throw usageError(
      'degrees-do-not-match-devices',
      `ep ${ep} does not divide dp · sp, ${dp * sp}`,
      'give an ep that divides it',
    );
  const { microBatch, globalBatch } = batchOf(options, dp, pp);
  const virtualStages = options.virtualStages ?? fewestChunks(options.schedule ?? '1f1b');
  if (pp === 1 && (options.virtualStages ?? 1) > 1)
    throw usageError(
      'bad-schedule',
      `${options.virtualStages} virtual stages need a pipeline, and pp is 1`,
      'give a --pp, or leave out --virtual-stages',
    );
  if (pp === 1 && options.stages !== undefined)
    throw usageError('bad-stages', `--stages "${options.stages}" needs a pipeline, and pp is 1`, 'give a --pp');
  if (pp === 1 && options.schedule !== undefined)
    throw usageError(
      'bad-schedule',
      `schedule ${options.schedule} needs a pipeline, and pp is 1`,
      'give a --pp, or leave out --schedule',
    );
  return {
    ...baseConfiguration(cluster, options, globalBatch),
    degrees: { tp, pp, sp, dp, ep },
    ...(options.meshOrder ? { meshOrder: options.meshOrder } : {}),
    ...(options.schedule ? { schedule: options.schedule } : {}),
    virtualStages: pp === 1 ? 1 : virtualStages,
    microBatch,
    tpSequence: tp > 1 && (options.tpSequence ?? 'auto') !== 'off',
    zero: options.zero ?? 0,
    recompute: options.recompute ?? 'none',
    ...((options.offload ?? 'none') === 'none' ? {} : { offload: options.offload as Offload }),
  };
}

/** The part of a configuration that no search decides: precision and kernels (defaults of the device), software, overlap. */
export function baseConfiguration(
  cluster: Cluster,
  {
    loss,
    attention = cluster.device.attention ?? 'fused',
    precision = cluster.local ? 'fp32' : usualPrecision(cluster.device),
    software = USUAL_SOFTWARE,
    gradientBytes,
  }: SimulateOptions,
  globalBatch: number,
): SpaceOptions['base'] {
  return {
    ...(loss ? {} : { inference: true }),
    ...(cluster.local ? { bundledRuntime: true } : {}),
    globalBatch,
    attention,
    precision,
    software,
    overlap: { tensor: false, data: true, pipeline: software === 'megatron-core', experts: false },
    fusedNorms: true,
    loss: 'parallel',
    scatteredSends: true,
    gradientBytes: gradientBytes ?? usualGradientBytes(precision, software),
  };
}

/**
 * Uses the batch of a model that states several samples as the global batch. Without batch options it has pp micro-batches, if
 * they divide it.
 */
async function withBatch(
  options: SimulateOptions,
  generated: GeneratedModel | null,
  devices: number,
): Promise<SimulateOptions> {
  const { globalBatch, microBatch, microBatches, tp = 1, pp = 1, sp = 1 } = options;
  if (globalBatch !== undefined || (microBatch !== undefined && microBatches !== undefined)) return options;
  const stated = await statedBatch(options, generated);
  if (stated === 1) return options;
  const dp = options.dp ?? devices / (tp * pp * sp);
  const said = microBatch ?? microBatches;
  if (said !== undefined) return { ...options, globalBatch: stated };
  return { ...options, globalBatch: stated, ...(stated % (dp * pp) === 0 ? { microBatches: pp } : {}) };
}

/** Micro-batch and global batch, from the given batch options. */
function batchOf({ globalBatch, microBatch, microBatches: count }: SimulateOptions, dp: number, pp: number) {
  if (globalBatch === undefined) {
    const samples = microBatch ?? 1;
    return { microBatch: samples, globalBatch: samples * dp * (count ?? pp) };
  }
  if (globalBatch === 0)
    throw usageError(
      'batch-does-not-divide',
      'the global batch is 0, and a step needs samples',
      'export the model with a dynamic batch dimension and bind it with --dim, or export it at the wanted batch',
    );
  const samples = microBatch ?? (count === undefined ? 1 : globalBatch / (dp * count));
  const times = globalBatch / (dp * samples);
  if (Number.isInteger(samples) && Number.isInteger(times) && (count === undefined || count === times))
    return { microBatch: samples, globalBatch };
  const given = [
    `dp ${dp}`,
    ...(microBatch === undefined ? [] : [`micro-batch ${microBatch}`]),
    ...(count === undefined ? [] : [`micro-batches ${count}`]),
  ];
  const unit = dp * (microBatch ?? 1) * (count ?? 1);
  const exact = microBatch !== undefined && count !== undefined;
  throw usageError(
    'batch-does-not-divide',
    `the global batch ${globalBatch} is ${exact ? 'not' : 'not a multiple of'} ${given.join(' · ')}`,
    'global batch = dp · micro-batch · micro-batches: for example --global-batch ' +
      `${exact ? unit : Math.ceil(globalBatch / unit) * unit}`,
  );
}

/** Refuses training options for inference. */
export function checkPurpose({ loss, zero = 0, recompute = 'none' }: SimulateOptions): void {
  const stray = zero > 0 ? `--zero ${zero}` : recompute === 'none' ? undefined : `--recompute ${recompute}`;
  if (loss || stray === undefined) return;
  throw usageError(
    'bad-option',
    `${stray} applies to training only: inference has no gradients and stores no activations`,
    'add --train, or leave it out',
  );
}

/**
 * Checks whether anything can be offloaded.
 * @throws AutoparError (usage) `bad-option` for inference, `no-host` if the devices' hosts are unknown
 */
export function checkOffload({ offload = 'none', loss }: SimulateOptions, { device, local }: Cluster): void {
  if (offload === 'none') return;
  if (!loss)
    throw usageError(
      'bad-option',
      `--offload ${offload} applies to training only: inference has no optimizer state and stores no activations`,
      'add --train, or leave it out',
    );
  if (!device.host)
    throw usageError(
      'no-host',
      local
        ? `--offload ${offload}: ranks of this machine are its host already`
        : `--offload ${offload}: device ${device.id} has no host data`,
      'set host: {memory, memoryBandwidth, bandwidth} of the device in a cluster file (docs/clusters.md)',
    );
}

function checkStages(work: ModelWork, { degrees, virtualStages }: StepConfiguration): void {
  const layers = work.layers.reduce((sum, { count }) => sum + count, 0);
  if (degrees.pp * virtualStages <= layers) return;
  throw usageError(
    'too-many-stages',
    `pp ${degrees.pp} with ${virtualStages === 1 ? '1 chunk' : `${virtualStages} chunks`} a stage needs ` +
      `${degrees.pp * virtualStages} layers, and the model has ${layers}`,
    'lower --pp or --virtual-stages',
  );
}

/** @throws AutoparError (usage) `bad-stages` for a layout that is not of the model's layers, or not of the number of parts */
function withStages(configuration: StepConfiguration, work: ModelWork, layout: string | undefined): StepConfiguration {
  if (layout === undefined) return configuration;
  const { degrees, virtualStages } = configuration;
  const parts = degrees.pp * virtualStages;
  const units = unitsOfLayers(layerOrder(work));
  const sizes = readStageLayout(ofLayers(layout), units, parts);
  // The operators before the layers and behind them are on the first part and the last.
  return { ...configuration, stageLayers: sizes.map((size, part) => size - endsOn(part, parts)) };
}

/** A layout of compile: units between layers are priced with these, and a model may have nothing before or behind them. */
function ofLayers(layout: string): string {
  const layers = layout.replaceAll(/M(\*\d+)?/g, '');
  return `${/^\s*E/.test(layers) ? '' : 'E '}${layers}${/H\s*$/.test(layers) ? '' : ' H'}`;
}

/** The share of the operators before the layers and behind them that a part has. */
function endsOn(part: number, parts: number): number {
  return Number(part === 0) + Number(part === parts - 1);
}

function stageLayoutOf(work: ModelWork, configuration: StepConfiguration): string | null {
  if (configuration.degrees.pp === 1) return null;
  const cut = chunkCut(work, configuration);
  const sizes = cut.map((layers, part) => layers + endsOn(part, cut.length));
  return layoutOfStages(unitsOfLayers(layerOrder(work)), sizes);
}

/** sp shards the sequence and ep the experts: in a model without them no rank would have less work. */
function checkCuts(work: ModelWork, { degrees: { sp, ep } }: StepConfiguration): void {
  const { sequence, experts } = factsOf(work);
  const refuse = (message: string, hint: string) => usageError('degree-does-not-fit', message, hint);
  if (sp > 1 && sequence === 1)
    throw refuse(withoutSequence(sp), 'leave out --sp, or compile with it: that prices every operator');
  if (sequence % sp !== 0)
    throw refuse(`sp ${sp} does not divide the sequence of ${sequence}`, 'give an sp that divides it');
  if (ep > 1 && experts === 1) throw refuse(`ep ${ep} shards experts, and the model has none`, 'leave out --ep');
  if (experts % ep !== 0)
    throw refuse(`ep ${ep} does not divide the ${experts} experts of the model`, 'give an ep that divides them');
}
