/**
 * @file Statistics of a rank: time by kind of instruction, bytes sent, peak memory.
 */

import type { OuterMemory } from '../program/values.js';

/** One kind of instruction in one step. */
export interface KindStatistics {
  /** Instructions executed. */
  readonly count: number;
  /** Wall time, waiting included. */
  readonly seconds: number;
  /** Bytes that this rank sent (`bytesSent`). */
  readonly bytes: number;
}

/** One rank; times, counts and bytes are of one step, or the mean of several (`meanStatistics`). */
export interface RankStatistics {
  readonly computeSeconds: number;
  /** Operands that went to the device's process and results that came back; left out if none. */
  readonly copySeconds?: number;
  /** Copying and reducing, without waiting. */
  readonly communicateSeconds: number;
  /** Blocked for other ranks, in collectives and between stages. */
  readonly waitSeconds: number;
  /** Making tensors of inputs and handing results on. */
  readonly feedSeconds: number;
  readonly bytesCommunicated: number;
  /** Peak so far, over all instructions, of weights, live tensors, a segment's results, and communication buffers. */
  readonly peakBytes: number;
  /** Bytes that it held in other memories, and moved there and back; left out if none. */
  readonly outside?: OutsideStatistics;
  /** `compute`, `copy`, `feed`, `send`, `recv`, and each kind of collective (its start and its wait together). */
  readonly byKind: Readonly<Record<string, KindStatistics>>;
}

/** By memory: most bytes held so far, and bytes that left the device for it and came back. */
export type OutsideStatistics = Readonly<
  Record<OuterMemory, { readonly peakBytes: number; readonly storedBytes: number; readonly loadedBytes: number }>
>;

/** Gathers times and bytes of a step. Milliseconds in, seconds out. */
export class Stopwatch {
  private moves: Record<OuterMemory, MoveSum> = { host: { stored: 0, loaded: 0 }, disk: { stored: 0, loaded: 0 } };
  private readonly kinds = new Map<string, { count: number; milliseconds: number; blocked: number; bytes: number }>();

  add(kind: string, milliseconds: number, blocked: number, bytes: number, count: number): void {
    const entry = this.kinds.get(kind) ?? { count: 0, milliseconds: 0, blocked: 0, bytes: 0 };
    entry.count += count;
    entry.milliseconds += milliseconds;
    entry.blocked += blocked;
    entry.bytes += bytes;
    this.kinds.set(kind, entry);
  }

  moved(memory: OuterMemory, stored: number, loaded: number): void {
    const sum = this.moves[memory];
    this.moves[memory] = { stored: sum.stored + stored, loaded: sum.loaded + loaded };
  }

  /** Statistics since the last call. @param peaks most bytes so far, by memory */
  take({ device: peakBytes, ...peaks }: Readonly<Record<'device' | OuterMemory, number>>): RankStatistics {
    const outside = outsideOf(peaks, this.moves);
    this.moves = { host: { stored: 0, loaded: 0 }, disk: { stored: 0, loaded: 0 } };
    const entries = [...this.kinds].map(([kind, entry]) => ({ kind, ...entry }));
    this.kinds.clear();
    const total = (pick: (entry: (typeof entries)[number]) => number) =>
      entries.reduce((sum, entry) => sum + pick(entry), 0);
    const own = (kind: string) =>
      total((entry) => (entry.kind === kind ? entry.milliseconds - entry.blocked : 0)) / 1000;
    return {
      computeSeconds: own('compute'),
      ...(entries.some(({ kind }) => kind === 'copy') ? { copySeconds: own('copy') } : {}),
      feedSeconds: own('feed'),
      waitSeconds: total((entry) => entry.blocked) / 1000,
      communicateSeconds: total((entry) => (OWN_WORK.has(entry.kind) ? 0 : entry.milliseconds - entry.blocked)) / 1000,
      bytesCommunicated: total((entry) => entry.bytes),
      peakBytes,
      ...(outside ? { outside } : {}),
      byKind: Object.fromEntries(
        entries.map(({ kind, count, milliseconds, bytes }) => [kind, { count, seconds: milliseconds / 1000, bytes }]),
      ),
    };
  }
}

interface MoveSum {
  readonly stored: number;
  readonly loaded: number;
}

function outsideOf(
  peaks: Readonly<Record<OuterMemory, number>>,
  moves: Readonly<Record<OuterMemory, MoveSum>>,
): OutsideStatistics | undefined {
  const of = (memory: OuterMemory) => {
    const { stored, loaded } = moves[memory];
    return { peakBytes: peaks[memory], storedBytes: stored, loadedBytes: loaded };
  };
  const outside = { host: of('host'), disk: of('disk') };
  return Object.values(outside).some((own) => Object.values(own).some((bytes) => bytes > 0)) ? outside : undefined;
}

const NOTHING = { peakBytes: 0, storedBytes: 0, loadedBytes: 0 } as const;

const OWN_WORK: ReadonlySet<string> = new Set(['compute', 'copy', 'feed']);

/** Two periods of one rank together: times, counts and bytes added up, the higher peak. */
export function sumOf(left: RankStatistics, right: RankStatistics): RankStatistics {
  const peakBytes = Math.max(left.peakBytes, right.peakBytes);
  return { ...combined(left, right, (one, other) => one + other), peakBytes };
}

/** The mean per step, from the sum over so many steps. */
export function meanStatistics(sum: RankStatistics, steps: number): RankStatistics {
  return { ...combined(sum, sum, (value) => value / steps), peakBytes: sum.peakBytes };
}

function combined(
  left: RankStatistics,
  right: RankStatistics,
  merge: (left: number, right: number) => number,
): Omit<RankStatistics, 'peakBytes'> {
  const none: KindStatistics = { count: 0, seconds: 0, bytes: 0 };
  const kinds = new Set([...Object.keys(left.byKind), ...Object.keys(right.byKind)]);
  const byKind = [...kinds].map((kind): [string, KindStatistics] => {
    const [one, other] = [left.byKind[kind] ?? none, right.byKind[kind] ?? none];
    return [
      kind,
      {
        count: merge(one.count, other.count),
        seconds: merge(one.seconds, other.seconds),
        bytes: merge(one.bytes, other.bytes),
      },
    ];
  });
  const outside = (memory: OuterMemory) => {
    const [one, other] = [left.outside?.[memory] ?? NOTHING, right.outside?.[memory] ?? NOTHING];
    return {
      peakBytes: Math.max(one.peakBytes, other.peakBytes),
      storedBytes: merge(one.storedBytes, other.storedBytes),
      loadedBytes: merge(one.loadedBytes, other.loadedBytes),
    };
  };
  return {
    ...(left.outside || right.outside ? { outside: { host: outside('host'), disk: outside('disk') } } : {}),
    computeSeconds: merge(left.computeSeconds, right.computeSeconds),
    ...(left.copySeconds === undefined && right.copySeconds === undefined
      ? {}
      : { copySeconds: merge(left.copySeconds ?? 0, right.copySeconds ?? 0) }),
    communicateSeconds: merge(left.communicateSeconds, right.communicateSeconds),
    waitSeconds: merge(left.waitSeconds, right.waitSeconds),
    feedSeconds: merge(left.feedSeconds, right.feedSeconds),
    bytesCommunicated: merge(left.bytesCommunicated, right.bytesCommunicated),
    byKind: Object.fromEntries(byKind),
  };
}
