/**
 * @file A lower bound for cores of any size: memory limits become prices, costs of pair tables are distributed to the variables.
 *
 *     bound = Σ_v min θ_v + Σ_e min θ_e − Σ_r price_r · capacity_r
 *
 * θ_v is the cost of v's states, memory at its price included, plus the costs that its edges have passed to it; θ_e is the
 * cost left on an edge. Any messages and any prices ≥ 0 give a bound. Sweeps forward and backward over the variables improve
 * messages (sequential reweighted message passing: Kolmogorov, IEEE TPAMI 2015; for pairs equal to TRW-S), and none of them
 * lowers the bound. Steps along the averaged excess of memory improve prices (the volume algorithm: Barahona and Anbil 2000),
 * with Polyak's step length. Only rows that some average passes have a price.
 *
 * In floating point the bound errs by no more than the number of terms times the largest, times 2^-53: `safeBound` takes
 * a thousand times that off.
 */
import type { Core } from './core.js';

/** Share of each new point in the averages. */
const AVERAGE = 0.1;
/** Excess, as a share of the limit, from which a row gets a price. */
const EXCESS = 1e-5;
/** Terms of a soft minimum this many temperatures above the least are left out: together below one part in 10^12. */
const COLD = 30;
const MOST_ROWS = 400;
const NEW_ROWS = 4;

export class Dual {
  /** Rows that have a price, and the prices: for the whole limit, so that they are costs. */
  readonly rows: number[] = [];
  readonly prices: number[] = [];
  best = -Infinity;
  /** Table entries looked at so far: the measure of work. */
  work = 0;
  private readonly theta: Float64Array;
  /** Messages of edge e to a's states from toA[e], to b's states from toB[e]. */
  private readonly messages: Float64Array;
  private readonly toA: Int32Array;
  private readonly toB: Int32Array;
  private readonly averages: Float64Array;
  private bestPrices: number[] = [];
  private bestMessages: Float64Array | undefined;
  /** The state that the last sweep favoured for each variable. */
  readonly favoured: Int32Array;
  private temperature = 0;
  private readonly sums: Float64Array;
  private step = 1;
  /** The best bound at the last change of prices. */
  private before = -Infinity;
  private averaged = false;
  private readonly scratch: Float64Array;

  /** @param known prices of rows to begin from, for the whole limit */
  constructor(
    private readonly core: Core,
    private readonly limit: number,
    known: ReadonlyMap<number, number> = new Map(),
  ) {
    const { count, tables, edgeA, edgeB } = core;
    this.theta = new Float64Array(core.unary);
    this.averages = new Float64Array(core.unary.length);
    this.toA = new Int32Array(tables.length);
    this.toB = new Int32Array(tables.length);
    let [length, widest] = [0, 1];
    for (let v = 0; v < count; v++) widest = Math.max(widest, size(core, v));
    for (let e = 0; e < tables.length; e++) {
      this.toA[e] = length;
      length += size(core, edgeA[e] as number);
      this.toB[e] = length;
      length += size(core, edgeB[e] as number);
    }
    this.messages = new Float64Array(length);
    this.scratch = new Float64Array(widest);
    this.sums = new Float64Array(widest);
    this.favoured = new Int32Array(count);
    for (const [row, price] of known) {
      this.rows.push(row);
      this.prices.push(price);
    }
    if (known.size > 0) this.pricedInto(this.theta);
  }

  /** The costs that edge e has passed to each state of its ends. */
  passed(e: number): { readonly toA: Float64Array; readonly toB: Float64Array } {
    const [atA, atB] = [this.toA[e] as number, this.toB[e] as number];
    return {
      toA: this.messages.subarray(atA, atB),
      toB: this.messages.subarray(atB, atB + size(this.core, this.core.edgeB[e] as number)),
    };
  }

  /** Sweeps forth and back; minima are taken softly where `temperature`, a cost, is above 0. Returns the bound. */
  sweep(temperature = 0): number {
    this.temperature = temperature;
    this.pass(true);
    this.pass(false);
    this.averaged = true;
    const bound = this.bound();
    if (bound > this.best) {
      this.best = bound;
      this.bestPrices = [...this.prices];
      this.bestMessages ??= new Float64Array(this.messages.length);
      this.bestMessages.set(this.messages);
    }
    return bound;
  }

