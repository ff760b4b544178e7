/**
 * @file A bound on a core from an integer program: stated with the memory rows that matter, solved, and solved again with the
 * rows that its answer passes. An answer that keeps all rows is a solution.
 */
import { bindingRows } from './binding-rows.js';
import { type Core, coreCost, rowUsage } from './core.js';
import type { Dual } from './dual.js';
import { columnCount, formulate } from './integer-program.js';
import type { IntegerSolver } from './integer-solvers.js';
import type { SolverLevel } from './level.js';
import type { LocalSearch } from './local-search.js';

/** Table entries that a node of branch and bound counts as, for each column; and the nodes that a program counts as, at least. */
const PER_COLUMN = 50;
const FEWEST_NODES = 20;
/** Table entries that a simplex iteration counts as, for each entry of the program's rows. */
const PER_ITERATION = 10;
/** All memory rows are stated where they have no more entries than these, or so many by column; else those that matter so far. */
const FEW_ENTRIES = 100_000;
const ENTRIES_PER_COLUMN = 4;

/** A core with its dual and the rows of its local search. */
export interface SearchedCore extends Pick<SolverLevel, 'core' | 'constant'> {
  readonly dual: Dual;
  readonly search: Pick<LocalSearch, 'rows'>;
}

/** Limits of an integer program, and callbacks for its results. */
export interface ProgramRun {
  /** The best cost of anything so far. */
  known(): number;
  secondsLeft(): number;
  /** Table entries. */
  workLeft(): number;
  spend(work: number): void;
  isDone(): boolean;
  /** A solution of the core, at its cost in the whole problem. */
  take(states: Int32Array, cost: number): void;
}

/** A lower bound on the cost of any assignment of the core; −Infinity where nothing is learnt. */
export function boundByProgram(
  { core, dual, search, constant }: SearchedCore,
  solver: IntegerSolver,
  run: ProgramRun,
): number {
  const allowed = new Uint8Array(core.unary.length).fill(1);
  let bound = -Infinity;
  const columns = columnCount(core);
  if (columns * PER_COLUMN * FEWEST_NODES > run.workLeft()) return bound;
  const rows = statedRows(core, dual, search, columns);
  // A cost of one is a small part of the open gap, so that the solver's tolerances are, too.
  const room = run.known() < Infinity ? run.known() - constant - dual.best : Math.abs(dual.best + constant);
  const scale = Math.max(1, room / 1e5);
  const cuts: number[][] = [];
  while (!run.isDone() && run.secondsLeft() > 0) {
    const { program, statesOf } = formulate(core, allowed, rows, scale, cuts);
    // The clock is the user's; effort is in nodes, each of which costs some passes over the program.
    const perNode = program.columns.length * PER_COLUMN;
    const nodes = Math.ceil(Math.min(1e7, run.workLeft() / perNode));
    const iterations = run.workLeft() / (PER_ITERATION * program.columns.length);
    const answer = solver.solve(program, { seconds: run.secondsLeft(), nodes, iterations });
    run.spend(perNode * FEWEST_NODES);
    // Less the error that the solver's tolerances allow, by row.
    const proven = (answer.bound - 1e-7 * program.lower.length) * scale + constant;
    if (proven > bound) bound = proven;
    if (!answer.columns) break;
    const states = statesOf(answer.columns);
    const over = worstRows(core, states, rows);
    if (over.length === 0) {
      const cost = coreCost(core, states) + constant;
      if (cost < run.known()) run.take(states, cost);
      break;
    }
    for (const row of over) {
      if (rows.includes(row)) cuts.push(chosen(core, states));
      else rows.push(row);
    }
    if (!answer.isOptimal) break;
  }
  return bound;
}

/** All rows that no other row implies, where they are not too many; else those that have mattered so far. */
function statedRows(core: Core, dual: Dual, search: SearchedCore['search'], columns: number): number[] {
  const binding = bindingRows(core);
  if (binding.entries <= Math.max(FEW_ENTRIES, ENTRIES_PER_COLUMN * columns)) return [...binding.rows];
  const priced = dual.rows.filter((_, index) => (dual.prices[index] as number) > 0);
  return [...new Set([...priced, ...search.rows])];
}

/** The rows that an assignment passes most, a few apart from each other. */
function worstRows(core: Core, states: Int32Array, known: readonly number[]): readonly number[] {
  const usage = rowUsage(core, states);
  const over: number[] = [];
  for (let count = 0; count < 4; count++) {
    let [worst, most] = [-1, 0];
    for (let row = 0; row < usage.length; row++) {
      const more = (usage[row] as number) - (core.capacity[row] as number);
      if (more > most) [worst, most] = [row, more];
    }
    if (worst < 0) break;
    over.push(worst);
    if (known.includes(worst)) break;
    for (let row = Math.max(0, worst - 16); row < Math.min(usage.length, worst + 16); row++) usage[row] = -Infinity;
  }
  return over;
}

/** The states of an assignment that a solver's tolerance let pass, as a set of which not all may be taken. */
function chosen(core: Core, states: Int32Array): number[] {
  return Array.from(states, (state, v) => (core.offsets[v] as number) + state);
}
