/**
 * @file Improvement of an assignment by exact moves of trees, annealed.
 *
 *     tree      a random variable, and neighbours of neighbours as long as they induce a tree
 *     move      the root takes a state drawn by its min-marginal, the rest of the tree its best states given the root and
 *               all that is outside (dynamic programming over the tree, memory at its price)
 *     accepted  by Metropolis' rule on cost + penalty of the memory above the limit
 *
 * Penalties rise while the limit is passed. Memory is looked at in the rows that ever mattered; an assignment that keeps
 * those and would be the best is checked in all rows, and the rows it passes are added.
 */

import { type Generator, generator } from '../generator.js';
import { type Core, coreCost, rowUsage } from './core.js';
import { lowerBound } from './memory-rows.js';

export interface LocalOptimum {
  readonly states: Int32Array;
  /** Without the core's constant. */
  readonly cost: number;
}

/** Rows added at once where an assignment passes many. */
const ROWS_AT_ONCE = 4;

/** Variables in trees between two changes of penalties. */
const PRESS = 640;

/** Visits of each variable between two sums of the cost, and before anything is found. */
const SUMMED = 10;
const SEARCHED = 2;
/** How forbidden pairs become dearer as long as nothing is found: by this factor, up to this cost, far below 2^53. */
const STRICTER = 3;
const DEAREST = 2 ** 45;

/** Cost of a visit of a variable beside its entries, in entries. */
const PER_VARIABLE = 100;

export class LocalSearch {
  best: LocalOptimum | null = null;
  /** Table entries looked at. */
  work = 0;
  /** Rows that ever mattered, sorted; the following arrays are by place in this list. */
  readonly rows: number[] = [];
  private readonly prices: number[] = [];
  private readonly penalties: number[] = [];
  private readonly used: number[] = [];
  /** Sums of the costs of a byte in the rows before each place, times the limit. */
  private readonly charged: number[] = [0];
  /** The places of the rows in which each use of the core takes memory: from, and up to. */
  private readonly placesFrom: Int32Array;
  private readonly placesTo: Int32Array;
  private states: Int32Array;
  private cost: number;
  private readonly random: Generator;
  private readonly placeOf: Int32Array;
  private readonly messages: Float64Array[] = [];
  private readonly choices: Int32Array[] = [];
  /** States that may be taken, by state number. */
  private allowed: Uint8Array;

  /** The core with a price on forbidden pairs, its tables, and the price by edge. */
  private readonly core: Core;
  private readonly tables: Float64Array[];
  private readonly edgePrices: Float64Array;
  /** Variables in trees since the assignment was summed anew. */
  private unsummed = 0;

  constructor(
    private readonly exact: Core,
    private readonly limit: number,
    start: Int32Array,
    seed: number,
  ) {
    const price = usualPrice(exact);
    const made = new Map([...new Set(exact.tables)].map((table) => [table, priced(table, price)]));
    this.tables = exact.tables.map((table) => made.get(table) as Float64Array);
    this.edgePrices = new Float64Array(exact.tables.length).fill(price);
    const core = { ...exact, tables: this.tables };
    this.core = core;
    this.random = generator(seed);
    this.states = Int32Array.from(start);
    this.cost = coreCost(core, this.states);
    this.placeOf = new Int32Array(core.count).fill(-1);
    this.allowed = new Uint8Array(core.unary.length).fill(1);
    this.placesFrom = new Int32Array(core.useBytes.length);
    this.placesTo = new Int32Array(core.useBytes.length);
    this.note();
  }

  /** Prices from the dual, of the whole limit; rows that have none yet are added. */
  price(rows: readonly number[], prices: readonly number[]): void {
    rows.forEach((row, index) => {
      const price = prices[index] as number;
      const at = this.rows.indexOf(row);
      if (at >= 0) this.prices[at] = price;
      else if (price > 0) this.addRow(row, price);
    });
  }

  /** States that cannot be part of a better assignment are not tried. */
  allow(allowed: Uint8Array): void {
    this.allowed = allowed;
  }

  /** Continues from an assignment; notes it where it is the best. */
  restart(states: Int32Array): void {
    this.states = Int32Array.from(states);
    this.cost = coreCost(this.core, this.states);
    this.recount();
    this.note();
  }

  /**
   * Moves until `work` entries have been looked at.
   * @param temperatures costs at the start and at the end
   * @param width variables of a tree, at most: as many trees are below its square root as above
   */
  anneal(work: number, temperatures: readonly [number, number], width: number, stop: () => boolean): void {
    const [hot, cold] = temperatures;
    const from = this.work;
    let moved = 0;
    while (this.work - from < work) {
      const done = (this.work - from) / work;
      moved += this.move(hot * (cold / hot) ** done, width);
      if (moved < PRESS) continue;
      this.unsummed += moved;
      moved = 0;
      this.press();
      if (this.unsummed > (this.best ? SUMMED : SEARCHED) * this.core.count) this.sumAnew();
      if (stop()) return;
    }
  }

