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
 * are minimised in several parts instead (mini-buckets: Dechter and Rish 2003): the sum of the parts' minima is no more
 * than the minimum of the sum, so the constant that remains is a lower bound; the states found are then improved by
 * descent, and the gap between the two is reported.
 */
import type { CostFactor, CostProblem, CostSolution, CostTable } from './cost-problem.js';
import { costOf } from './cost-problem.js';
import { descend } from './descent.js';
import { EliminationOrder } from './elimination-order.js';
import { TableAlgebra } from './table-algebra.js';

/** Limits are counted in work, never in time: equal problems have equal answers. */
export interface EliminationLimits {
  /** Entries of one table. */
  readonly tableEntries: number;
  /** Additions to make one table. */
  readonly tableWork: number;
}

const DEFAULT_LIMITS: EliminationLimits = { tableEntries: 4_000_000, tableWork: 400_000_000 };

/** Above this much work, looking for dominated states costs more than it saves. */
const DOMINANCE_WORK = 30_000_000;

/**
 * Solves a problem. Problems that share tables may share an `algebra`: what was done for one is not done again.
 * @throws RangeError where every assignment is forbidden
 */
export function eliminate(
  problem: CostProblem,
  algebra: TableAlgebra = new TableAlgebra(),
  limits: EliminationLimits = DEFAULT_LIMITS,
): CostSolution {
  return new Elimination(problem, algebra, limits).solve();
}

/** A factor as elimination holds it, with the number that stands for its table in memo keys. */
interface Held extends CostFactor {
  readonly id: number;
}

/** What back-substitution needs of one eliminated variable. */
interface Bucket {
  readonly variable: number;
  readonly factors: readonly Held[];
  /** Original states behind the indices of each factor's table. */
  readonly domains: readonly (readonly (readonly number[])[])[];
}

/**
 * A variable with more tables than this (a mask that every layer reads) is not looked at again for dominated states each
 * time that one of its neighbours leaves, but when half of its tables are gone: else the work would grow as the square.
 */
const CROWDED = 64;

class Elimination {
  /** States left of each variable, as numbers of the problem's states. */
  private readonly domains: (readonly number[])[];
  private readonly factorsOf: Set<Held>[];
  private readonly buckets: Bucket[] = [];
  private readonly order: EliminationOrder;
  /** Of crowded variables: the number of tables down to which there is nothing to look at. */
  private readonly dueAt = new Map<number, number>();
  private bound = 0;

  constructor(
    private readonly problem: CostProblem,
    private readonly algebra: TableAlgebra,
    private readonly limits: EliminationLimits,
  ) {
    const full = new Map<number, readonly number[]>();
    this.domains = problem.sizes.map((size) => {
      const states = full.get(size) ?? Array.from({ length: size }, (_, state) => state);
      full.set(size, states);
      return states;
    });
    this.factorsOf = problem.sizes.map(() => new Set());
    for (const { variables, table } of problem.factors) this.addFactor(variables, table);
    this.order = new EliminationOrder(problem, (variable) => this.sizeOf(variable));
  }

  solve(): CostSolution {
    this.prune(this.problem.sizes.map((_, variable) => variable));
    for (let variable = this.order.next(); variable !== undefined; variable = this.order.next()) this.remove(variable);
    const states = this.substituteBack();
    const cost = costOf(this.problem, states);
    const found = cost === this.bound ? { states, cost } : descend(this.problem, states);
    if (this.bound === Infinity || found.cost === Infinity) throw new RangeError('every assignment is forbidden');
    return { ...found, bound: this.bound };
  }

  private sizeOf(variable: number): number {
    return this.domains[variable]?.length ?? 1;
  }

  private addFactor(variables: readonly number[], table: CostTable): void {
    if (variables.length === 0) {
      this.bound += table.values[0] as number;
      return;
    }
    const held: Held = { variables, table, id: this.algebra.id(table) };
    for (const variable of variables) this.factorsOf[variable]?.add(held);
  }

  private remove(variable: number): void {
    const factors = [...(this.factorsOf[variable] ?? [])];
    this.buckets.push({
      variable,
      factors,
      domains: factors.map((factor) => factor.variables.map((other) => this.domains[other] ?? [])),
    });
    const scope = new Set<number>();
    for (const factor of factors) {
      for (const other of factor.variables) {
        this.factorsOf[other]?.delete(factor);
        scope.add(other);
      }
    }
    scope.delete(variable);
    if (this.fits(variable, scope)) this.minimise(variable, factors, scope);
    else for (const part of this.parts(variable, factors)) this.minimise(variable, part, scopeOf(variable, part));
    this.order.removed(variable);
    this.prune([...scope]);
  }

