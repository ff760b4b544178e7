/**
 * @file Prices of resharding for the search: a lower bound for every pair of layouts, the exact price for those that an optimum
 * would use.
 *
 * Exact prices are shortest paths and there are many pairs, of which an optimum uses few. So tables start from bounds;
 * whenever the optimum under the present tables uses a pair that is not exact yet, it is priced, and the problem solved
 * again. When everything it uses is exact, its cost is real and no assignment is cheaper: all other table entries are lower
 * bounds on their prices.
 */

import { madeOnce } from '../ir/remembered.js';
import { type Layout, layoutKey } from '../sharding-propagation/layout.js';
import type { LeastCost, Resharder } from '../sharding-propagation/resharding.js';
import type { CostTable } from '../solver/problem.js';

/** A pair of layouts of one type of tensor. */
export interface LayoutPair {
  readonly from: Layout;
  readonly to: Layout;
  readonly shape: readonly number[];
  readonly bits: number;
  cost: number;
  exact: boolean;
}

/** One end of an edge: distinct layouts, and the number of the layout that each state of a variable means. */
export interface LayoutStates {
  readonly layouts: readonly Layout[];
  readonly numbers: readonly number[];
}

/** The table of one kind of edge, as far as it is known. */
export class EdgeTable {
  private current: CostTable | undefined;
  private free: boolean | undefined;

  constructor(
    private readonly from: LayoutStates,
    private readonly to: LayoutStates,
    /** Row-major over the distinct layouts. */
    private readonly pairs: readonly LayoutPair[],
    /** How often a step reshards. */
    private readonly runs: number,
  ) {}

  table(): CostTable {
    this.current ??= this.build();
    return this.current;
  }

  /** Whether all its entries are 0. */
  isFree(): boolean {
    this.free ??= this.pairs.every((pair) => pair.cost === 0);
    return this.free;
  }

  pairAt(fromState: number, toState: number): LayoutPair {
    const [row, column] = [this.from.numbers[fromState] as number, this.to.numbers[toState] as number];
    return this.pairs[row * this.to.layouts.length + column] as LayoutPair;
  }

  /** Adds, to the costs of the `size` states of one end, their costs beside a state of the other end. */
  addCosts(costs: Float64Array, size: number, isFrom: boolean, other: number): void {
    const { numbers } = isFrom ? this.from : this.to;
    const width = this.to.layouts.length;
    const fixed = (isFrom ? this.to : this.from).numbers[other] as number;
    for (let state = 0; state < size; state++) {
      const own = numbers[state] as number;
      const pair = this.pairs[isFrom ? own * width + fixed : fixed * width + own] as LayoutPair;
      costs[state] = (costs[state] as number) + this.runs * pair.cost;
    }
  }

  /**
   * Pairs that an optimum might use in place of a pair that turned out dearer: of the pairs that share one of its ends and have a
   * bound below its price, the few with the lowest bounds.
   */
  rivals(pair: LayoutPair): readonly LayoutPair[] {
    const width = this.to.layouts.length;
    const place = this.pairs.indexOf(pair);
    const [row, column] = [Math.floor(place / width), place % width];
    return [
      ...cheaper(pair, this.pairs.slice(row * width, (row + 1) * width)),
      ...cheaper(
        pair,
        this.from.layouts.map((_, other) => this.pairs[other * width + column] as LayoutPair),
      ),
    ];
  }

  /** Forgets the table where one of its pairs was priced anew. */
  refresh(changed: ReadonlySet<LayoutPair>): void {
    if (!this.pairs.some((pair) => changed.has(pair))) return;
    this.current = undefined;
    this.free = undefined;
  }

  private build(): CostTable {
    const sizes = [this.from.numbers.length, this.to.numbers.length] as const;
    const values = new Float64Array(sizes[0] * sizes[1]);
    for (let row = 0; row < sizes[0]; row++) {
      for (let column = 0; column < sizes[1]; column++)
        values[row * sizes[1] + column] = this.runs * this.pairAt(row, column).cost;
    }
    return { sizes, values };
  }
}

/** Pairs at a row or column that are priced with one that was used. More would make for fewer rounds, each dearer. */
const RIVALS = 8;

function cheaper(pair: LayoutPair, others: readonly LayoutPair[]): readonly LayoutPair[] {
  return others
    .filter((other) => !other.exact && other.cost < pair.cost)
    .sort((a, b) => a.cost - b.cost)
    .slice(0, RIVALS);
}

/** All pairs of one search. */
export class EdgeCosts {
  private readonly pairs = new Map<string, LayoutPair>();

  constructor(
    private readonly resharder: Resharder,
    private readonly bound: LeastCost,
  ) {}

  edgeTable(from: LayoutStates, to: LayoutStates, shape: readonly number[], bits: number, runs = 1): EdgeTable {
    const pairs = from.layouts.flatMap((a) => to.layouts.map((b) => this.pair(a, b, shape, bits)));
    return new EdgeTable(from, to, pairs, runs);
  }

  /** Prices pairs that are only bounded so far; returns those whose cost rose. */
  price(pairs: Iterable<LayoutPair>): ReadonlySet<LayoutPair> {
    const changed = new Set<LayoutPair>();
    for (const pair of pairs) {
      if (pair.exact) continue;
      const cost = this.resharder.cost(pair.from, pair.to, pair.shape, pair.bits);
      if (cost < pair.cost) {
        throw new Error(
          `${layoutKey(pair.from)} → ${layoutKey(pair.to)} costs ${cost} ns, less than its bound ${pair.cost}`,
        );
      }
      if (cost > pair.cost) changed.add(pair);
      pair.cost = cost;
      pair.exact = true;
    }
    return changed;
  }

  private pair(from: Layout, to: Layout, shape: readonly number[], bits: number): LayoutPair {
    const keys = [layoutKey(from), layoutKey(to)] as const;
    const key = `${keys[0]}>${keys[1]}#${bits}`;
    const exact = keys[0] === keys[1];
    const cost = () => (exact ? 0 : this.bound(from, to, shape, bits));
    return madeOnce(this.pairs, key, () => ({ from, to, shape, bits, cost: cost(), exact }));
  }
}