  /** Returns the variables of the tree. */
  private move(temperature: number, width: number): number {
    const { states, random } = this;
    const tree = this.drawTree(Math.ceil(width ** random.next()));
    this.charge(random.next() * 2);
    for (let index = tree.length - 1; index >= 0; index--) this.upward(tree, index);
    const before = tree.map((v) => states[v] as number);
    const costBefore = this.cost;
    const penaltyBefore = this.penalty();
    this.downward(tree, temperature);
    let changed = false;
    let costNow = this.cost;
    for (let index = 0; index < tree.length; index++)
      if ((states[tree[index] as number] as number) !== before[index]) changed = true;
    if (changed) {
      const after = tree.map((v) => states[v] as number);
      // From the old states to the new ones, variable by variable, so that each change is priced once.
      tree.forEach((v, index) => {
        states[v] = before[index] as number;
      });
      tree.forEach((v, index) => {
        costNow += this.change(v, after[index] as number);
      });
      this.cost = costNow;
      const worse = costNow + this.penalty() - costBefore - penaltyBefore;
      if (worse <= 0 || random.next() < Math.exp(-worse / temperature)) {
        if (this.best === null || costNow < this.best.cost) this.note();
      } else {
        tree.forEach((v, index) => {
          this.change(v, before[index] as number);
        });
        this.cost = costBefore;
      }
    }
    for (const v of tree) this.placeOf[v] = -1;
    return tree.length;
  }

  /** A random variable, then neighbours that have one neighbour in the tree. */
  private drawTree(width: number): number[] {
    const { core, placeOf, random } = this;
    const root = random.below(core.count);
    const tree = [root];
    placeOf[root] = 0;
    for (let head = 0; head < tree.length && tree.length < width; head++) {
      const v = tree[head] as number;
      const [from, to] = [core.edgeStarts[v] as number, core.edgeStarts[v + 1] as number];
      const turn = random.below(Math.max(1, to - from));
      for (let step = 0; step < to - from && tree.length < width; step++) {
        const u = this.other(core.edgesAt[from + ((step + turn) % (to - from))] as number, v);
        if ((placeOf[u] as number) >= 0) continue;
        let inside = 0;
        for (let at = core.edgeStarts[u] as number; at < (core.edgeStarts[u + 1] as number) && inside < 2; at++) {
          if ((placeOf[this.other(core.edgesAt[at] as number, u)] as number) >= 0) inside += 1;
        }
        if (inside !== 1) continue;
        placeOf[u] = tree.length;
        tree.push(u);
      }
    }
    return tree;
  }

  /** Costs of the states of a tree's variable, with the best of all below it; passes them to its parent. */
  private upward(tree: readonly number[], index: number): void {
    const { core, placeOf, states } = this;
    const v = tree[index] as number;
    this.work += PER_VARIABLE;
    const first = core.offsets[v] as number;
    const size = (core.offsets[v + 1] as number) - first;
    const costs = this.buffer(this.messages, index, size, (length) => new Float64Array(length));
    for (let s = 0; s < size; s++) costs[s] = this.allowed[first + s] ? (core.unary[first + s] as number) : Infinity;
    const held = states[v] as number;
    if (costs[held] === Infinity) costs[held] = core.unary[first + held] as number;
    for (let use = core.useStarts[v] as number; use < (core.useStarts[v + 1] as number); use++) {
      const [from, to] = [this.placesFrom[use] as number, this.placesTo[use] as number];
      const price = ((this.charged[to] as number) - (this.charged[from] as number)) / this.limit;
      if (!(price > 0)) continue;
      const bytes = core.useBytes[use] as Float64Array;
      for (let s = 0; s < size; s++) costs[s] = (costs[s] as number) + price * (bytes[s] as number);
    }
    for (let at = core.edgeStarts[v] as number; at < (core.edgeStarts[v + 1] as number); at++) {
      const e = core.edgesAt[at] as number;
      const u = this.other(e, v);
      const place = placeOf[u] as number;
      if (place >= 0 && place < index) continue;
      const table = core.tables[e] as Float64Array;
      const width = (core.offsets[u + 1] as number) - (core.offsets[u] as number);
      const rowwise = (core.edgeA[e] as number) === v;
      if (place < 0) {
        const x = states[u] as number;
        this.work += size;
        if (rowwise) for (let s = 0; s < size; s++) costs[s] = (costs[s] as number) + (table[s * width + x] as number);
        else for (let s = 0; s < size; s++) costs[s] = (costs[s] as number) + (table[x * size + s] as number);
        continue;
      }
      // u is a child: its best state for each state of v.
      const below = this.messages[place] as Float64Array;
      const choice = this.buffer(this.choices, place, size, (length) => new Int32Array(length));
      this.work += size * width;
      for (let s = 0; s < size; s++) {
        let [best, least] = [0, Infinity];
        for (let t = 0; t < width; t++) {
          const cost = (below[t] as number) + (table[rowwise ? s * width + t : t * size + s] as number);
          if (cost < least) [best, least] = [t, cost];
        }
        choice[s] = best;
        costs[s] = (costs[s] as number) + least;
      }
    }
  }

