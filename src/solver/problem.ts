/**
 * @file The problem that is solved: variables with finitely many states, tables of costs of combinations of states, and a limit
 * on memory over time.
 *
 *     minimise    Σ tables
 *     subject to  Σ bytes of the uses alive at t  ≤  limit        at every time t
 *
 * A use is the memory of a variable's state over a half-open span of time; a variable may have several (a value, its gradient).
 * The planner and the contest on intra-operator parallelism (contest.ts) state their problems so.
 *
 * Numbers are doubles. Costs (the planner's are nanoseconds) and bytes are integers, and sums of them below 2^53 are exact in any
 * order; costs are not negative, so that no part of a sum is larger than the whole; `Infinity` forbids. A solution that costs
 * 2^53 or more is refused (`cost-too-large` of the callers), never rounded. Bounds that come from non-integer prices are rounded
 * down by more than their error (bounds/dual.ts).
 */

/** Row-major over `sizes`, the last one fastest. Equal tables should be one object: work on them is then done once. */
export interface CostTable {
  readonly sizes: readonly number[];
  readonly values: Float64Array;
}

export interface CostFactor {
  /** Distinct variables, in the order of the table's dimensions. */
  readonly variables: readonly number[];
  readonly table: CostTable;
}

export interface CostProblem {
  /** Number of states of each variable. */
  readonly sizes: readonly number[];
  readonly factors: readonly CostFactor[];
}

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

/** The best known states of a problem, and a bound. */
export interface Answer {
  /** A state per variable; null where none is known that keeps the limit. */
  readonly states: readonly number[] | null;
  readonly cost: number;
  /** A lower bound on the cost of any assignment; equal to `cost` where the optimum is proven. */
  readonly bound: number;
}

export interface CostSolution extends Answer {
  readonly states: readonly number[];
}

/** No assignment is allowed, or none keeps the limit. */
export class NoAssignment extends Error {
  override readonly name = 'NoAssignment';
}

/** Cost of an assignment. */
export function costOf(problem: CostProblem, states: readonly number[]): number {
  let sum = 0;
  for (const factor of problem.factors) sum += entryAt(factor, states);
  return sum;
}

/** A factor's entry under an assignment of all variables. */
function entryAt({ variables, table: { sizes, values } }: CostFactor, states: readonly number[]): number {
  let index = 0;
  for (let position = 0; position < variables.length; position++)
    index = index * (sizes[position] as number) + (states[variables[position] as number] as number);
  return values[index] as number;
}

/**
 * Adds to the costs of the states along one dimension of a table their costs with a given state of every other dimension.
 * @param stateAt the state along another dimension
 */
export function addCosts(
  costs: Float64Array,
  { sizes, values }: CostTable,
  dimension: number,
  stateAt: (other: number) => number,
): void {
  let [start, stride] = [0, 1];
  for (let position = 0; position < sizes.length; position++) {
    const size = sizes[position] as number;
    start = start * size + (position === dimension ? 0 : stateAt(position));
    if (position > dimension) stride *= size;
  }
  addStates(costs, sizes[dimension] as number, values, start, stride);
}

/** A loop of its own, of numbers and arrays of one kind, for the compiler's sake. */
function addStates(costs: Float64Array, size: number, values: Float64Array, start: number, stride: number): void {
  for (let state = 0, at = start; state < size; state++, at += stride)
    costs[state] = (costs[state] as number) + (values[at] as number);
}

/** The first of the states that cost least. */
export function cheapestState(costs: Float64Array, size: number): number {
  let best = 0;
  for (let state = 1; state < size; state++) if ((costs[state] as number) < (costs[best] as number)) best = state;
  return best;
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
  // Bytes that end at a time are gone before those that start then.
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
