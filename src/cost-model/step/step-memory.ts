/**
 * @file Bytes that one rank of each pipeline stage holds at the peak of a training step: state of its parts for the whole
 * step, stored activations of each micro-batch in flight, and temporaries that are live while the fullest part runs.
 */
import { DEVICE_OVERHEAD, fixedBytesAmong } from '../hardware.js';
import type { StepConfiguration } from './configuration.js';
import { type PartBytes, type PartsBytes, partBytes } from './part-bytes.js';
import { type LayerCut, type StageLayers, stageLayers } from './stages.js';
import { microBatches } from './step-price.js';
import type { ModelWork } from './work.js';

/** Bytes that a rank of one stage holds at its peak. */
export interface StageMemory {
  readonly stage: number;
  readonly parameters: number;
  readonly gradients: number;
  readonly optimizer: number;
  /** Stored activations of micro-batches in flight. */
  readonly activations: number;
  /** Other bytes live while the fullest part runs: recomputed values, gathered parameters, logits and loss. */
  readonly temporaries: number;
  /** Device context, communication library, and fragmentation of the allocator. */
  readonly overhead: number;
  readonly total: number;
  /** In the memory of its node's host: optimizer state, and stored activations; not part of the total. */
  readonly host: number;
  /** Micro-batches whose activations are held at once. */
  readonly inFlight: number;
}

/**
 * One record per stage; `overhead` is left out of `allocatedBytes`, which a framework's own counter shows.
 * @param parts the bytes of the model's parts, and `cut` its layers over chunks, where the caller has them
 * @throws Error where `configuration.stageLayers` are not those of the model
 */
export function stageMemory(
  model: ModelWork,
  configuration: StepConfiguration,
  parts: PartsBytes = partBytes(model, configuration),
  cut?: LayerCut,
): readonly StageMemory[] {
  return stageLayers(model, configuration, cut).map((layers) => memoryOfStage(layers, parts, configuration));
}

/** Peak bytes of tensors, without context, communication library and fragmentation. */
export function allocatedBytes({ total, overhead }: StageMemory): number {
  return total - overhead;
}

/**
 * Micro-batches whose activations a stage holds at once; none in inference. It is the count of the schedule's own order
 * (`inFlight` of src/schedule/in-flight.ts) in one formula: with v chunks each holds 1/v of a stage's activations, and a split
 * backward stores the operands of weight gradients.
 */
export function inFlightOn(stage: number, configuration: StepConfiguration): number {
  const { degrees, schedule, virtualStages: v, inference } = configuration;
  const { pp } = degrees;
  if (inference) return 0;
  const m = microBatches(configuration);
  if (schedule === 'f-then-b') return m;
  if (pp === 1 || schedule === 'naive') return 1;
  if (schedule === 'zero-bubble' || schedule === 'zbv') return Math.min(m, pp);
  if (schedule === 'interleaved-zero-bubble') return Math.min(m, pp + (pp - 1) / v);
  return Math.min(m, (v === 1 ? pp - stage : 2 * (pp - stage - 1) + (v - 1) * pp + 1) / v);
}

function memoryOfStage(
  { stage, stored, recomputed, first, last }: StageLayers,
  parts: PartsBytes,
  configuration: StepConfiguration,
): StageMemory {
  const inFlight = inFlightOn(stage, configuration);
  let parameters = 0;
  let gradients = 0;
  let optimizer = 0;
  let saved = 0;
  let transient = 0;
  let gathered = 0;
  let hostState = 0;
  let hostSaved = 0;
  let passing = 0;
  const add = (bytes: PartBytes, count: number) => {
    if (count === 0) return;
    parameters += count * bytes.parameters;
    gradients += count * bytes.gradients;
    optimizer += count * bytes.optimizer;
    saved += count * bytes.saved;
    transient = Math.max(transient, bytes.transient);
    gathered = Math.max(gathered, bytes.gathered);
    hostState += count * bytes.hostState;
    hostSaved += count * bytes.hostSaved;
    // Two layers' offloaded activations are on the device: those of the layer at work, and those in transfer.
    passing = Math.max(passing, Math.min(2, inFlight * count) * bytes.hostSaved);
  };
  for (let index = 0; index < parts.layers.length; index++) {
    const layer = parts.layers[index] as (typeof parts.layers)[number];
    add(layer.stored, stored[index] ?? 0);
    add(layer.recomputed, recomputed[index] ?? 0);
  }
  if (first) add(parts.first, 1);
  if (last) add(parts.last, 1);
  const activations = inFlight * saved + passing;
  const temporaries = transient + gathered;
  const held = parameters + gradients + optimizer + activations + temporaries;
  const { tp, pp, dp, sp } = configuration.degrees;
  const around = fixedBytesAmong(tp * pp * dp * sp) + DEVICE_OVERHEAD.fragmentation * held;
  const overhead = configuration.bundledRuntime ? 0 : around;
  return {
    stage,
    parameters,
    gradients,
    optimizer,
    activations,
    temporaries,
    overhead,
    total: held + overhead,
    host: hostState + inFlight * hostSaved,
    inFlight,
  };
}
