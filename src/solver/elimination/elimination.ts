/**
 * @file Exact elimination (dynamic programming over a tree decomposition).
 *
 *     cost(x) = Σ f(x_i, x_j, …)        min over x_v of the tables that hold v is a table over v's neighbours
 *
 * 1. States that another state dominates are dropped.
 * 2. The variable whose removal joins the fewest neighbours (min-fill; then the smallest table; then the smaller number)
 *    is minimised out. Step 1 is repeated for the neighbours, whose tables grew.
 * 3. In reverse order each variable takes its best state given its neighbours' (back-substitution; ties: first state).
 *
 * Each step is exact, so the answer is the optimum. Where a table would pass the limit, the tables that hold the variable
 * are minimised in several parts instead (mini-buckets: Dechter and Rish 2003): the sum of the parts' minima is at most
 * the minimum of the sum, so the constant that remains is a lower bound; descent then improves the states found, and
 * the gap between the two is reported.
 */
import type { Deadline } from '../deadline.js';
import type { CostProblem, CostSolution } from '../problem.js';
import { type ComparedTable, Margins } from './dominance.js';
import { EliminationOrder } from './elimination-order.js';
import {
  type EliminatedVariable,
  type EliminationLimits,
  type EliminationRecord,
  fitsLimits,
  StateLists,
  solutionOf,
  solvedAgain,
} from './elimination-record.js';
import { inOrder } from './in-order.js';
import { TableAlgebra, type TableOperand, type TableTerm } from './table-algebra.js';

const DEFAULT_LIMITS: EliminationLimits = { tableEntries: 4_000_000, tableWork: 400_000_000 };

/** Additions for a table that are always spent. */
const SMALLEST_WORK = 100_000;

/** Above this much work, looking for dominated states costs more than it saves. */
const DOMINANCE_WORK = 30_000_000;

/**
 * Solves a problem. Problems that share tables may share an `algebra`: work done for one is not done again.
 * @throws NoAssignment where every assignment is forbidden, or tables were split and descent found none that is allowed
 */
export function eliminate(
  problem: CostProblem,
  algebra: TableAlgebra = new TableAlgebra(),
  limits: EliminationLimits = DEFAULT_LIMITS,
): CostSolution {
  const steps = eliminating(problem, algebra, limits);
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/**
 * The same, with a look at the clock before each table, and a pause between two variables where one is due.
 * @throws the errors of the deadline's pause
 */
export async function eliminateInTurns(
  problem: CostProblem,
  algebra: TableAlgebra,
  limits: EliminationLimits,
  deadline: Deadline,
): Promise<CostSolution> {
  const steps = eliminating(problem, algebra, limits, () => deadline.check());
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
    if (deadline.isTurn()) await deadline.pause();
  }
}

/** Ends a step after each variable. */
function* eliminating(
  problem: CostProblem,
  algebra: TableAlgebra,
  limits: EliminationLimits,
  check: () => void = () => {},
): Generator<void, CostSolution, void> {
  const known = algebra.again?.(problem);
  if (known) return known;
  algebra.begin();
  const elimination = new Elimination(problem, algebra, limits, check);
  yield* elimination.steps();
  algebra.again = (next) => solvedAgain(next, problem, elimination.record, algebra, limits);
  return solutionOf(problem, elimination.record, algebra);
}

/** A factor as elimination holds it. */
interface FactorTerm {
  readonly variables: readonly number[];
  readonly term: TableTerm;
}

/**
 * A variable with more tables than this (a mask that every layer reads) is not looked at again for dominated states each
 * time that one of its neighbours leaves, but when half of its tables are gone: else the work would grow as the square.
 */
const CROWDED = 64;

/** A variable with this many tables keeps the margins between its states while its tables come and go. */
const MANY = 6;

class Elimination {
  readonly record: EliminationRecord;
  private readonly factorsOf: Set<FactorTerm>[];
  private readonly order: EliminationOrder;
  /** For crowded variables: the number of tables down to which there is nothing to look at. */
  private readonly dueAt = new Map<number, number>();
  /** Margins of variables with many tables that have been searched for dominated states. */
  private readonly margins: (Margins | undefined)[] = [];
  private readonly states: StateLists;
  /** The list of states that each variable has left. */
  private readonly lists: number[];
  private readonly sizes: number[];
  private readonly buckets: EliminatedVariable[] = [];
  private readonly constants: TableTerm[] = [];
  /** Additions so far. */
  private work = 0;

