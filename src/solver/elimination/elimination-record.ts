/**
 * @file The record of an elimination, from which the best states follow, and by which another problem of the same variables is
 * solved: the search prices what an optimum uses and solves again, dozens of times, with a few tables whose costs rose.
 *
 * The first problem's tables decided the order of variables and the states that are looked at. That is exact for any tables,
 * for every order is, and states are dropped only where the new tables allow it. Only the effort may be greater: where
 * tables would pass the limits, or grow to several times their size, elimination begins anew.
 */
import {
  addCosts,
  type CostProblem,
  type CostSolution,
  type CostTable,
  cheapestState,
  costOf,
  NoAssignment,
} from '../problem.js';
import { descend } from './descent.js';
import type { TableAlgebra, TableTerm } from './table-algebra.js';

/** Limits are counted in work, never in time: equal problems have equal answers. */
export interface EliminationLimits {
  /** Entries of one table. */
  readonly tableEntries: number;
  /** Additions to make one table. */
  readonly tableWork: number;
  /** Additions to make all tables; no limit where it is left out. */
  readonly allWork?: number;
  /** A table that is made again may be so many times larger than allowed; GROWTH where it is left out. */
  readonly growth?: number;
}

/** The data of one eliminated variable that back-substitution needs. */
export interface EliminatedVariable {
  readonly variable: number;
  /** The states that it had left. */
  readonly list: number;
  readonly factors: readonly {
    readonly variables: readonly number[];
    readonly term: TableTerm;
    /** By variable: the states behind the indices of the table. */
    readonly lists: readonly number[];
  }[];
}

export interface EliminationRecord {
  /** By factor of the problem: its table's term. */
  readonly given: readonly TableTerm[];
  /** In the order of elimination. */
  readonly buckets: readonly EliminatedVariable[];
  /** Tables without variables; their sum is the bound. */
  readonly constants: readonly TableTerm[];
  readonly states: StateLists;
  /** The states that each variable had left at the end. */
  readonly lists: readonly number[];
}

/** Lists of states: all of a variable, or those of another list that a comparison kept. Equal ones have equal numbers. */
export class StateLists {
  private readonly lists: { readonly parent: number; readonly number: number }[] = [];
  private readonly known = new Map<string, number>();

  all(size: number): number {
    return this.once(-1, size);
  }

  keeping(list: number, comparison: number): number {
    return this.once(list, comparison);
  }

  /** By list: its states, as numbers of the problem's, ascending. */
  under(algebra: TableAlgebra): readonly (readonly number[])[] {
    const found: (readonly number[])[] = [];
    for (const { parent, number } of this.lists) {
      const of = found[parent];
      found.push(
        of
          ? algebra.remainingBy(number).states.map((state) => of[state] as number)
          : Array.from({ length: number }, (_, state) => state),
      );
    }
    return found;
  }

  private once(parent: number, number: number): number {
    const key = `${parent}.${number}`;
    const known = this.known.get(key);
    if (known !== undefined) return known;
    this.known.set(key, this.lists.length);
    return this.lists.push({ parent, number }) - 1;
  }
}

/** Growth of all tables together at which the order is not worth keeping. */
const GROWTH = 8;

/**
 * The optimum that a record leads to.
 * @throws NoAssignment where every assignment is forbidden, or tables were split and descent found none that is allowed
 */
export function solutionOf(problem: CostProblem, record: EliminationRecord, algebra: TableAlgebra): CostSolution {
  const bound = record.constants.reduce((sum, term) => sum + (algebra.table(term).values[0] as number), 0);
  const states = substituteBack(record, algebra);
  const cost = costOf(problem, states);
  const found = cost === bound ? { states, cost } : descend(problem, states);
  if (bound === Infinity) throw new NoAssignment('every assignment is forbidden');
  if (found.cost === Infinity) throw new NoAssignment('no permitted assignment was found');
  return { ...found, bound };
}

/** Solves a problem by the record of another; null where it differs in more than its tables, or tables grow too large. */
export function solvedAgain(
  problem: CostProblem,
  before: CostProblem,
  record: EliminationRecord,
  algebra: TableAlgebra,
  limits: EliminationLimits,
): CostSolution | null {
  if (!isAlike(problem, before)) return null;
  const wanted = new Map<TableTerm, CostTable>();
  for (const [index, { table }] of problem.factors.entries()) {
    const term = record.given[index] as TableTerm;
    // Factors that shared a table must still do.
    if ((wanted.get(term) ?? table) !== table) return null;
    wanted.set(term, table);
  }
  const changed = new Map([...wanted].filter(([term, table]) => algebra.table(term) !== table));
  const { tableEntries, tableWork, growth = GROWTH } = limits;
  const wider = { tableEntries: growth * tableEntries, tableWork: growth * tableWork };
  const entries = algebra.replace(changed, (sizes) => fitsLimits(sizes, wider));
  if (entries === null || entries > GROWTH * algebra.entriesAtFirst) return null;
  return solutionOf(problem, record, algebra);
}

/** Whether the first of variables of so many states may be minimised out of a sum over all of them. */
export function fitsLimits([first = 1, ...others]: readonly number[], limits: EliminationLimits): boolean {
  let entries = 1;
  for (const size of others) entries *= size;
  return entries <= limits.tableEntries && entries * first <= limits.tableWork;
}

function isAlike(problem: CostProblem, other: CostProblem): boolean {
  return (
    problem.sizes === other.sizes &&
    problem.factors.length === other.factors.length &&
    problem.factors.every(({ variables }, index) => variables === other.factors[index]?.variables)
  );
}

/** In reverse order each variable takes its best state given its neighbours'; ties: the first. */
function substituteBack(
  { buckets, states: stateLists, lists }: EliminationRecord,
  algebra: TableAlgebra,
): readonly number[] {
  const statesOf = stateLists.under(algebra);
  const positions = statesOf.map((states) => {
    const inverse: number[] = [];
    for (const [position, state] of states.entries()) inverse[state] = position;
    return inverse;
  });
  const chosen = lists.map(() => 0);
  const most = statesOf.reduce((largest, states) => Math.max(largest, states.length), 1);
  const costs = new Float64Array(most);
  for (let number = buckets.length - 1; number >= 0; number--) {
    const { variable, list, factors } = buckets[number] as EliminatedVariable;
    const domain = statesOf[list] ?? [0];
    const size = domain.length;
    costs.fill(0, 0, size);
    // Later pruning may only have removed states, so a neighbour's state is in the list of this bucket.
    for (const { variables, term, lists } of factors)
      addCosts(
        costs,
        algebra.table(term),
        variables.indexOf(variable),
        (other) => positions[lists[other] as number]?.[chosen[variables[other] as number] as number] as number,
      );
    chosen[variable] = domain[cheapestState(costs, size)] as number;
  }
  return chosen;
}
