/**
 * @file The problem that the solver takes: a cost problem, and a limit on memory over time.
 *
 *     minimise    Σ tables of one or two variables
 *     subject to  Σ bytes of the uses alive at t  ≤  limit        at every time t
 *
 * A use is what a variable's state takes over a half-open span of time; a variable may have several (a value, its gradient).
 * The planner and the contest on intra-operator parallelism (bench/contest) state their problems so.
 *
 * Numbers are doubles. Costs and bytes are integers, and sums of them below 2^53 are exact in any order; costs are not
 * negative, so that no part of a sum is larger than the whole. A solution that costs 2^53 or more is refused
 * (`cost-too-large` of the callers), never rounded. Bounds that come from non-integer prices are rounded down by more than
 * their error (dual-bound.ts).
 */
import { type CostProblem, costOf } from '../cost-problem.js';

export interface MemoryUse {
  readonly variable: number;
  /** Alive from `start` up to, not including, `end`. */
  readonly start: number;
  readonly end: number;
  /** Bytes by state. */
  readonly bytes: Float64Array;
}

export interface LimitedProblem extends CostProblem {
  readonly uses: readonly MemoryUse[];
  /** Bytes; Infinity where memory does not matter. */
  readonly limit: number;
  /** Bytes that are taken whatever is chosen. */
  readonly decided?: readonly { readonly start: number; readonly end: number; readonly bytes: number }[];
}

/** No assignment is allowed, or none keeps the limit. */
export class NoAssignment extends Error {
  override readonly name = 'NoAssignment';
}

/** Most bytes that are alive at one time under an assignment. */
function peakOf(problem: LimitedProblem, states: readonly number[]): number {
  const changes: [time: number, bytes: number][] = [];
  for (const { variable, start, end, bytes } of problem.uses) {
    const amount = bytes[states[variable] as number] as number;
    if (end <= start || amount === 0) continue;
    changes.push([start, amount], [end, -amount]);
  }
  for (const { start, end, bytes } of problem.decided ?? []) changes.push([start, bytes], [end, -bytes]);
  // What ends at a time is gone before what starts then.
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let [live, peak] = [0, 0];
  for (const [, amount] of changes) {
    live += amount;
    if (live > peak) peak = live;
  }
  return peak;
}

/** Cost of an assignment, Infinity where a pair is forbidden or the memory passes the limit. */
export function limitedCostOf(problem: LimitedProblem, states: readonly number[]): number {
  const cost = costOf(problem, states);
  return peakOf(problem, states) > problem.limit ? Infinity : cost;
}
