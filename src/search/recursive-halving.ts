/**
 * @file Recursive programming: the devices are halved, and halved again, and each time every operator chooses the factor along
 * which its work is halved.
 *
 *     for each sub-axis of the mesh, outermost first
 *       for each operator, most expensive first
 *         among the factors that the sub-axis may shard, take that under which the operator and the reshardings to its
 *         neighbours' decisions so far cost least
 *
 * An operator decides first while its neighbours are open, then again when they are not; decisions about earlier sub-axes are
 * final. So the work is linear in operators and in their candidates, and no optimum is proven: this is MindSpore's
 * `recursive_programming` (double recursive programming, Wang et al., Euro-Par 2021), on the candidates and prices of the other
 * modes. Views and inputs make no decision: an operator sees the operators behind them through the least cost of each of their
 * layouts, which is kept up to date while operators decide.
 */
import type { CostFactor, CostProblem } from '../solver/problem.js';

/** A variable that decides: for each of its states, the place of each sub-axis. */
export interface HalvedVariable {
  readonly variable: number;
  /** [state][sub-axis]. */
  readonly places: readonly (readonly string[])[];
}

/** How often every operator decides about one sub-axis. */
const SWEEPS = 3;

/** @returns a state per variable */
export function halve(problem: CostProblem, operators: readonly HalvedVariable[]): readonly number[] {
  return new Halving(problem, operators).run();
}

class Halving {
  /** By variable: the states that are left. */
  private readonly left: (readonly number[])[];
  private readonly own: Float64Array[];
  private readonly pairs: CostFactor[][];
  private readonly decides: ReadonlySet<number>;
  /** By variable that decides nothing: per state, the least cost of each of its neighbours with it. */
  private readonly seen = new Map<number, Float64Array>();

  constructor(
    problem: CostProblem,
    private readonly operators: readonly HalvedVariable[],
  ) {
    this.left = problem.sizes.map((size) => Array.from({ length: size }, (_, state) => state));
    this.own = problem.sizes.map((size) => new Float64Array(size));
    this.pairs = problem.sizes.map(() => []);
    this.decides = new Set(operators.map(({ variable }) => variable));
    for (const factor of problem.factors) {
      const [first] = factor.variables;
      if (factor.variables.length === 1 && first !== undefined) this.charge(first, factor.table.values);
      else for (const variable of factor.variables) this.pairs[variable]?.push(factor);
    }
    for (const [variable, costs] of this.own.entries()) {
      if (this.decides.has(variable)) continue;
      const sum = Float64Array.from(costs);
      for (const pair of this.pairs[variable] ?? []) this.see(sum, pair, variable, 1);
      this.seen.set(variable, sum);
    }
  }

  run(): readonly number[] {
    const mostExpensive = [...this.operators].sort(
      (a, b) => this.weight(b.variable) - this.weight(a.variable) || a.variable - b.variable,
    );
    const levels = Math.max(0, ...this.operators.map(({ places }) => places[0]?.length ?? 0));
    for (let level = 0; level < levels; level++) {
      this.decideAll(mostExpensive, ({ places }, state) => places[state]?.[level] ?? '');
    }
    // The remaining decision is how partial sums go on; then the layouts that readers share.
    this.decideAll(mostExpensive, (_, state) => String(state));
    for (const variable of this.seen.keys()) {
      this.keep(variable, [this.cheapest(variable, this.left[variable] ?? [])]);
    }
    return this.left.map(([state]) => state ?? 0);
  }

  private charge(variable: number, values: Float64Array): void {
    const own = this.own[variable] as Float64Array;
    for (let state = 0; state < own.length; state++) own[state] = (own[state] as number) + (values[state] as number);
  }

  /** Cost of an operator where its work is shared least. */
  private weight(variable: number): number {
    return (this.own[variable] as Float64Array).reduce(
      (most, cost) => (cost === Infinity ? most : Math.max(most, cost)),
      0,
    );
  }

  /** Every operator decides; then again, after all others have. */
  private decideAll(
    operators: readonly HalvedVariable[],
    placeOf: (operator: HalvedVariable, state: number) => string,
  ): void {
    const before = [...this.left];
    for (let sweep = 0; sweep < SWEEPS; sweep++) {
      for (const operator of operators) {
        const { variable } = operator;
        if (sweep > 0) this.keep(variable, before[variable] ?? []);
        this.decide(variable, (state) => placeOf(operator, state));
      }
    }
  }

  /** Keeps those of the remaining states that have the cheapest place. */
  private decide(variable: number, placeOf: (state: number) => string): void {
    const left = this.left[variable] ?? [];
    const [first] = left;
    if (first === undefined || left.every((state) => placeOf(state) === placeOf(first))) return;
    const best = placeOf(this.cheapest(variable, left));
    this.keep(
      variable,
      left.filter((state) => placeOf(state) === best),
    );
  }

  private cheapest(variable: number, states: readonly number[]): number {
    const costs = Float64Array.from(this.own[variable] ?? []);
    for (const pair of this.pairs[variable] ?? []) this.see(costs, pair, variable, 2);
    return states.reduce((best, state) => ((costs[state] as number) < (costs[best] as number) ? state : best));
  }

  private keep(variable: number, states: readonly number[]): void {
    const around = this.decides.has(variable) ? (this.pairs[variable] ?? []) : [];
    this.update(around, variable, -1);
    this.left[variable] = states;
    this.update(around, variable, 1);
  }

  /** Removes a variable's cost from the costs that its undecided neighbours see, or adds it again. */
  private update(around: readonly CostFactor[], variable: number, sign: 1 | -1): void {
    for (const pair of around) {
      const other = otherOf(pair, variable);
      const seen = this.seen.get(other);
      if (seen) this.see(seen, pair, other, 1, sign);
    }
  }

  /**
   * Adds, to the costs by state of one end of a pair, the least cost of the other end with each state.
   * @param hops 2: costs behind an end that decides nothing are included
   */
  private see(costs: Float64Array, pair: CostFactor, at: number, hops: 1 | 2, sign: 1 | -1 = 1): void {
    const other = otherOf(pair, at);
    const behind = hops === 2 ? this.behind(pair, other, at) : null;
    for (let state = 0; state < costs.length; state++) {
      let least = Infinity;
      for (const next of this.left[other] ?? []) {
        least = Math.min(least, this.cost(pair, at, state, next) + (behind ? (behind[next] as number) : 0));
      }
      // A state that goes with no other state stays infinite: it is never put back.
      if (least < Infinity) costs[state] = (costs[state] as number) + sign * least;
      else if (sign > 0 && hops === 2) costs[state] = Infinity;
    }
  }

  /** The costs that an undecided end sees from all variables but the one that asks. */
  private behind(pair: CostFactor, end: number, asking: number): Float64Array | null {
    const seen = this.seen.get(end);
    if (!seen || (this.left[end]?.length ?? 0) === 1) return null;
    const others = Float64Array.from(seen);
    this.see(others, pair, end, 1, -1);
    return asking === end ? null : others;
  }

  private cost({ variables, table }: CostFactor, at: number, state: number, next: number): number {
    const columns = table.sizes[1] as number;
    return table.values[variables[0] === at ? state * columns + next : next * columns + state] as number;
  }
}

function otherOf({ variables }: CostFactor, variable: number): number {
  return (variables[0] === variable ? variables[1] : variables[0]) as number;
}
