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
 * @param most no pace need be above this
 */
export function sweep(search: CutSearch, least: number, most: number, options: SweepOptions = {}): Sweep {
  const { below = Number.POSITIVE_INFINITY, signal, work = Number.POSITIVE_INFINITY } = options;
  const start = search.work;
  const cuts: Cut[] = [];
  let best = below;
  let open: Interval[] = [{ low: justBelow(least), high: most, fill: 0 }];
  const boundOf = ({ low, fill }: Interval) => low + fill;
  for (;;) {
    open = open.filter((interval) => boundOf(interval) < best);
    const next = open.reduce<Interval | undefined>(
      (first, interval) => (first && boundOf(first) <= boundOf(interval) ? first : interval),
      undefined,
    );
    const finished = next === undefined;
    if (finished || signal?.aborted || search.work - start > work) {
      const bound = Math.min(best, ...open.map(boundOf));
      return { cuts: cuts.sort((a, b) => a.fill + a.pace - b.fill - b.pace), bound, finished };
    }
    open = open.filter((interval) => interval !== next);
    const cut = search.solve(next.high, best - Math.max(0, next.low));
    if (!cut) continue;
    cuts.push(cut);
    best = Math.min(best, cut.fill + cut.pace);
    // Of this pace there is nothing better; cuts of a smaller one have at least this fill.
    const high = justBelow(cut.pace);
    if (high <= next.low) continue;
    const middle = next.low + (cut.pace - next.low) / 2;
    if (middle <= next.low || middle >= high) {
      open.push({ low: next.low, high, fill: cut.fill });
    } else {
      open.push({ low: next.low, high: middle, fill: cut.fill }, { low: middle, high, fill: cut.fill });
    }
  }
}

/** The number before, for positive ones; a little below zero for none. */
function justBelow(value: number): number {
  return value > 0 ? value - value * (Number.EPSILON / 2) : -Number.MIN_VALUE;
}
