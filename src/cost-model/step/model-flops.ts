/**
 * @file FLOPs of a step: products and attention, forward and backward. Recomputation counts only where it is asked for (then
 * they are hardware FLOPs).
 */
import type { StepConfiguration } from './configuration.js';
import type { ModelWork, PartWork, Work } from './work.js';

/** FLOPs of all devices together for one step. */
export function modelFlops(
  work: ModelWork,
  { degrees, globalBatch, microBatch, inference }: StepConfiguration,
): number {
  // Experts lie whole on each rank of tp; what the ranks share out are their tokens.
  const onAll = (work: Work) => flopsOf(work) * (work.kind === 'matmul' && work.experts ? 1 : degrees.tp);
  const of = (part: PartWork) => sum(part.forward.map(onAll)) + (inference ? 0 : sum(part.backward.map(onAll)));
  const perMicroBatch = sum(work.layers.map(({ count, part }) => count * of(part))) + of(work.first) + of(work.last);
  return (perMicroBatch * globalBatch) / microBatch;
}

/** FLOPs of one kernel; causal attention counts the half that is not masked. */
export function flopsOf(work: Work): number {
  if (work.kind === 'matmul') return 2 * work.batch * work.rows * work.columns * work.depth;
  if (work.kind !== 'attention') return 0;
  const { batch, heads, queries, keys, width, valueWidth, backward, causal } = work;
  return (backward ? 4 : 2) * batch * heads * queries * keys * (width + valueWidth) * (causal ? 0.5 : 1);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
