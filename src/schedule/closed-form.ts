/**
 * @file How long a schedule of equal stages takes, in one formula: for choices that are too many to simulate. Where stages
 * differ or results take time to travel, `simulate` is exact and these are not.
 */
import type { ScheduleKind, ScheduleRequest } from './schedule.js';

/** Seconds of one micro-batch on one stage (all its chunks). */
export interface StageSeconds {
  readonly forward: number;
  /** Both gradients. */
  readonly backward: number;
  /** The part of `backward` that is the weight gradient: what zero-bubble moves. */
  readonly weightGradient: number;
}

/**
 * Seconds from the first action to the end of the last.
 *
 *     naive                m·p·(F + B)
 *     f-then-b, 1f1b       (m + p − 1)·(F + B)
 *     interleaved-1f1b     m·(F + B) + (p − 1)·(F + B)/v
 *     zero-bubble          m·(F + B) + (p − 1)·(F + B − W − w) + max(0, p − m)·w
 *     forwards only        m·F + (p − 1)·F/v
 *
 * W is the weight gradient, B − W the input gradient, and w the least of F, B − W and W: what fills the bubble, so that a
 * third of 1F1B's is left where the three are equal (Qi et al. 2023). All are exact for equal stages, zero-bubble with fewer
 * micro-batches than stages only where W ≤ B − W.
 */
export function closedFormSeconds(request: ScheduleRequest, seconds: StageSeconds): number {
  const { kind, stages, microBatches, virtualStages = 1, training = true } = request;
  const { forward, backward, weightGradient } = seconds;
  if (!training) return microBatches * forward + ((stages - 1) * forward) / virtualStages;
  const one = forward + backward;
  const filling = Math.min(forward, backward - weightGradient, weightGradient);
  const idle: Readonly<Record<ScheduleKind, number>> = {
    naive: microBatches * (stages - 1) * one,
    'f-then-b': (stages - 1) * one,
    '1f1b': (stages - 1) * one,
    'interleaved-1f1b': ((stages - 1) * one) / virtualStages,
    'zero-bubble': (stages - 1) * (one - weightGradient - filling) + Math.max(0, stages - microBatches) * filling,
  };
  return microBatches * one + idle[kind];
}