  /** States from the root down; the root's is drawn. */
  private downward(tree: readonly number[], temperature: number): void {
    const { core, states, placeOf, random } = this;
    const root = tree[0] as number;
    const size = (core.offsets[root + 1] as number) - (core.offsets[root] as number);
    const costs = this.messages[0] as Float64Array;
    let least = Infinity;
    for (let s = 0; s < size; s++) least = Math.min(least, costs[s] as number);
    let sum = 0;
    for (let s = 0; s < size; s++) sum += Math.exp((least - (costs[s] as number)) / temperature);
    let draw = random.next() * sum;
    let chosen = 0;
    for (let s = 0; s < size; s++) {
      const weight = Math.exp((least - (costs[s] as number)) / temperature);
      if (weight <= 0) continue;
      chosen = s;
      draw -= weight;
      if (draw <= 0) break;
    }
    states[root] = chosen;
    for (let index = 1; index < tree.length; index++) {
      const v = tree[index] as number;
      for (let at = core.edgeStarts[v] as number; at < (core.edgeStarts[v + 1] as number); at++) {
        const u = this.other(core.edgesAt[at] as number, v);
        const place = placeOf[u] as number;
        if (place < 0 || place >= index) continue;
        states[v] = (this.choices[index] as Int32Array)[states[u] as number] as number;
        break;
      }
    }
  }

  /** Sets a state; returns the change of the cost. */
  private change(v: number, state: number): number {
    const { core, states } = this;
    const old = states[v] as number;
    if (old === state) return 0;
    const first = core.offsets[v] as number;
    const size = (core.offsets[v + 1] as number) - first;
    let change = (core.unary[first + state] as number) - (core.unary[first + old] as number);
    for (let at = core.edgeStarts[v] as number; at < (core.edgeStarts[v + 1] as number); at++) {
      const e = core.edgesAt[at] as number;
      const u = this.other(e, v);
      const x = states[u] as number;
      const table = core.tables[e] as Float64Array;
      if ((core.edgeA[e] as number) === v) {
        const width = (core.offsets[u + 1] as number) - (core.offsets[u] as number);
        change += (table[state * width + x] as number) - (table[old * width + x] as number);
      } else change += (table[x * size + state] as number) - (table[x * size + old] as number);
    }
    for (let use = core.useStarts[v] as number; use < (core.useStarts[v + 1] as number); use++) {
      const bytes = core.useBytes[use] as Float64Array;
      const more = (bytes[state] as number) - (bytes[old] as number);
      if (more === 0) continue;
      const to = this.placesTo[use] as number;
      for (let place = this.placesFrom[use] as number; place < to; place++)
        this.used[place] = (this.used[place] as number) + more;
    }
    states[v] = state;
    return change;
  }

  /** Sets the current cost of a byte: the price of each row times `pressure`, and the penalty where the limit is passed. */
  private charge(pressure: number): void {
    let sum = 0;
    for (let row = 0; row < this.rows.length; row++) {
      const over = (this.used[row] as number) > (this.core.capacity[this.rows[row] as number] as number);
      sum += (this.prices[row] as number) * pressure + (over ? (this.penalties[row] as number) : 0);
      this.charged[row + 1] = sum;
    }
  }

  /** Cost of the memory above the limit. */
  private penalty(): number {
    let sum = 0;
    for (let row = 0; row < this.rows.length; row++) {
      const over = (this.used[row] as number) - (this.core.capacity[this.rows[row] as number] as number);
      if (over > 0) sum += ((this.penalties[row] as number) * over) / this.limit;
    }
    return sum;
  }

  /** Penalties rise where the limit is passed, and fall slowly where it is kept. */
  private press(): void {
    for (let row = 0; row < this.rows.length; row++) {
      const over = (this.used[row] as number) > (this.core.capacity[this.rows[row] as number] as number);
      this.penalties[row] = (this.penalties[row] as number) * (over ? 1.3 : 0.99);
      const floor = (this.prices[row] as number) + this.unit();
      if ((this.penalties[row] as number) < floor) this.penalties[row] = floor;
    }
  }