  /**
   * Changes the prices after some sweeps, given a cost that is to be reached at most: a step along the average excess, the
   * longer the more it brings; where it brought nothing, back to the best point and half as long.
   */
  reprice(target: number): void {
    if (this.core.rows === 0) return;
    if (this.best > this.before) this.step = Math.min(1.5, this.step * 1.5);
    else {
      this.step /= 2;
      this.restore();
    }
    this.before = this.best;
    const excess = this.excess();
    this.activate(excess);
    let square = 0;
    for (const [index, row] of this.rows.entries()) {
      const more = excess[row] as number;
      if (more > 0 || (this.prices[index] as number) > 0) square += more * more;
    }
    if (square > 0) {
      const length = (this.step * Math.max(target - this.best, Math.abs(target) * 1e-9)) / square;
      this.rows.forEach((row, index) => {
        this.prices[index] = Math.max(0, (this.prices[index] as number) + length * (excess[row] as number));
      });
    }
    this.refresh();
  }

  /** The bound that the present prices and messages prove, in exact terms: rounded down by more than its error. */
  safeBound(): number {
    this.restore();
    this.refresh();
    const bound = this.bound();
    let largest = Math.abs(bound);
    for (const cost of this.theta) if (Math.abs(cost) > largest && cost !== Infinity) largest = Math.abs(cost);
    const terms = this.core.count + this.core.tables.length + this.rows.length;
    return bound - largest * terms * 2 ** -43;
  }

  /**
   * For every state, how much more than `bound()` any assignment with it costs at least: min-marginals of the relaxed
   * problem over the variable and its edges.
   */
  minMarginals(): Float64Array {
    const { core, theta, messages } = this;
    const marginals = new Float64Array(theta);
    for (let v = 0; v < core.count; v++) {
      const [from, to] = [core.offsets[v] as number, core.offsets[v + 1] as number];
      let least = Infinity;
      for (let s = from; s < to; s++) least = Math.min(least, theta[s] as number);
      for (let s = from; s < to; s++) marginals[s] = (theta[s] as number) - least;
    }
    for (let e = 0; e < core.tables.length; e++) {
      const [a, b] = [core.edgeA[e] as number, core.edgeB[e] as number];
      const [na, nb] = [size(core, a), size(core, b)];
      const table = core.tables[e] as Float64Array;
      const rows = new Float64Array(na).fill(Infinity);
      const columns = new Float64Array(nb).fill(Infinity);
      let least = Infinity;
      for (let i = 0, at = 0; i < na; i++) {
        for (let j = 0; j < nb; j++, at++) {
          const kept =
            (table[at] as number) -
            (messages[(this.toA[e] as number) + i] as number) -
            (messages[(this.toB[e] as number) + j] as number);
          if (kept < (rows[i] as number)) rows[i] = kept;
          if (kept < (columns[j] as number)) columns[j] = kept;
          if (kept < least) least = kept;
        }
      }
      const [offA, offB] = [core.offsets[a] as number, core.offsets[b] as number];
      for (let i = 0; i < na; i++) marginals[offA + i] = (marginals[offA + i] as number) + (rows[i] as number) - least;
      for (let j = 0; j < nb; j++)
        marginals[offB + j] = (marginals[offB + j] as number) + (columns[j] as number) - least;
    }
    return marginals;
  }

