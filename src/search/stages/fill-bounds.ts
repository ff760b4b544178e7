/**
 * @file Lower bounds on fill with a price on devices in the place of their number (Lagrange): for a price λ per device
 *
 *     h(k) = least Σ (fill + λ · devices) of stages for layers k…      F(k, d) ≥ h(k) − λ · (devices from d on)
 *
 * whatever the number of stages. It looks at layers only, so it costs next to nothing beside the search over layers and
 * devices, and tells it which states no good cut passes.
 */
import type { StageProblem } from './problem.js';
import type { StageCosts } from './stage-costs.js';

export interface FillBound {
  /** No cut of all layers has less fill. */
  readonly least: number;
  /** No stages for the layers before `layer`, on devices before `position`, have less; and none for those from there on. */
  readonly before: (layer: number, position: number) => number;
  readonly after: (layer: number, position: number) => number;
}

/** Prices around the one whose bound is best, as shares of it: flat ones and steep ones bound short and long rests. */
const PRICES = [0.25, 0.5, 0.7, 0.85, 0.95, 1, 1.05, 1.2, 1.5, 2, 4];
/** Steps of the search for that price. */
const STEPS = 12;

interface Rests {
  /** By layer: least fill + λ · devices of stages for the layers before; and for those from it on. */
  readonly before: Float64Array;
  readonly after: Float64Array;
}

export class FillBounds {
  private readonly width: number;
  private readonly devices: readonly number[];

  /**
   * @param joined least fill that sending adds at each cut
   * @param held fewest micro-batches in flight that any stage holds
   * @param all devices that every cut uses; undefined where devices do not count
   */
  constructor(
    problem: StageProblem,
    private readonly costs: StageCosts,
    private readonly joined: Float64Array,
    private readonly held: number,
    private readonly all: number | undefined,
  ) {
    this.width = costs.layers + 1;
    this.devices = problem.subMeshes.map(({ devices }) => devices);
  }

  /**
   * Bounds for cuts whose pace is within a bound.
   * @param farthest by sub-mesh and layer the last end of a stage within it
   */
  of(bound: number, farthest: readonly Int32Array[]): FillBound {
    const { all } = this;
    if (all === undefined) {
      const { before, after } = this.rests(0, bound, farthest);
      return {
        least: after[0] as number,
        before: (layer) => before[layer] as number,
        after: (layer) => after[layer] as number,
      };
    }
    const best = this.bestPrice(all, bound, farthest);
    const prices = best === 0 ? [0] : PRICES.map((share) => share * best);
    const rests = prices.map((price) => ({ price, ...this.rests(price, bound, farthest) }));
    const largest = (of: (rest: (typeof rests)[number]) => number) =>
      rests.reduce((most, rest) => Math.max(most, of(rest)), 0);
    return {
      least: largest(({ price, after }) => (after[0] as number) - price * all),
      before: (layer, position) => largest(({ price, before }) => (before[layer] as number) - price * position),
      after: (layer, position) => largest(({ price, after }) => (after[layer] as number) - price * (all - position)),
    };
  }

  /** The price at which the cheapest stages use about as many devices as there are: where the bound is best. */
  private bestPrice(all: number, bound: number, farthest: readonly Int32Array[]): number {
    const free = this.rest(0, bound, farthest);
    if (free.devices <= all || free.seconds === Number.POSITIVE_INFINITY) return 0;
    let low = 0;
    let high = Math.max(free.seconds, Number.MIN_VALUE) / all;
    for (let step = 0; step < 60 && this.rest(high, bound, farthest).devices > all; step++) {
      low = high;
      high *= 4;
    }
    for (let step = 0; step < STEPS; step++) {
      const middle = low === 0 ? high / 4 : Math.sqrt(low * high);
      if (this.rest(middle, bound, farthest).devices > all) low = middle;
      else high = middle;
    }
    return high;
  }

  /** What all layers cost at a price, and the devices that this takes. */
  private rest(price: number, bound: number, farthest: readonly Int32Array[]) {
    const used = new Float64Array(this.width);
    const after = this.afterEach(price, bound, farthest, used);
    return { seconds: after[0] as number, devices: used[0] as number };
  }

  private rests(price: number, bound: number, farthest: readonly Int32Array[]): Rests {
    return {
      before: this.beforeEach(price, bound, farthest),
      after: this.afterEach(price, bound, farthest, new Float64Array(this.width)),
    };
  }

  private afterEach(price: number, bound: number, farthest: readonly Int32Array[], used: Float64Array): Float64Array {
    const after = new Float64Array(this.width).fill(Number.POSITIVE_INFINITY);
    after[this.width - 1] = 0;
    for (let first = this.width - 2; first >= 0; first--) {
      for (const [subMesh, devices] of this.devices.entries()) {
        const far = farthest[subMesh]?.[first] as number;
        for (let end = first + 1; end <= far; end++) {
          const seconds = this.own(subMesh, first, end, bound) + price * devices + (after[end] as number);
          if (seconds < (after[first] as number)) {
            after[first] = seconds;
            used[first] = devices + (used[end] as number);
          }
        }
      }
    }
    return after;
  }

  private beforeEach(price: number, bound: number, farthest: readonly Int32Array[]): Float64Array {
    const before = new Float64Array(this.width).fill(Number.POSITIVE_INFINITY);
    before[0] = 0;
    for (let first = 0; first < this.width - 1; first++) {
      for (const [subMesh, devices] of this.devices.entries()) {
        const far = farthest[subMesh]?.[first] as number;
        for (let end = first + 1; end <= far; end++) {
          const seconds = this.own(subMesh, first, end, bound) + price * devices + (before[first] as number);
          if (seconds < (before[end] as number)) before[end] = seconds;
        }
      }
    }
    return before;
  }

  /** Least fill of one stage with what its cut before it adds. */
  private own(subMesh: number, first: number, end: number, bound: number): number {
    const at = first * this.width + end;
    const { pace, fitsUpTo, fill } = this.costs;
    if ((pace[subMesh]?.[at] as number) > bound || (fitsUpTo[subMesh]?.[at] as number) < this.held) {
      return Number.POSITIVE_INFINITY;
    }
    return (fill[subMesh]?.[at] as number) + (first > 0 ? (this.joined[first] as number) : 0);
  }
}
