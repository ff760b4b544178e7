/**
 * @file Prices around an assignment: of pairs that an optimum under bounds would move to, once the prices that it uses are exact.
 *
 * Elimination under prices that are mostly bounds finds an optimum that does not hold: the pairs that it uses turn out dearer.
 * Before all is solved again, each variable whose cost rose moves to its best state given its neighbours', the pairs that it
 * then uses are made exact in turn, and so on until all pairs that moves use are exact. A move costs a look at one variable's
 * edges, an elimination one at all of them, and most prices found here are prices that the next elimination would need.
 *
 * The assignment that is reached proves nothing: it only shows which prices are worth computing.
 */
import type { CostFactor } from '../solver/problem.js';
import type { EdgeTable, LayoutPair } from './edge-costs.js';

/** An edge of the group graph. */
export interface PricedEdge {
  readonly variables: readonly [from: number, to: number];
  readonly table: EdgeTable;
}

export class LocalMoves {
  /** By variable: numbers of its edges. */
  private readonly edgesOf: readonly number[][];
  private readonly unariesOf: readonly Float64Array[][];
  /** Costs by state of the current variable. */
  private readonly costs: Float64Array;

  /** @param unaries factors of one variable each */
  constructor(
    private readonly sizes: readonly number[],
    unaries: readonly CostFactor[],
    private readonly edges: readonly PricedEdge[],
  ) {
    this.edgesOf = sizes.map(() => []);
    this.unariesOf = sizes.map(() => []);
    this.costs = new Float64Array(sizes.reduce((most, size) => Math.max(most, size), 1));
    for (const { variables, table } of unaries) this.unariesOf[variables[0] as number]?.push(table.values);
    edges.forEach(({ variables }, edge) => {
      for (const variable of variables) this.edgesOf[variable]?.push(edge);
    });
  }

  /**
   * A first assignment: each variable in turn takes its best state given those before it, then each given all its neighbours, as
   * long as that is cheaper.
   */
  guess(): readonly number[] {
    const states: (number | undefined)[] = [];
    for (const variable of this.sizes.keys()) states[variable] = this.bestState(variable, states);
    const all = states as number[];
    this.descend(all, new Set(this.sizes.keys()));
    return all;
  }

  /**
   * Moves from an assignment some of whose pairs have risen.
   * @param price makes pairs exact; returns those that rose
   * @returns all pairs that rose on the way, `risen` included
   */
  settle(
    start: readonly number[],
    risen: ReadonlySet<LayoutPair>,
    price: (pairs: readonly LayoutPair[]) => ReadonlySet<LayoutPair>,
  ): ReadonlySet<LayoutPair> {
    const states = [...start];
    const all = new Set(risen);
    const pairOf = (edge: number) => this.pairOf(edge, states);
    let waiting = new Set<number>();
    this.edges.forEach(({ variables }, edge) => {
      if (risen.has(pairOf(edge))) for (const variable of variables) waiting.add(variable);
    });
    while (waiting.size > 0) {
      const touched = this.descend(states, waiting);
      const dearer = price([...touched].map(pairOf));
      waiting = new Set();
      for (const edge of touched) {
        const pair = pairOf(edge);
        if (!dearer.has(pair)) continue;
        all.add(pair);
        for (const variable of this.edges[edge]?.variables ?? []) waiting.add(variable);
      }
    }
    return all;
  }

  /** Moves each waiting variable to its best state; its neighbours wait where that changes. Returns edges of those that moved. */
  private descend(states: number[], waiting: Set<number>): ReadonlySet<number> {
    const touched = new Set<number>();
    for (const variable of waiting) {
      waiting.delete(variable);
      const best = this.bestState(variable, states);
      if (best === states[variable]) continue;
      states[variable] = best;
      for (const edge of this.edgesOf[variable] as number[]) {
        touched.add(edge);
        const [from, to] = (this.edges[edge] as PricedEdge).variables;
        waiting.add(from === variable ? to : from);
      }
    }
    return touched;
  }

  /** The present state, unless another is cheaper; then the first of the cheapest. Neighbours without a state do not count. */
  private bestState(variable: number, states: readonly (number | undefined)[]): number {
    const size = this.sizes[variable] as number;
    const { costs } = this;
    costs.fill(0, 0, size);
    for (const values of this.unariesOf[variable] as Float64Array[]) {
      for (let state = 0; state < size; state++) costs[state] = (costs[state] as number) + (values[state] as number);
    }
    for (const edge of this.edgesOf[variable] as number[]) {
      const { variables, table } = this.edges[edge] as PricedEdge;
      const isFrom = variables[0] === variable;
      const other = states[variables[isFrom ? 1 : 0]];
      if (other !== undefined) table.addCosts(costs, size, isFrom, other);
    }
    let best = states[variable] ?? 0;
    for (let state = 0; state < size; state++) if ((costs[state] as number) < (costs[best] as number)) best = state;
    return best;
  }

  private pairOf(edge: number, states: readonly number[]): LayoutPair {
    const { variables, table } = this.edges[edge] as PricedEdge;
    return table.pairAt(states[variables[0]] as number, states[variables[1]] as number);
  }
}
