/**
 * @file An assignment that keeps the limit, from one that nearly does: where annealing takes long to find any.
 *
 *     repair    at the row that is passed most, the states of smaller memory that cost least by byte saved, until it fits
 *     descent   each variable takes its cheapest state that keeps all rows, twice over
 *
 * Repair takes no state that needs more anywhere, so it ends. It looks at every row, where annealing learns of a few at a time.
 */
import { type Core, rowUsage } from './core.js';

/** Row visits after which descent stops, and rows that repair looks at, at most. */
const MOST_VISITS = 2e8;
const MOST_REPAIRS = 20_000;
const DESCENTS = 2;

/** A state per variable that keeps all rows; null where none was found. Forbidden pairs of `states` may be left. */
export function repaired(core: Core, states: Int32Array): Int32Array | null {
  const repair = new Repair(core, states);
  if (!repair.fit()) return null;
  repair.descend();
  return repair.states;
}

class Repair {
  readonly states: Int32Array;
  private readonly usage: Float64Array;
  private visits = 0;

  constructor(
    private readonly core: Core,
    states: Int32Array,
  ) {
    this.states = Int32Array.from(states);
    this.usage = Float64Array.from(rowUsage(core, states));
  }

  /** Whether all rows could be made to fit. */
  fit(): boolean {
    for (let count = 0; count < MOST_REPAIRS; count++) {
      const row = this.worst();
      if (row < 0) return true;
      if (!this.lighten(row)) return false;
    }
    return false;
  }

  descend(): void {
    const { core } = this;
    for (let turn = 0; turn < DESCENTS; turn++) {
      for (let v = 0; v < core.count && this.visits < MOST_VISITS; v++) {
        const changes = this.changes(v);
        const cheaper = [...changes.keys()].filter((s) => (changes[s] as number) < 0);
        cheaper.sort((s, t) => (changes[s] as number) - (changes[t] as number));
        for (const state of cheaper) if (this.fits(v, state)) break;
      }
    }
  }

  private worst(): number {
    let [worst, most] = [-1, 0];
    for (let row = 0; row < this.usage.length; row++) {
      const over = (this.usage[row] as number) - (this.core.capacity[row] as number);
      if (over > most) [worst, most] = [row, over];
    }
    return worst;
  }

  /** Takes smaller states at a row until it fits or there are none; whether any was taken. */
  private lighten(row: number): boolean {
    const { core, states } = this;
    const moves: { readonly variable: number; readonly state: number; readonly price: number }[] = [];
    for (let v = 0; v < core.count; v++) {
      const saved = this.savings(v, row);
      if (!saved) continue;
      const changes = this.changes(v);
      const over = (this.usage[row] as number) - (core.capacity[row] as number);
      let [best, least] = [-1, Infinity];
      saved.forEach((bytes, s) => {
        if (bytes <= 0) return;
        const price = (changes[s] as number) / Math.min(bytes, over);
        if (price < least) [best, least] = [s, price];
      });
      if (best >= 0) moves.push({ variable: v, state: best, price: least });
    }
    moves.sort((a, b) => a.price - b.price);
    let taken = 0;
    for (; taken < moves.length; taken++) {
      if ((this.usage[row] as number) <= (core.capacity[row] as number)) break;
      const { variable, state } = moves[taken] as (typeof moves)[number];
      if (states[variable] !== state) this.take(variable, state);
    }
    return taken > 0;
  }

  /** Bytes that each state of a variable saves at a row, 0 where it needs more at any; null where none saves. */
  private savings(v: number, row: number): Float64Array | null {
    const { core, states } = this;
    const held = states[v] as number;
    let saved: Float64Array | null = null;
    for (let use = core.useStarts[v] as number; use < (core.useStarts[v + 1] as number); use++) {
      if ((core.useFrom[use] as number) > row || (core.useTo[use] as number) <= row) continue;
      const bytes = core.useBytes[use] as Float64Array;
      saved ??= new Float64Array(bytes.length);
      for (let s = 0; s < bytes.length; s++)
        saved[s] = (saved[s] as number) + (bytes[held] as number) - (bytes[s] as number);
    }
    if (!saved?.some((bytes) => bytes > 0)) return null;
    for (let use = core.useStarts[v] as number; use < (core.useStarts[v + 1] as number); use++) {
      const bytes = core.useBytes[use] as Float64Array;
      for (let s = 0; s < bytes.length; s++) if ((bytes[s] as number) > (bytes[held] as number)) saved[s] = 0;
    }
    return saved;
  }

  /** Cost of each state of a variable above its current state, given all others. */
  private changes(v: number): Float64Array {
    const { core, states } = this;
    const first = core.offsets[v] as number;
    const size = (core.offsets[v + 1] as number) - first;
    const costs = core.unary.slice(first, first + size);
    for (let at = core.edgeStarts[v] as number; at < (core.edgeStarts[v + 1] as number); at++) {
      const e = core.edgesAt[at] as number;
      const [a, b] = [core.edgeA[e] as number, core.edgeB[e] as number];
      const table = core.tables[e] as Float64Array;
      const width = (core.offsets[b + 1] as number) - (core.offsets[b] as number);
      const [from, step] = a === v ? [states[b] as number, width] : [(states[a] as number) * width, 1];
      for (let s = 0; s < size; s++) costs[s] = (costs[s] as number) + (table[from + s * step] as number);
    }
    const own = costs[states[v] as number] as number;
    for (let s = 0; s < size; s++) costs[s] = costs[s] === own ? 0 : (costs[s] as number) - own;
    return costs;
  }

  /** Takes a state; back to the one before where some row is passed. */
  private fits(v: number, state: number): boolean {
    const { core, usage } = this;
    const held = this.states[v] as number;
    this.take(v, state);
    for (let use = core.useStarts[v] as number; use < (core.useStarts[v + 1] as number); use++) {
      const bytes = core.useBytes[use] as Float64Array;
      if ((bytes[state] as number) <= (bytes[held] as number)) continue;
      for (let row = core.useFrom[use] as number; row < (core.useTo[use] as number); row++) {
        this.visits += 1;
        if ((usage[row] as number) <= (core.capacity[row] as number)) continue;
        this.take(v, held);
        return false;
      }
    }
    return true;
  }

  private take(v: number, state: number): void {
    const { core } = this;
    const held = this.states[v] as number;
    for (let use = core.useStarts[v] as number; use < (core.useStarts[v + 1] as number); use++) {
      const bytes = core.useBytes[use] as Float64Array;
      const more = (bytes[state] as number) - (bytes[held] as number);
      if (more === 0) continue;
      for (let row = core.useFrom[use] as number; row < (core.useTo[use] as number); row++)
        this.usage[row] = (this.usage[row] as number) + more;
    }
    this.states[v] = state;
  }
}
