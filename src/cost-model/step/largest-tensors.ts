/**
 * @file The largest tensors that a rank of a stage holds at the peak of a step, by name: parameters with their gradients and
 * optimizer state, buffers, and stored activations of the micro-batches in flight.
 */
import type { StepConfiguration } from './configuration.js';
import { longLivedBytes } from './part-bytes.js';
import type { LongLivedTensor } from './read-work.js';
import { stageLayers } from './stages.js';
import { inFlightOn } from './step-memory.js';
import type { ModelWork } from './work.js';

/** Tensors of a model's parts, layers by class. */
export interface PartTensors {
  readonly first: readonly LongLivedTensor[];
  readonly layers: readonly (readonly LongLivedTensor[])[];
  readonly last: readonly LongLivedTensor[];
}

export interface LargeTensor {
  /** The tensor's name; in a class of layers, the name in the first of them. */
  readonly tensor: string;
  readonly kind: LongLivedTensor['kind'];
  /** Layers of the stage that have such a tensor, and micro-batches in flight that store it. */
  readonly layers: number;
  readonly microBatches: number;
  /** Bytes of all of them on one rank. */
  readonly bytes: number;
}

/**
 * Largest first. Layers that recompute (fully, or by operator) list only parameters: their input is their stored activation. The
 * loss's own values, which are live while it runs, are temporaries.
 */
export function largestTensors(
  tensors: PartTensors,
  model: ModelWork,
  configuration: StepConfiguration,
  stage: number,
): readonly LargeTensor[] {
  const layers = stageLayers(model, configuration)[stage];
  if (!layers) throw new Error(`no stage ${stage}`);
  const inFlight = inFlightOn(stage, configuration);
  const forgets = configuration.recompute === 'full' || configuration.recompute === 'operators';
  const held = (
    part: readonly LongLivedTensor[],
    stored: number,
    recomputed: number,
    keeps = true,
  ): readonly LargeTensor[] =>
    part.flatMap((named) => {
      const isWeight = named.kind !== 'activation';
      const count = isWeight || !forgets ? stored + recomputed : stored;
      const times = isWeight ? 1 : inFlight;
      const bytes = count * times * longLivedBytes(named, configuration);
      if (bytes === 0 || !(isWeight || keeps)) return [];
      return [{ tensor: named.tensor, kind: named.kind, layers: count, microBatches: times, bytes }];
    });
  return [
    ...(layers.first ? held(tensors.first, 1, 0) : []),
    ...tensors.layers.flatMap((part, index) => held(part, layers.stored[index] ?? 0, layers.recomputed[index] ?? 0)),
    ...(layers.last ? held(tensors.last, 1, 0, false) : []),
  ].sort((a, b) => b.bytes - a.bytes || (a.tensor < b.tensor ? -1 : 1));
}
