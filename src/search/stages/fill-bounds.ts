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

/** Least that sending adds at each cut: to fill, and to the pace of the stages before and behind it. */
export interface LeastSends {
  readonly fill: Float64Array;
  readonly paceBefore: Float64Array;
  readonly paceBehind: Float64Array;
}

export interface FillBound {
  /** No cut of all layers has less fill. */
  readonly least: number;
  /** At `layer · positions + position`: no stages for the layers before, on the devices before, have less fill. */
  readonly before: Float64Array;
  /** The same for the layers and devices from there on. */
  readonly after: Float64Array;
}

/** Prices around the one whose bound is best, as shares of it: flat ones and steep ones bound short and long rests. */
const PRICES = [0.25, 0.5, 0.7, 0.85, 0.95, 1, 1.05, 1.2, 1.5, 2, 4];
/** Steps of the search for that price. */
const STEPS = 12;

export class FillBounds {
  private readonly width: number;
  private readonly devices: readonly number[];

  /**
   * @param sends least that sending adds at each cut
   * @param positions of devices, and one more
   * @param held fewest micro-batches in flight that any stage holds
   * @param all devices that every cut uses; undefined where devices do not count
   */
  constructor(
    problem: StageProblem,
    private readonly costs: StageCosts,
    private readonly sends: LeastSends,
    private readonly positions: number,
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
    const { all, positions } = this;
    const best = all === undefined ? 0 : this.bestPrice(all, bound, farthest);
    const before = new Float64Array(this.width * positions);
    const after = new Float64Array(this.width * positions);
    let least = 0;
    for (const price of best === 0 ? [0] : PRICES.map((share) => share * best)) {
      const earlier = this.beforeEach(price, bound, farthest);
      const later = this.afterEach(price, bound, farthest, new Float64Array(this.width));
      const paid = price * (positions - 1);
      least = Math.max(least, (later[0] as number) - paid);
      for (let layer = 0; layer < this.width; layer++) {
        const ahead = earlier[layer] as number;
        const behind = (later[layer] as number) - paid;
        for (let position = 0, at = layer * positions; position < positions; position++, at++) {
          const used = price * position;
          if (ahead - used > (before[at] as number)) before[at] = ahead - used;
          if (behind + used > (after[at] as number)) after[at] = behind + used;
        }
      }
    }
    return { least, before, after };
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
    const sent = (this.sends.paceBehind[first] as number) + (this.sends.paceBefore[end] as number);
    if ((pace[subMesh]?.[at] as number) + sent > bound || (fitsUpTo[subMesh]?.[at] as number) < this.held) {
      return Number.POSITIVE_INFINITY;
    }
    return (fill[subMesh]?.[at] as number) + (first > 0 ? (this.sends.fill[first] as number) : 0);
  }
}