  constructor(
    problem: CostProblem,
    private readonly algebra: TableAlgebra,
    private readonly limits: EliminationLimits,
    private readonly check: () => void,
  ) {
    this.states = new StateLists();
    this.lists = problem.sizes.map((size) => this.states.all(size));
    this.sizes = [...problem.sizes];
    this.factorsOf = problem.sizes.map(() => new Set());
    const given = problem.factors.map(({ table }) => algebra.term(table));
    problem.factors.forEach(({ variables }, index) => {
      this.addFactor(variables, given[index] as TableTerm);
    });
    this.order = new EliminationOrder(problem, (variable) => this.sizeOf(variable));
    const { buckets, constants, states, lists } = this;
    this.record = { given, buckets, constants, states, lists };
  }

  *steps(): Generator<void, void, void> {
    this.prune(this.lists.map((_, variable) => variable));
    yield;
    for (let variable = this.order.next(); variable !== undefined; variable = this.order.next()) {
      this.remove(variable);
      yield;
    }
  }

  private sizeOf(variable: number): number {
    return this.sizes[variable] ?? 1;
  }

  private addFactor(variables: readonly number[], term: TableTerm): void {
    if (variables.length === 0) {
      this.constants.push(term);
      return;
    }
    const held: FactorTerm = { variables, term };
    for (const variable of variables) this.hold(variable, held);
  }

  private hold(variable: number, held: FactorTerm): void {
    this.factorsOf[variable]?.add(held);
    this.margins[variable]?.add(this.comparedIn(variable, held));
  }

  private release(variable: number, held: FactorTerm): void {
    this.factorsOf[variable]?.delete(held);
    this.margins[variable]?.remove(this.comparedIn(variable, held));
  }

  private comparedIn(variable: number, { term, variables }: FactorTerm): ComparedTable {
    return this.algebra.toCompare(term, variables.indexOf(variable));
  }

  private remove(variable: number): void {
    const factors = [...(this.factorsOf[variable] ?? [])];
    this.margins[variable] = undefined;
    this.buckets.push({
      variable,
      list: this.lists[variable] as number,
      factors: factors.map(({ variables, term }) => ({
        variables,
        term,
        lists: variables.map((other) => this.lists[other] as number),
      })),
    });
    const scope = new Set<number>();
    for (const factor of factors) {
      for (const other of factor.variables) {
        this.release(other, factor);
        scope.add(other);
      }
    }
    scope.delete(variable);
    if (this.fits(variable, scope)) this.minimise(variable, factors, scope);
    else
      for (const part of this.levelled(variable, this.parts(variable, factors)))
        this.minimise(variable, part, scopeOf(variable, part));
    this.order.removed(variable);
    this.prune([...scope]);
  }

  /** Whether the table that minimising `variable` out leaves over its neighbours is small enough. */
  private fits(variable: number, neighbours: Iterable<number>): boolean {
    const sizes = [variable, ...neighbours].map((other) => this.sizeOf(other));
    // Once all work is spent, tables stay small.
    const { tableWork, allWork = Infinity } = this.limits;
    const left = Math.max(SMALLEST_WORK, allWork - this.work);
    return fitsLimits(sizes, { ...this.limits, tableWork: Math.min(tableWork, left) });
  }

  /** As few groups of factors as first-fit gives, whose tables are small enough. */
  private parts(variable: number, factors: readonly FactorTerm[]): readonly (readonly FactorTerm[])[] {
    const groups: { readonly factors: FactorTerm[]; readonly scope: Set<number> }[] = [];
    const entries = (factor: FactorTerm) => this.algebra.table(factor.term).values.length;
    for (const factor of [...factors].sort((a, b) => entries(b) - entries(a))) {
      const group = groups.find(({ scope }) =>
        this.fits(variable, new Set([...scope, ...scopeOf(variable, [factor])])),
      );
      if (!group) groups.push({ factors: [factor], scope: scopeOf(variable, [factor]) });
      else {
        group.factors.push(factor);
        for (const other of scopeOf(variable, [factor])) group.scope.add(other);
      }
    }
    return groups.map((group) => group.factors);
  }

  /**
   * Evens out the costs of parts of a sum over the variables that they share. Each part gets a table that makes its least
   * costs, by states of these variables, equal to those of the others. These tables sum to zero, so the sum of the parts stays
   * the same, and the sum of their minima is nearer to the minimum of the sum (max-marginal matching: Ihler, Flerova, Dechter
   * and Otten, UAI 2012).
   */
  private levelled(variable: number, parts: readonly (readonly FactorTerm[])[]): readonly (readonly FactorTerm[])[] {
    const [first, ...others] = parts;
    if (!first || others.length === 0) return parts;
    const scopes = others.map((part) => scopeOf(variable, part));
    const shared = [variable, ...scopeOf(variable, first)]
      .filter((other) => other === variable || scopes.every((scope) => scope.has(other)))
      .sort((a, b) => a - b);
    const marginals = parts.map((part) => this.marginal(part, shared));
    return parts.map((part, index) => [...part, { variables: shared, term: this.algebra.level(marginals, index) }]);
  }