  /**
   * Splits the states of a variable in two parts such that the relaxed solution is in between. It splits where the price of the
   * memory differs most about its mean, else the most favoured state from the others. Null where all have one state.
   */
  split(): { readonly variable: number; readonly first: Uint8Array } | null {
    const { core, averages } = this;
    const priced = new Float64Array(core.unary.length);
    this.pricedInto(priced);
    let [chosen, most, byMemory] = [-1, 0, false];
    for (let v = 0; v < core.count; v++) {
      const [from, to] = [core.offsets[v] as number, core.offsets[v + 1] as number];
      let [mean, largest] = [0, 0];
      for (let s = from; s < to; s++) {
        mean += (averages[s] as number) * (priced[s] as number);
        largest = Math.max(largest, averages[s] as number);
      }
      let spread = 0;
      for (let s = from; s < to; s++) spread += (averages[s] as number) * Math.abs((priced[s] as number) - mean);
      const isSplit = spread > Math.abs(this.best) * 1e-6;
      if (byMemory && !isSplit) continue;
      const score = isSplit ? spread : to - from > 1 ? 1 - largest + 1e-9 : 0;
      if ((isSplit && !byMemory) || score > most) [chosen, most, byMemory] = [v, score, isSplit];
    }
    if (chosen < 0) return null;
    const [from, to] = [core.offsets[chosen] as number, core.offsets[chosen + 1] as number];
    let mean = 0;
    for (let s = from; s < to; s++) mean += (averages[s] as number) * (priced[s] as number);
    const first = Uint8Array.from({ length: to - from }, (_, s) =>
      byMemory ? Number((priced[from + s] as number) <= mean) : Number(s === this.favoured[chosen]),
    );
    if (!first.includes(0)) first[this.favoured[chosen] as number] = 0;
    return { variable: chosen, first };
  }

  /** The same for every pair of states of an edge, row-major. */
  pairMarginals(e: number): Float64Array {
    const { core, theta, messages } = this;
    const [a, b] = [core.edgeA[e] as number, core.edgeB[e] as number];
    const [na, nb] = [size(core, a), size(core, b)];
    const above = Float64Array.from(core.tables[e] as Float64Array);
    let least = Infinity;
    for (let i = 0, at = 0; i < na; i++) {
      for (let j = 0; j < nb; j++, at++) {
        const kept =
          (above[at] as number) -
          (messages[(this.toA[e] as number) + i] as number) -
          (messages[(this.toB[e] as number) + j] as number);
        above[at] = kept;
        if (kept < least) least = kept;
      }
    }
    const leastOf = (v: number) =>
      theta.subarray(core.offsets[v], core.offsets[v + 1]).reduce((x, y) => Math.min(x, y), Infinity);
    const [leastA, leastB] = [leastOf(a), leastOf(b)];
    for (let i = 0, at = 0; i < na; i++) {
      for (let j = 0; j < nb; j++, at++) {
        above[at] =
          (above[at] as number) -
          least +
          (theta[(core.offsets[a] as number) + i] as number) -
          leastA +
          (theta[(core.offsets[b] as number) + j] as number) -
          leastB;
      }
    }
    return above;
  }

  bound(): number {
    const { core, theta, messages } = this;
    let bound = 0;
    for (let v = 0; v < core.count; v++) {
      let least = Infinity;
      for (let s = core.offsets[v] as number; s < (core.offsets[v + 1] as number); s++)
        if ((theta[s] as number) < least) least = theta[s] as number;
      bound += least;
    }
    for (let e = 0; e < core.tables.length; e++) {
      const [na, nb] = [size(core, core.edgeA[e] as number), size(core, core.edgeB[e] as number)];
      const table = core.tables[e] as Float64Array;
      const [atA, atB] = [this.toA[e] as number, this.toB[e] as number];
      let least = Infinity;
      for (let i = 0, at = 0; i < na; i++) {
        const passed = messages[atA + i] as number;
        for (let j = 0; j < nb; j++, at++) {
          const kept = (table[at] as number) - (messages[atB + j] as number) - passed;
          if (kept < least) least = kept;
        }
      }
      bound += least;
    }
    this.rows.forEach((row, index) => {
      bound -= (this.prices[index] as number) * ((core.capacity[row] as number) / this.limit);
    });
    return bound;
  }

