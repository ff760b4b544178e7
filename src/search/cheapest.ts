/**
 * @file The cheapest assignment of a cost problem: exact elimination, and the solver where tables would be too large for it.
 */
import type { CostProblem, CostSolution } from './cost-problem.js';
import { type EliminationLimits, eliminate } from './elimination.js';
import { solve } from './solver/solve.js';
import type { TableAlgebra } from './table-algebra.js';

/** Table entries that the solver may look at: about a second. */
const EFFORT = { work: 1e8 };

/**
 * Solves a problem; the better of both costs and the better of both bounds, where elimination proves no optimum.
 * @throws RangeError where every assignment is forbidden
 */
export function cheapest(problem: CostProblem, algebra: TableAlgebra, limits?: EliminationLimits): CostSolution {
  const found = eliminate(problem, algebra, limits);
  if (found.bound === found.cost) return found;
  const other = solve({ ...problem, uses: [], limit: Infinity }, EFFORT, null);
  const bound = Math.max(found.bound, other.bound);
  if (!other.states || other.cost >= found.cost) return { ...found, bound };
  return { states: other.states, cost: other.cost, bound };
}