  /**
   * Sums the cost anew: the sum of changes drifts where costs differ by more than 2^53. As long as nothing was found,
   * forbidden pairs that are taken become dearer, each by itself: against high costs of states the usual price may be too low,
   * and one that is high everywhere leaves no way out (Morris 1993, the breakout method).
   */
  private sumAnew(): void {
    this.unsummed = 0;
    const { exact, states, edgePrices } = this;
    if (this.best === null) {
      for (let e = 0; e < exact.tables.length; e++) {
        const table = exact.tables[e] as Float64Array;
        const b = exact.edgeB[e] as number;
        const width = (exact.offsets[b + 1] as number) - (exact.offsets[b] as number);
        const at = (states[exact.edgeA[e] as number] as number) * width + (states[b] as number);
        const price = (edgePrices[e] as number) * STRICTER;
        if (table[at] !== Infinity || price > DEAREST) continue;
        edgePrices[e] = price;
        this.tables[e] = priced(table, price);
      }
    }
    this.cost = coreCost(this.core, states);
  }

  /** A price at which the whole limit is worth a share of the cost. */
  private unit(): number {
    return Math.max(1, Math.abs(this.cost) * 0.01);
  }

  /** Takes the present assignment as the best where all rows keep the limit; adds rows that do not. */
  private note(): void {
    for (let row = 0; row < this.rows.length; row++) {
      if ((this.used[row] as number) > (this.core.capacity[this.rows[row] as number] as number)) return;
    }
    if (this.best && this.best.cost <= this.cost) return;
    // Summed anew with exact tables, where forbidden pairs are forbidden.
    const cost = coreCost(this.exact, this.states);
    if (cost === Infinity) return;
    const usage = rowUsage(this.core, this.states);
    let added = 0;
    for (; added < ROWS_AT_ONCE; added++) {
      let worst = -1;
      let most = 0;
      for (let row = 0; row < usage.length; row++) {
        const over = (usage[row] as number) - (this.core.capacity[row] as number);
        if (over > most && !this.rows.includes(row)) [worst, most] = [row, over];
      }
      if (worst < 0) break;
      this.addRow(worst, 0);
      // Its neighbours would be as full.
      for (let row = Math.max(0, worst - 16); row < Math.min(usage.length, worst + 16); row++) usage[row] = -Infinity;
    }
    if (added === 0) this.best = { states: Int32Array.from(this.states), cost };
  }

  private addRow(row: number, price: number): void {
    const { core, rows, placesFrom, placesTo } = this;
    const place = lowerBound(Float64Array.from(rows), row);
    rows.splice(place, 0, row);
    this.prices.splice(place, 0, price);
    this.penalties.splice(place, 0, price * 2 + this.unit());
    this.charged.push(0);
    let used = 0;
    for (let v = 0; v < core.count; v++) {
      for (let use = core.useStarts[v] as number; use < (core.useStarts[v + 1] as number); use++) {
        if (row >= (core.useTo[use] as number)) continue;
        placesTo[use] = (placesTo[use] as number) + 1;
        if (row < (core.useFrom[use] as number)) placesFrom[use] = (placesFrom[use] as number) + 1;
        else used += (core.useBytes[use] as Float64Array)[this.states[v] as number] as number;
      }
    }
    this.used.splice(place, 0, used);
  }

  private recount(): void {
    const usage = rowUsage(this.core, this.states);
    this.rows.forEach((row, place) => {
      this.used[place] = usage[row] as number;
    });
  }

  private other(e: number, v: number): number {
    const a = this.core.edgeA[e] as number;
    return a === v ? (this.core.edgeB[e] as number) : a;
  }

  private buffer<T extends Float64Array | Int32Array>(
    store: T[],
    index: number,
    length: number,
    make: (length: number) => T,
  ): T {
    const known = store[index];
    if (known && known.length >= length) return known;
    const made = make(Math.max(length, 16));
    store[index] = made;
    return made;
  }
}

/** First cost of a forbidden pair, so that moves may pass through it: four times the dearest pair that is not forbidden. */
function usualPrice({ tables }: Core): number {
  let largest = 1;
  for (const table of new Set(tables))
    for (const cost of table) if (cost > largest && cost !== Infinity) largest = cost;
  return largest * 4;
}

/** A table whose forbidden pairs have a price; itself if none. */
function priced(table: Float64Array, price: number): Float64Array {
  return table.includes(Infinity) ? table.map((cost) => (cost === Infinity ? price : cost)) : table;
}