  private pass(forward: boolean): void {
    const { core, theta } = this;
    for (let index = 0; index < core.count; index++) {
      const v = forward ? index : core.count - 1 - index;
      const [from, to] = [core.edgeStarts[v] as number, core.edgeStarts[v + 1] as number];
      let [before, after] = [0, 0];
      for (let at = from; at < to; at++) {
        const e = core.edgesAt[at] as number;
        const isAfter = (core.edgeA[e] as number) === v;
        if (isAfter === forward) after += 1;
        else {
          before += 1;
          this.collect(e, v);
        }
      }
      const share = 1 / Math.max(before, after, 1);
      if (!forward) this.believe(v, share);
      if (after === 0) continue;
      const [first, last] = [core.offsets[v] as number, core.offsets[v + 1] as number];
      for (let at = from; at < to; at++) {
        const e = core.edgesAt[at] as number;
        const own = (core.edgeA[e] as number) === v;
        if (own !== forward) continue;
        const message = own ? (this.toA[e] as number) : (this.toB[e] as number);
        for (let s = first; s < last; s++) {
          this.messages[message + s - first] =
            (this.messages[message + s - first] as number) - share * (theta[s] as number);
        }
      }
      const rest = 1 - share * after;
      for (let s = first; s < last; s++) theta[s] = rest <= 0 ? 0 : (theta[s] as number) * rest;
    }
  }

  /** Notes which states of v the relaxed problem favours, when all edges have passed their costs to v. */
  private believe(v: number, share: number): void {
    const { core, theta, averages } = this;
    const [from, to] = [core.offsets[v] as number, core.offsets[v + 1] as number];
    let best = from;
    for (let s = from + 1; s < to; s++) if ((theta[s] as number) < (theta[best] as number)) best = s;
    this.favoured[v] = best - from;
    const least = theta[best] as number;
    const scale = this.temperature > 0 ? share / this.temperature : 0;
    let sum = 0;
    for (let s = from; s < to; s++) sum += this.weight(s === best, ((theta[s] as number) - least) * scale);
    const part = this.averaged ? AVERAGE : 1;
    for (let s = from; s < to; s++) {
      const now = this.weight(s === best, ((theta[s] as number) - least) * scale) / sum;
      averages[s] = (averages[s] as number) * (1 - part) + part * now;
    }
  }

  private weight(isBest: boolean, above: number): number {
    if (this.temperature <= 0) return isBest ? 1 : 0;
    return above > COLD ? 0 : Math.exp(-above);
  }

  /** Passes all costs of v's states on an edge to v. */
  private collect(e: number, v: number): void {
    const { core, messages, scratch } = this;
    const [na, nb] = [size(core, core.edgeA[e] as number), size(core, core.edgeB[e] as number)];
    const table = core.tables[e] as Float64Array;
    const [atA, atB] = [this.toA[e] as number, this.toB[e] as number];
    this.work += table.length;
    const toA = (core.edgeA[e] as number) === v;
    if (toA) {
      for (let i = 0, at = 0; i < na; i++) {
        let least = Infinity;
        for (let j = 0; j < nb; j++, at++) {
          const kept = (table[at] as number) - (messages[atB + j] as number);
          if (kept < least) least = kept;
        }
        scratch[i] = least;
      }
    } else {
      for (let j = 0; j < nb; j++) scratch[j] = Infinity;
      for (let i = 0, at = 0; i < na; i++) {
        const passed = messages[atA + i] as number;
        for (let j = 0; j < nb; j++, at++) {
          const kept = (table[at] as number) - passed;
          if (kept < (scratch[j] as number)) scratch[j] = kept;
        }
      }
    }
    if (this.temperature > 0) this.soften(table, toA, na, nb, toA ? atB : atA);
    const message = toA ? atA : atB;
    const first = core.offsets[v] as number;
    const states = toA ? na : nb;
    for (let s = 0; s < states; s++) {
      const now = scratch[s] as number;
      this.theta[first + s] = (this.theta[first + s] as number) + now - (messages[message + s] as number);
      messages[message + s] = now;
    }
  }

  /** Turns the minima in `scratch` into soft ones: −t log Σ exp(−x / t). */
  private soften(table: Float64Array, toA: boolean, na: number, nb: number, passed: number): void {
    const { scratch, sums, messages, temperature } = this;
    const scale = 1 / temperature;
    const far = COLD * temperature;
    sums.fill(0, 0, toA ? na : nb);
    for (let i = 0, at = 0; i < na; i++) {
      for (let j = 0; j < nb; j++, at++) {
        const own = toA ? i : j;
        const above = (table[at] as number) - (messages[passed + (toA ? j : i)] as number) - (scratch[own] as number);
        if (above < far) sums[own] = (sums[own] as number) + (above <= 0 ? 1 : Math.exp(-above * scale));
      }
    }
    const count = toA ? na : nb;
    for (let s = 0; s < count; s++) scratch[s] = (scratch[s] as number) - temperature * Math.log(sums[s] as number);
  }

