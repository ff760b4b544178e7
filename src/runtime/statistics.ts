/**
 * @file What a rank counts: time by kind of instruction, bytes sent, peak memory.
 */

/** One kind of instruction in one step. */
export interface KindStatistics {
  /** Instructions executed. */
  readonly count: number;
  /** Wall time, waiting included. */
  readonly seconds: number;
  /** Bytes that this rank sent (`bytesSent`). */
  readonly bytes: number;
}

/** One rank; times, counts and bytes are per step, averaged over the counted steps. */
export interface RankStatistics {
  readonly computeSeconds: number;
  /** Copying and reducing, without waiting. */
  readonly communicateSeconds: number;
  /** Blocked for other ranks, in collectives and between stages. */
  readonly waitSeconds: number;
  /** Making tensors of inputs and handing results on. */
  readonly feedSeconds: number;
  readonly bytesCommunicated: number;
  /** Largest sum, over all instructions, of weights, live tensors, what a segment makes, and communication buffers. */
  readonly peakBytes: number;
  /** `compute`, `feed`, `send`, `recv`, and each kind of collective (its start and its wait together). */
  readonly byKind: Readonly<Record<string, KindStatistics>>;
}

/** Gathers times and bytes during the counted steps. Milliseconds in, seconds out. */
export class Stopwatch {
  private readonly kinds = new Map<string, { count: number; milliseconds: number; blocked: number; bytes: number }>();

  add(kind: string, milliseconds: number, blocked: number, bytes: number, count: number): void {
    const entry = this.kinds.get(kind) ?? { count: 0, milliseconds: 0, blocked: 0, bytes: 0 };
    entry.count += count;
    entry.milliseconds += milliseconds;
    entry.blocked += blocked;
    entry.bytes += bytes;
    this.kinds.set(kind, entry);
  }

  reset(): void {
    this.kinds.clear();
  }

  statistics(steps: number, peakBytes: number): RankStatistics {
    const entries = [...this.kinds].map(([kind, entry]) => ({ kind, ...entry }));
    const total = (pick: (entry: (typeof entries)[number]) => number) =>
      entries.reduce((sum, entry) => sum + pick(entry), 0) / steps;
    const own = (kind: string) =>
      total((entry) => (entry.kind === kind ? entry.milliseconds - entry.blocked : 0)) / 1000;
    return {
      computeSeconds: own('compute'),
      feedSeconds: own('feed'),
      waitSeconds: total((entry) => entry.blocked) / 1000,
      communicateSeconds: total((entry) => (OWN_WORK.has(entry.kind) ? 0 : entry.milliseconds - entry.blocked)) / 1000,
      bytesCommunicated: total((entry) => entry.bytes),
      peakBytes,
      byKind: Object.fromEntries(
        entries.map(({ kind, count, milliseconds, bytes }) => [
          kind,
          { count: count / steps, seconds: milliseconds / 1000 / steps, bytes: bytes / steps },
        ]),
      ),
    };
  }
}

const OWN_WORK: ReadonlySet<string> = new Set(['compute', 'feed']);

/** Live bytes of one rank and their peak. */
export class MemoryCount {
  private readonly sizes = new Map<string, number>();
  private live = 0;
  private most = 0;

  /** `base`: what is there all the time (weights, coordinates, communication buffers). */
  constructor(private readonly base: number) {
    this.most = base;
  }

  define(tensor: string, bytes: number): void {
    this.live += bytes - (this.sizes.get(tensor) ?? 0);
    this.sizes.set(tensor, bytes);
    this.most = Math.max(this.most, this.base + this.live);
  }

  /** What was there for a moment, beside what is there now. */
  meet(bytes: number): void {
    this.most = Math.max(this.most, this.base + this.live + bytes);
  }

  free(tensor: string): void {
    this.live -= this.sizes.get(tensor) ?? 0;
    this.sizes.delete(tensor);
  }

  clear(): void {
    this.sizes.clear();
    this.live = 0;
  }

  get peakBytes(): number {
    return this.most;
  }
}
