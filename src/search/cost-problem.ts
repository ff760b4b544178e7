/**
 * @file The problem that planning one graph comes down to: variables with finitely many states, and tables that say what
 * combinations of states cost. Cost of an assignment = sum over the tables.
 *
 * Costs are integers (nanoseconds) below 2^53, so sums in doubles are exact; `Infinity` forbids.
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

export interface CostSolution {
  /** One state per variable. */
  readonly states: readonly number[];
  readonly cost: number;
  /** No assignment costs less; equal to `cost` where the optimum is proven. */
  readonly bound: number;
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
