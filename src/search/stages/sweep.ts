/**
 * @file The bound on the pace that makes fill + pace least. Alpa tries every pace that any stage can have; here intervals of
 * bounds are closed by what cuts of a larger bound prove (a smaller bound never has less fill), so a few dozen cuts decide.
 */
import type { Cut } from './cut.js';
import type { CutSearch } from './cut-search.js';

export interface SweepOptions {
  /** Only cuts below this many seconds are looked for. */
  readonly below?: number;
  readonly signal?: AbortSignal;
  /** Table entries to look at; the sweep ends at the next bound after these. */
  readonly work?: number;
  /** How often to look for further cuts that are nearly as good, once the best is known. */
  readonly others?: number;
}

export interface Sweep {
  /** Every cut found on the way, best first. */
  readonly cuts: readonly Cut[];
  /** No cut takes less than this, except those of `below` or more. */
  readonly bound: number;
  readonly finished: boolean;
}

/** Bounds above `low` and up to `high` (below it, where a cut of that very pace is known). */
interface Interval {
  readonly low: number;
  readonly high: number;
  /** No cut of these bounds has less fill. */
  readonly fill: number;
}

/**
 * @param least no pace is below this
 */
export function sweep(search: CutSearch, least: number, options: SweepOptions = {}): Sweep {
  const { below = Number.POSITIVE_INFINITY, signal, work = Number.POSITIVE_INFINITY, others = 0 } = options;
  const most = search.work + work;
  const cuts: Cut[] = [];
  const ended = () => signal?.aborted === true || search.work > most;
  const best = () => cuts.reduce((seconds, { fill, pace }) => Math.min(seconds, fill + pace), below);
  /** What is proven to hold no better cut, and yet may hold one that is nearly as good. */
  const left: Interval[] = [];
  let open = intervalsFrom(justBelow(least));
  for (;;) {
    const limit = best();
    left.push(...open.filter((interval) => boundOf(interval) >= limit));
    open = open.filter((interval) => boundOf(interval) < limit);
    const next = lowest(open);
    if (!next || ended()) break;
    open = [...open.filter((interval) => interval !== next), ...explored(search, next, limit, cuts)];
  }
  const bound = Math.min(best(), ...open.map(boundOf));
  const finished = open.length === 0;
  open = finished ? left : [];
  for (let count = 0; count < others && !ended(); count++) {
    const limit = best() * NEARLY;
    open = open.filter((interval) => boundOf(interval) < limit);
    const next = lowest(open);
    if (!next) break;
    open = [...open.filter((interval) => interval !== next), ...explored(search, next, limit, cuts)];
  }
  return { cuts: cuts.sort((a, b) => a.fill + a.pace - b.fill - b.pace), bound, finished };
}

/** Cuts within this of the best are nearly as good: the closed form may be further off where stages differ. */
const NEARLY = 1.05;

function boundOf({ low, fill }: Interval): number {
  return low + fill;
}

function lowest(open: readonly Interval[]): Interval | undefined {
  return open.reduce<Interval | undefined>(
    (first, interval) => (first && boundOf(first) <= boundOf(interval) ? first : interval),
    undefined,
  );
}

/** What is left of an interval when its best cut is found, added to `cuts`; itself where only its bound has risen. */
function explored(search: CutSearch, interval: Interval, limit: number, cuts: Cut[]): readonly Interval[] {
  const fill = search.leastFill(interval.high);
  if (fill > interval.fill) return [{ ...interval, fill }];
  const cut = search.solve(interval.high, limit - Math.max(0, interval.low));
  if (!cut) return [];
  cuts.push(cut);
  // Of this pace there is nothing better; cuts of a smaller one have at least this fill.
  const { low } = interval;
  const high = justBelow(cut.pace);
  if (high <= low) return [];
  const middle = low + (cut.pace - low) / 2;
  if (middle <= low || middle >= high) return [{ low, high, fill: cut.fill }];
  return [
    { low, high: middle, fill: cut.fill },
    { low: middle, high, fill: cut.fill },
  ];
}

/** All bounds from one on, in stretches that grow. */
function intervalsFrom(low: number): Interval[] {
  const ends = Array.from({ length: STRETCHES }, (_, index) => Math.max(0, low) * GROWTH ** index);
  const all = ends.map((end, index) => ({
    low: index === 0 ? low : end,
    high: ends[index + 1] ?? Number.MAX_VALUE,
    fill: 0,
  }));
  return all.filter((interval) => interval.low < interval.high);
}

const STRETCHES = 24;
const GROWTH = 1.2;

/** The number before, for positive ones; a little below zero for none. */
function justBelow(value: number): number {
  return value > 0 ? value - value * (Number.EPSILON / 2) : -Number.MIN_VALUE;
}