  /** Average bytes by row over the capacity, as shares of the limit. */
  private excess(): Float64Array {
    const { core } = this;
    const live = new Float64Array(core.rows + 1);
    for (let v = 0; v < core.count; v++) {
      const first = core.offsets[v] as number;
      for (let u = core.useStarts[v] as number; u < (core.useStarts[v + 1] as number); u++) {
        const bytes = core.useBytes[u] as Float64Array;
        let mean = 0;
        for (let s = 0; s < bytes.length; s++) mean += (bytes[s] as number) * (this.averages[first + s] as number);
        live[core.useFrom[u] as number] = (live[core.useFrom[u] as number] as number) + mean;
        live[core.useTo[u] as number] = (live[core.useTo[u] as number] as number) - mean;
      }
    }
    let now = 0;
    for (let row = 0; row < core.rows; row++) {
      now += live[row] as number;
      live[row] = (now - (core.capacity[row] as number)) / this.limit;
    }
    return live.subarray(0, core.rows);
  }

  /** Gives the rows of largest excess a price, apart from one another. */
  private activate(excess: Float64Array): void {
    if (this.rows.length >= MOST_ROWS) return;
    const known = new Set(this.rows);
    for (let added = 0; added < NEW_ROWS; added++) {
      let worst = -1;
      for (let row = 0; row < excess.length; row++) {
        if ((excess[row] as number) > (worst < 0 ? EXCESS : (excess[worst] as number)) && !known.has(row)) worst = row;
      }
      if (worst < 0) return;
      // A row next to one that is priced and as full will follow it: only the worst of a hill is taken.
      const hill = [...known].some(
        (row) => Math.abs(row - worst) < 8 && (excess[row] as number) >= 0.5 * (excess[worst] as number),
      );
      known.add(worst);
      if (hill && added > 0) continue;
      this.rows.push(worst);
      this.prices.push(0);
    }
  }

  private restore(): void {
    if (!this.bestMessages) return;
    this.messages.set(this.bestMessages);
    this.prices.forEach((_, index) => {
      this.prices[index] = this.bestPrices[index] ?? 0;
    });
  }

  /** θ from costs, prices and messages. */
  private refresh(): void {
    const { core, theta, messages } = this;
    theta.set(core.unary);
    this.pricedInto(theta);
    for (let e = 0; e < core.tables.length; e++) {
      const [a, b] = [core.edgeA[e] as number, core.edgeB[e] as number];
      const [offA, offB] = [core.offsets[a] as number, core.offsets[b] as number];
      const [na, nb] = [size(core, a), size(core, b)];
      for (let i = 0; i < na; i++)
        theta[offA + i] = (theta[offA + i] as number) + (messages[(this.toA[e] as number) + i] as number);
      for (let j = 0; j < nb; j++)
        theta[offB + j] = (theta[offB + j] as number) + (messages[(this.toB[e] as number) + j] as number);
    }
  }

  /** Adds the price of each state's memory. */
  private pricedInto(costs: Float64Array): void {
    const { core } = this;
    const sums = new Float64Array(core.rows + 1);
    this.rows.forEach((row, index) => {
      sums[row + 1] = (sums[row + 1] as number) + (this.prices[index] as number) / this.limit;
    });
    for (let row = 1; row <= core.rows; row++) sums[row] = (sums[row] as number) + (sums[row - 1] as number);
    for (let v = 0; v < core.count; v++) {
      const first = core.offsets[v] as number;
      for (let u = core.useStarts[v] as number; u < (core.useStarts[v + 1] as number); u++) {
        const price = (sums[core.useTo[u] as number] as number) - (sums[core.useFrom[u] as number] as number);
        if (price <= 0) continue;
        const bytes = core.useBytes[u] as Float64Array;
        for (let s = 0; s < bytes.length; s++)
          costs[first + s] = (costs[first + s] as number) + price * (bytes[s] as number);
      }
    }
  }
}

function size(core: Core, v: number): number {
  return (core.offsets[v + 1] as number) - (core.offsets[v] as number);
}
