/**
 * @file The cheapest assignment of a cost problem: exact elimination while tables stay small; the solver where they would not;
 * elimination over large tables where that leaves a gap.
 *
 * Layered networks are eliminated in small tables. Where everything reads everything before it (DenseNet), tables grow with
 * the depth, and what reduction and messages leave is next to nothing: 0.3 s in place of 37.
 */
import type { CostProblem, CostSolution } from './cost-problem.js';
import { type EliminationLimits, eliminate } from './elimination.js';
import type { GroupGraph } from './group-graph.js';
import { solve } from './solver/solve.js';
import { TableAlgebra } from './table-algebra.js';

/** Tables up to which elimination goes before the solver. */
export const SMALL: EliminationLimits = { tableEntries: 30_000, tableWork: 3_000_000 };

/** And after it: some seconds in all. */
export const LARGE: EliminationLimits = { tableEntries: 4_000_000, tableWork: 400_000_000, allWork: 2_000_000_000 };

/** A gap, as a share of the cost, below which no large tables are made: they take ten times what all else does. */
const CLOSE = 1e-3;

/** Table entries that the solver may look at: about a second; of a gap that is small, what it takes where it proves at once. */
export function effortFor(found: CostSolution): { readonly work: number } {
  return { work: isClose(found) ? 1e7 : 1e8 };
}

/** Whether an answer is proven nearly as well as large tables could prove it. */
export function isClose({ cost, bound }: CostSolution): boolean {
  return cost - bound <= CLOSE * cost;
}

/**
 * Solves a problem; the best of the costs and the best of the bounds that were found.
 * @throws RangeError where every assignment is forbidden
 */
export function cheapest(
  problem: CostProblem,
  algebra: TableAlgebra,
  small: EliminationLimits = SMALL,
  large: EliminationLimits | null = LARGE,
): CostSolution {
  const found = eliminate(problem, algebra, small);
  if (found.bound === found.cost) return found;
  const { states, cost, bound } = solve({ ...problem, uses: [], limit: Infinity }, effortFor(found), null);
  const better = states ? best(found, { states, cost, bound }) : { ...found, bound: Math.max(found.bound, bound) };
  if (isClose(better) || !large) return better;
  return best(better, eliminate(problem, new TableAlgebra(), large));
}

/**
 * The cheapest assignment of a group graph under prices of which it uses none that are only bounds: those that an optimum
 * uses are made exact, and it is solved again. What elimination leaves open is only looked at when its own answer stands.
 */
export function settled(groups: Pick<GroupGraph, 'problem' | 'refine'>, algebra = new TableAlgebra()): CostSolution {
  for (;;) {
    let eliminated = eliminate(groups.problem(), algebra, SMALL);
    while (groups.refine(eliminated.states)) eliminated = eliminate(groups.problem(), algebra, SMALL);
    if (eliminated.bound === eliminated.cost) return eliminated;
    const found = cheapest(groups.problem(), algebra);
    if (!groups.refine(found.states)) return found;
  }
}

/** The better of two answers, and of what they prove. */
export function best(one: CostSolution, other: CostSolution): CostSolution {
  const { states, cost } = other.cost < one.cost ? other : one;
  return { states, cost, bound: Math.max(one.bound, other.bound) };
}
