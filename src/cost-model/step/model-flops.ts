/**
 * @file FLOPs of a step: matmuls and attention, forward and backward. Recomputation counts only on request (then they are
 * hardware FLOPs).
 */
import { seenShare } from '../../partition/kernels.js';
import type { StepConfiguration } from './configuration.js';
import type { ModelWork, PartWork, StepWork } from './work.js';

/**
 * FLOPs of the model for one step, all devices together.
 * @param whole a micro-batch on one device, so that replicated work and padding do not count
 */
export function modelFlops(
  whole: ModelWork,
  { globalBatch, microBatch, inference }: Pick<StepConfiguration, 'globalBatch' | 'microBatch' | 'inference'>,
): number {
  const of = (part: PartWork) => sum(part.forward.map(flopsOf)) + (inference ? 0 : sum(part.backward.map(flopsOf)));
  const perMicroBatch = sum(whole.layers.map(({ count, part }) => count * of(part))) + of(whole.first) + of(whole.last);
  return (perMicroBatch * globalBatch) / microBatch;
}

/** FLOPs of one kernel; causal attention counts the half that is not masked, or the scores in its window. */
export function flopsOf(work: StepWork): number {
  if (work.kind === 'matmul') return 2 * work.batch * work.rows * work.columns * work.depth;
  if (work.kind !== 'attention') return 0;
  const { batch, heads, queries, keys, width, valueWidth, backward } = work;
  return (backward ? 4 : 2) * batch * heads * queries * keys * (width + valueWidth) * seenShare(work);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
