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
import { leastTableDoublings } from './least-table.js';
import { solve } from './solver/solve.js';
import { TableAlgebra } from './table-algebra.js';

/** Tables up to which elimination goes before the solver. */
export const SMALL: EliminationLimits = { tableEntries: 30_000, tableWork: 3_000_000 };

/**
 * Tables up to which elimination goes while prices are still bounds, where a problem is too dense for it: what it finds only says
 * which prices to make exact, and in small tables it finds it in a tenth of the time.
 */
export const ROUGH: EliminationLimits = { tableEntries: 512, tableWork: 16_384, growth: 400 };

/** And after it: some seconds in all. */
export const LARGE: EliminationLimits = { tableEntries: 4_000_000, tableWork: 400_000_000, allWork: 2_000_000_000 };

/** A gap, as a share of the cost, below which no large tables are made: they take ten times what all else does. */
const CLOSE = 1e-3;

/** Table entries that the solver may look at: about a second; of a gap that is small, what it takes where it proves at once. */
export function effortFor(found: CostSolution): { readonly work: number } {
  return { work: isClose(found) ? 1e7 : 1e8 };
}

/** Looks at each table that the solver takes to raise a bound as far as it goes, at the least. */
const SOLVER_PASSES = 50;

/** Whether the solver may bring something: not where a gap is small, and the problem so large that its effort is over at once. */
export function isWorthSolving(found: CostSolution, problem: CostProblem): boolean {
  return !isClose(found) || SOLVER_PASSES * entriesOf(problem) <= effortFor(found).work;
}

/** Table entries from which on rounds of elimination take seconds. */
const MANY_ENTRIES = 200_000;

/**
 * Whether a problem is large, and so dense that some table is split in whatever order it is eliminated. Then prices are made
 * exact around a guess before it is solved, and in small tables (ROUGH) before larger ones.
 */
export function isLaborious(problem: CostProblem): boolean {
  return entriesOf(problem) > MANY_ENTRIES && 2 ** leastTableDoublings(problem) > SMALL.tableEntries;
}

function entriesOf({ factors }: CostProblem): number {
  return factors.reduce((sum, { table }) => sum + table.values.length, 0);
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
  if (found.bound === found.cost || !isWorthSolving(found, problem)) return found;
  const { states, cost, bound } = solve({ ...problem, uses: [], limit: Infinity }, effortFor(found), null);
  const better = states ? best(found, { states, cost, bound }) : { ...found, bound: Math.max(found.bound, bound) };
  if (isClose(better) || !large) return better;
  return best(better, eliminate(problem, new TableAlgebra(), large));
}

/**
 * The cheapest assignment of a group graph under prices of which it uses none that are only bounds: those that an optimum
 * uses are made exact, and it is solved again. What elimination leaves open is only looked at when its own answer stands.
 */
export function settled(
  groups: Pick<GroupGraph, 'problem' | 'refine' | 'foresee'>,
  algebra = new TableAlgebra(),
): CostSolution {
  if (isLaborious(groups.problem())) priceRoughly(groups, algebra, ROUGH);
  for (;;) {
    let eliminated = eliminate(groups.problem(), algebra, SMALL);
    while (groups.refine(eliminated.states)) eliminated = eliminate(groups.problem(), algebra, SMALL);
    if (eliminated.bound === eliminated.cost || !isWorthSolving(eliminated, groups.problem())) return eliminated;
    const found = cheapest(groups.problem(), algebra);
    if (!groups.refine(found.states)) return found;
  }
}

/**
 * Makes prices exact around a guess, then around what elimination finds in small tables. What `algebra` has made stays of use.
 */
export function priceRoughly(
  groups: Pick<GroupGraph, 'problem' | 'refine' | 'foresee'>,
  algebra: TableAlgebra,
  limits: EliminationLimits,
): void {
  groups.foresee();
  while (groups.refine(eliminate(groups.problem(), algebra, limits).states));
  // The next elimination has other limits, so it is none that is done again.
  algebra.again = undefined;
}

/** The better of two answers, and of what they prove. */
export function best(one: CostSolution, other: CostSolution): CostSolution {
  const { states, cost } = other.cost < one.cost ? other : one;
  return { states, cost, bound: Math.max(one.bound, other.bound) };
}