  /** Tables over some variables, whose sum is the least that factors cost by their states. */
  private marginal(factors: readonly FactorTerm[], shared: readonly number[]): readonly TableOperand[] {
    let left = factors;
    for (const other of scopeOf(-1, factors)) {
      if (shared.includes(other)) continue;
      const holding = left.filter(({ variables }) => variables.includes(other));
      const rest = [...scopeOf(other, holding)].sort((a, b) => a - b);
      const least = { variables: rest, term: this.minimised(operandsOf(holding, [other, ...rest])) };
      left = [...left.filter((factor) => !holding.includes(factor)), least];
    }
    return operandsOf(left, shared);
  }

  private minimise(variable: number, factors: readonly FactorTerm[], scope: ReadonlySet<number>): void {
    if (factors.length === 0) return;
    const neighbours = [...scope].sort((a, b) => a - b);
    this.work += neighbours.reduce((product, other) => product * this.sizeOf(other), this.sizeOf(variable));
    this.addFactor(neighbours, this.minimised(operandsOf(factors, [variable, ...neighbours])));
  }

  private minimised(operands: readonly TableOperand[]): TableTerm {
    this.check();
    return this.algebra.eliminate(operands);
  }

  /** Drops dominated states of the variables listed, and of their neighbours as long as something changes. */
  private prune(variables: readonly number[]): void {
    const queue = [...variables];
    const waiting = new Set(queue);
    for (let head = 0; head < queue.length; head++) {
      const variable = queue[head] as number;
      waiting.delete(variable);
      for (const neighbour of this.dropDominated(variable)) {
        if (waiting.has(neighbour)) continue;
        waiting.add(neighbour);
        queue.push(neighbour);
      }
    }
  }

  /** Returns the neighbours to look at again: those of a variable that lost states. */
  private dropDominated(variable: number): Iterable<number> {
    const size = this.sizeOf(variable);
    const held = this.factorsOf[variable];
    if (!held || size === 1 || held.size === 0 || !this.isDue(variable, held.size)) return [];
    if (held.size >= MANY && this.marginsOf(variable, held).showNone()) return [];
    const factors = inOrder(held, termOf);
    let entries = 0;
    for (const factor of factors) entries += this.algebra.table(factor.term).values.length;
    if (size * entries > DOMINANCE_WORK) return [];
    const kept = this.algebra.undominated(
      factors.map(({ term, variables }) => ({ term, position: variables.indexOf(variable) })),
    );
    if (kept.states.length === size) return [];
    this.lists[variable] = this.states.keeping(this.lists[variable] as number, kept.comparison);
    this.sizes[variable] = kept.states.length;
    this.margins[variable] = undefined;
    // In the order in which they came: scopes follow from it, and with them the order of the next steps.
    for (const factor of [...held]) {
      const term = this.algebra.restrict(factor.term, factor.variables.indexOf(variable), kept);
      const smaller: FactorTerm = { variables: factor.variables, term };
      for (const other of factor.variables) {
        this.release(other, factor);
        this.hold(other, smaller);
      }
    }
    this.order.touched(variable);
    return scopeOf(variable, held);
  }

  private marginsOf(variable: number, held: Iterable<FactorTerm>): Margins {
    const known = this.margins[variable];
    if (known) return known;
    const margins = new Margins(this.sizeOf(variable));
    for (const factor of held) margins.add(this.comparedIn(variable, factor));
    this.margins[variable] = margins;
    return margins;
  }

  private isDue(variable: number, tables: number): boolean {
    if (tables <= CROWDED) return true;
    if (tables > (this.dueAt.get(variable) ?? Infinity)) return false;
    this.dueAt.set(variable, tables / 2);
    return true;
  }
}

/** Factors by the places of their variables in a list. */
function operandsOf(factors: readonly FactorTerm[], variables: readonly number[]): readonly TableOperand[] {
  const locals = new Map(variables.map((variable, index) => [variable, index]));
  return inOrder(factors, termOf).map(({ term, variables: own }) => ({
    term,
    variables: own.map((variable) => locals.get(variable) ?? 0),
  }));
}

function termOf({ term }: FactorTerm): TableTerm {
  return term;
}

/** The neighbours of a variable in some factors, in order of appearance. */
function scopeOf(variable: number, factors: Iterable<FactorTerm>): Set<number> {
  const scope = new Set<number>();
  for (const factor of factors) for (const other of factor.variables) scope.add(other);
  scope.delete(variable);
  return scope;
}
