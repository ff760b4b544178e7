/**
 * @file The solver's one entry: `solve(problem, effort)`.
 *
 *     elimination      exact while its tables stay small; where memory does not matter
 *     bounded search   on a thread of its own (bounds/): reduction, bounds, local search, branches, integer programs
 *     elimination      over large tables, where that leaves a gap
 *
 * Layered networks are eliminated in small tables. Where every layer reads all layers before it (DenseNet), tables grow with the
 * depth, and reduction and messages leave next to nothing. Each stage begins where the one before has left something
 * open.
 */
import type { SearchEffort } from './bounds/bounded-search.js';
import type { IntegerSolver } from './bounds/integer-solvers.js';
import { solveApart } from './bounds/solve-apart.js';
import { type Deadline, OutOfTime } from './deadline.js';
import { eliminate, eliminateInTurns } from './elimination/elimination.js';
import type { EliminationLimits } from './elimination/elimination-record.js';
import { leastTableDoublings } from './elimination/least-table.js';
import { TableAlgebra } from './elimination/table-algebra.js';
import type { Answer, CostProblem, CostSolution, LimitedProblem } from './problem.js';

export { loadSolver } from './bounds/integer-solvers.js';
export type { EliminationLimits } from './elimination/elimination-record.js';
export { TableAlgebra } from './elimination/table-algebra.js';

/** How far a problem is solved. Without seconds and a deadline, equal problems have equal answers. */
export interface Effort extends SearchEffort {
  /** Tables up to which elimination goes first, where memory does not matter; null for none, SMALL where left out. */
  readonly tables?: EliminationLimits | null;
  /** An answer to continue from: its elimination has left a gap. */
  readonly known?: CostSolution;
  /** The solver of integer programs; none if left out. */
  readonly programs?: IntegerSolver['name'] | 'none';
  /** Whether another thread looks for better assignments meanwhile: with a limit in seconds alone. */
  readonly accompanied?: boolean;
  /** Results for earlier problems of the same tables, which are not computed again. */
  readonly algebra?: TableAlgebra;
  /**
   * The user's limit and interruption: both end the bounded search with its best answer so far; until then it works as without.
   */
  readonly deadline?: Deadline;
  readonly better?: (answer: Answer) => void;
}

/** An answer, and the method that found it. */
export type Solved<Known extends Answer = Answer> = Known & { readonly by: 'elimination' | 'bounds' };

/** Tables up to which elimination goes before anything else. */
const SMALL: EliminationLimits = { tableEntries: 30_000, tableWork: 3_000_000 };
/** After it, and where nothing else is tried: some seconds in all. */
export const LARGE: EliminationLimits = { tableEntries: 4_000_000, tableWork: 400_000_000, allWork: 500_000_000 };
/** A gap, as a share of the cost, below which no large tables are made: they take ten times as long as all else. */
const CLOSE = 1e-3;
/** Share of the effort that is spent on a small gap: enough where the search proves the optimum at once. */
const OF_CLOSE = 0.1;
/** Looks at each table that the bounded search takes to raise a bound as far as it goes, at the least. */
const PASSES = 50;
/** Table entries from which on rounds of elimination take seconds. */
const MANY_ENTRIES = 200_000;

/**
 * Solves a problem as far as the effort goes; an effort whose `work` is 0 is elimination alone. The best of the costs and the
 * best of the bounds that were found.
 * @throws NoAssignment where every assignment is forbidden, or takes more than the limit; OutOfTime, or the interruption's
 * reason, where an elimination ends by the deadline before there is an answer
 */
export function solve(problem: LimitedProblem, effort: Effort): Promise<Solved>;
export function solve(
  problem: CostProblem,
  effort: Effort & { readonly tables?: EliminationLimits },
): Promise<Solved<CostSolution>>;
export function solve(problem: CostProblem, effort: Effort): Promise<Solved>;
export async function solve(problem: LimitedProblem | CostProblem, effort: Effort): Promise<Solved> {
  const limited: LimitedProblem = 'limit' in problem ? problem : { ...problem, uses: [], limit: Infinity };
  const { tables = SMALL, known } = effort;
  if (limited.limit < Infinity || (tables === null && !known))
    return { ...(await searched(limited, effort, effort.work)), by: 'bounds' };
  const { algebra = new TableAlgebra(), deadline } = effort;
  const found = known ?? (await eliminated(problem, algebra, tables ?? SMALL, deadline));
  const work = isClose(found) ? OF_CLOSE * effort.work : effort.work;
  // Where a gap is small, and the problem so large that its effort is over at once, nothing is gained.
  const isVain = isClose(found) && PASSES * entriesOf(problem) > work;
  if (found.bound === found.cost || work === 0 || isVain) return { ...found, by: 'elimination' };
  const other = await searched(limited, effort, work);
  if (!other.states) return { ...found, bound: Math.max(found.bound, other.bound), by: 'elimination' };
  const better = { ...best(found, other as CostSolution), by: 'bounds' } as const;
  if (isClose(better) || deadline?.signal?.aborted) return better;
  try {
    return { ...best(better, await eliminated(problem, new TableAlgebra(), LARGE, deadline)), by: 'bounds' };
  } catch (error) {
    if (!(error instanceof OutOfTime)) throw error;
    return better;
  }
}

/**
 * Whether a problem is large, and so dense that some table is split in whatever order it is eliminated: elimination in much
 * smaller tables estimates the answer in a tenth of the time.
 */
export function isLaborious(problem: CostProblem): boolean {
  return entriesOf(problem) > MANY_ENTRIES && 2 ** leastTableDoublings(problem) > SMALL.tableEntries;
}

function eliminated(
  problem: CostProblem,
  algebra: TableAlgebra,
  limits: EliminationLimits,
  deadline: Deadline | undefined,
): CostSolution | Promise<CostSolution> {
  return deadline ? eliminateInTurns(problem, algebra, limits, deadline) : eliminate(problem, algebra, limits);
}

async function searched(problem: LimitedProblem, effort: Effort, work: number): Promise<Answer> {
  const { seconds, any, programs = 'none', accompanied, deadline, better } = effort;
  const own = { work, ...(seconds === undefined ? {} : { seconds }), ...(any === undefined ? {} : { any }) };
  const task = { problem, effort: own, solver: programs, ...(accompanied ? { accompanied } : {}) };
  const answer = await solveApart(deadline ? { ...task, within: deadline.left() } : task, {
    ...(deadline?.signal ? { signal: deadline.signal } : {}),
    ...(better ? { better } : {}),
  });
  return { ...answer, bound: Math.max(0, answer.bound) };
}

function entriesOf({ factors }: CostProblem): number {
  return factors.reduce((sum, { table }) => sum + table.values.length, 0);
}

/** Whether an answer is proven nearly as well as large tables could prove it. */
function isClose({ cost, bound }: Answer): boolean {
  return cost - bound <= CLOSE * cost;
}

/** The better of two answers, and the better of their bounds. */
function best(one: CostSolution, other: CostSolution): CostSolution {
  const { states, cost } = other.cost < one.cost ? other : one;
  return { states, cost, bound: Math.max(one.bound, other.bound) };
}
