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
import type { CostFactor, CostProblem, CostSolution } from './cost-problem.js';
import { costOf } from './cost-problem.js';
import { descend } from './descent.js';
import { EliminationOrder } from './elimination-order.js';
import { type Operand, product, TableAlgebra } from './table-algebra.js';

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

/** What back-substitution needs of one eliminated variable. */
interface Bucket {
  readonly variable: number;
  readonly factors: readonly CostFactor[];
  /** Original states behind the tables' indices, for each variable of the factors. */
  readonly domains: ReadonlyMap<number, readonly number[]>;
}

class Elimination {
  /** States left of each variable, as numbers of the problem's states. */
  private readonly domains: (readonly number[])[];
  private readonly factorsOf: Set<CostFactor>[];
  private readonly buckets: Bucket[] = [];
  private readonly order: EliminationOrder;
  private bound = 0;

  constructor(
    private readonly problem: CostProblem,
    private readonly algebra: TableAlgebra,
    private readonly limits: EliminationLimits,
  ) {
    this.domains = problem.sizes.map((size) => Array.from({ length: size }, (_, state) => state));
    this.factorsOf = problem.sizes.map(() => new Set());
    for (const factor of problem.factors) this.addFactor(factor);
    this.order = new EliminationOrder(problem, (variable) => this.domains[variable]?.length ?? 1);
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

  private addFactor(factor: CostFactor): void {
    if (factor.variables.length === 0) {
      this.bound += factor.table.values[0] as number;
      return;
    }
    for (const variable of factor.variables) this.factorsOf[variable]?.add(factor);
  }

  private remove(variable: number): void {
    const factors = [...(this.factorsOf[variable] ?? [])];
    const scope = new Set(factors.flatMap((factor) => factor.variables));
    this.buckets.push({
      variable,
      factors,
      domains: new Map([...scope].map((other) => [other, this.domains[other] ?? []])),
    });
    for (const factor of factors) {
      for (const other of factor.variables) this.factorsOf[other]?.delete(factor);
    }
    for (const part of this.parts(variable, factors)) this.addFactor(this.minimised(variable, part));
    scope.delete(variable);
    this.order.removed(variable);
    this.prune([...scope]);
  }

  /** All factors together where their table is small enough, else as few groups as first-fit gives. */
  private parts(variable: number, factors: readonly CostFactor[]): readonly (readonly CostFactor[])[] {
    const fits = (group: readonly CostFactor[]) => {
      const neighbours = new Set(group.flatMap((factor) => factor.variables));
      neighbours.delete(variable);
      const entries = product([...neighbours].map((other) => this.domains[other]?.length ?? 1));
      const states = this.domains[variable]?.length ?? 1;
      return entries <= this.limits.tableEntries && entries * states <= this.limits.tableWork;
    };
    if (factors.length === 0) return [];
    if (fits(factors)) return [factors];
    const groups: CostFactor[][] = [];
    for (const factor of [...factors].sort((a, b) => b.table.values.length - a.table.values.length)) {
      const group = groups.find((candidate) => fits([...candidate, factor]));
      if (group) group.push(factor);
      else groups.push([factor]);
    }
    return groups;
  }

  private minimised(variable: number, factors: readonly CostFactor[]): CostFactor {
    const neighbours = [...new Set(factors.flatMap((factor) => factor.variables))]
      .filter((other) => other !== variable)
      .sort((a, b) => a - b);
    const locals = new Map([variable, ...neighbours].map((other, index) => [other, index]));
    const sizes = [variable, ...neighbours].map((other) => this.domains[other]?.length ?? 1);
    return { variables: neighbours, table: this.algebra.eliminate(this.operands(factors, locals), sizes) };
  }

  private operands(factors: readonly CostFactor[], locals: ReadonlyMap<number, number>): readonly Operand[] {
    return factors
      .map((factor) => ({
        table: factor.table,
        variables: factor.variables.map((variable) => locals.get(variable) as number),
      }))
      .sort((a, b) => this.algebra.id(a.table) - this.algebra.id(b.table));
  }

  /** Drops dominated states of the variables listed, and of their neighbours as long as something changes. */
  private prune(variables: readonly number[]): void {
    const queue = [...variables];
    const waiting = new Set(queue);
    for (let head = 0; head < queue.length; head++) {
      const variable = queue[head] as number;
      waiting.delete(variable);
      const neighbours = this.dropDominated(variable);
      for (const neighbour of neighbours) {
        if (waiting.has(neighbour)) continue;
        waiting.add(neighbour);
        queue.push(neighbour);
      }
    }
  }

  /** Returns the neighbours to look at again: those of a variable that lost states. */
  private dropDominated(variable: number): readonly number[] {
    const size = this.domains[variable]?.length ?? 1;
    const factors = [...(this.factorsOf[variable] ?? [])];
    if (size === 1 || factors.length === 0) return [];
    const work = size * factors.reduce((sum, factor) => sum + factor.table.values.length, 0);
    if (work > DOMINANCE_WORK) return [];
    const scope = [...new Set(factors.flatMap((factor) => factor.variables))].filter((other) => other !== variable);
    const locals = new Map([variable, ...scope].map((other, index) => [other, index]));
    const kept = this.algebra.undominated(this.operands(factors, locals), size);
    if (kept.length === size) return [];
    this.domains[variable] = kept.map((state) => this.domains[variable]?.[state] as number);
    for (const factor of factors) {
      const position = factor.variables.indexOf(variable);
      const smaller = { variables: factor.variables, table: this.algebra.restrict(factor.table, position, kept) };
      for (const other of factor.variables) {
        this.factorsOf[other]?.delete(factor);
        this.factorsOf[other]?.add(smaller);
      }
    }
    this.order.touched(variable);
    return scope;
  }

  private substituteBack(): readonly number[] {
    const states = new Array<number>(this.problem.sizes.length).fill(0);
    for (const { variable, factors, domains } of [...this.buckets].reverse()) {
      const domain = domains.get(variable) ?? this.domains[variable] ?? [0];
      const costs = new Float64Array(domain.length);
      for (const factor of factors) {
        domain.forEach((_, candidate) => {
          let index = 0;
          factor.variables.forEach((other, position) => {
            // Later pruning may only have removed states, so a neighbour's state is in the domain of this bucket.
            const local = other === variable ? candidate : (domains.get(other) ?? []).indexOf(states[other] as number);
            index = index * (factor.table.sizes[position] as number) + local;
          });
          costs[candidate] = (costs[candidate] as number) + (factor.table.values[index] as number);
        });
      }
      let best = 0;
      costs.forEach((cost, candidate) => {
        if (cost < (costs[best] as number)) best = candidate;
      });
      states[variable] = domain[best] as number;
    }
    return states;
  }
}