  /** Whether the table that minimising `variable` out leaves over its neighbours is small enough. */
  private fits(variable: number, neighbours: ReadonlySet<number>): boolean {
    let entries = 1;
    for (const other of neighbours) entries *= this.sizeOf(other);
    return entries <= this.limits.tableEntries && entries * this.sizeOf(variable) <= this.limits.tableWork;
  }

  /** As few groups of factors as first-fit gives, whose tables are small enough. */
  private parts(variable: number, factors: readonly Held[]): readonly (readonly Held[])[] {
    const groups: { readonly factors: Held[]; readonly scope: Set<number> }[] = [];
    for (const factor of [...factors].sort((a, b) => b.table.values.length - a.table.values.length)) {
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

  private minimise(variable: number, factors: readonly Held[], scope: ReadonlySet<number>): void {
    if (factors.length === 0) return;
    const neighbours = [...scope].sort((a, b) => a - b);
    const locals = new Map([variable, ...neighbours].map((other, index) => [other, index]));
    const sizes = [variable, ...neighbours].map((other) => this.sizeOf(other));
    const operands = [...factors]
      .sort((a, b) => a.id - b.id)
      .map(({ id, table, variables }) => ({ id, table, variables: variables.map((other) => locals.get(other) ?? 0) }));
    this.addFactor(neighbours, this.algebra.eliminate(operands, sizes));
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
    const factors = [...held].sort((a, b) => a.id - b.id);
    let entries = 0;
    for (const factor of factors) entries += factor.table.values.length;
    if (size * entries > DOMINANCE_WORK) return [];
    const kept = this.algebra.undominated(
      factors.map(({ id, table, variables }) => ({ id, table, position: variables.indexOf(variable) })),
      size,
    );
    if (kept.states.length === size) return [];
    const domain = this.domains[variable] ?? [];
    this.domains[variable] = kept.states.map((state) => domain[state] as number);
    // In the order in which they came: scopes follow from it, and with them the order of what is looked at next.
    for (const factor of [...held]) {
      const table = this.algebra.restrict(factor, factor.variables.indexOf(variable), kept);
      const smaller: Held = { variables: factor.variables, table, id: this.algebra.id(table) };
      for (const other of factor.variables) {
        this.factorsOf[other]?.delete(factor);
        this.factorsOf[other]?.add(smaller);
      }
    }
    this.order.touched(variable);
    return scopeOf(variable, held);
  }

  private isDue(variable: number, tables: number): boolean {
    if (tables <= CROWDED) return true;
    if (tables > (this.dueAt.get(variable) ?? Infinity)) return false;
    this.dueAt.set(variable, tables / 2);
    return true;
  }

  private substituteBack(): readonly number[] {
    const states = new Array<number>(this.problem.sizes.length).fill(0);
    for (const { variable, factors, domains } of this.buckets.reverse()) {
      const domain = this.domains[variable] ?? [0];
      const costs = new Float64Array(domain.length);
      factors.forEach((factor, number) => {
        // Where the neighbours' states put us in the table, and how far one state of the variable is from the next.
        let [start, stride] = [0, 0];
        factor.variables.forEach((other, position) => {
          const size = factor.table.sizes[position] as number;
          // Later pruning may only have removed states, so a neighbour's state is in the domain of this bucket.
          const local = other === variable ? 0 : (domains[number]?.[position] ?? []).indexOf(states[other] as number);
          start = start * size + local;
          stride = other === variable ? 1 : stride * size;
        });
        for (let state = 0; state < costs.length; state++) {
          costs[state] = (costs[state] as number) + (factor.table.values[start + state * stride] as number);
        }
      });
      let best = 0;
      for (let state = 1; state < costs.length; state++) {
        if ((costs[state] as number) < (costs[best] as number)) best = state;
      }
      states[variable] = domain[best] as number;
    }
    return states;
  }
}

/** The neighbours of a variable in some factors, in order of appearance. */
function scopeOf(variable: number, factors: Iterable<Held>): Set<number> {
  const scope = new Set<number>();
  for (const factor of factors) for (const other of factor.variables) scope.add(other);
  scope.delete(variable);
  return scope;
}
