/**
 * @file Stall detection. A rank that waits for another has not stalled; the rank that it waits for may have.
 * A native call cannot report while it runs, so the sign of a stall is: no progress, while others wait, for too long.
 */
import type { Control, RankState } from './control.js';

/** A rank that blocks the others; `all`: every rank waits, so the program itself deadlocks. */
export interface Stall {
  readonly rank: number;
  readonly seconds: number;
  readonly all: boolean;
}

/** Seconds without progress after which a rank in each state counts as stalled. */
export type StallLimits = Readonly<Record<RankState, number>>;

/**
 * The limits of a program: a native call reports no progress while it runs, so its limit is `stallSeconds`; between calls a
 * rank itself only copies and adds `largestBytes` at most, so that a stall there shows within a second or so.
 * `perCore` threads share a core: the ranks, and other processes of the machine, run one after another.
 */
export function stallLimits(stallSeconds: number, largestBytes: number, perCore: number): StallLimits {
  const own = Math.min(stallSeconds, (OWN_SECONDS + largestBytes / SLOW_COPY_BYTES_PER_SECOND) * Math.max(1, perCore));
  return {
    loading: Math.max(stallSeconds, LOADING_SECONDS),
    computing: stallSeconds,
    running: own,
    waiting: own,
    idle: Infinity,
    finished: Infinity,
  };
}

/** Reading one shard or making one session may take long on a slow disk, whatever the user says about steps. */
const LOADING_SECONDS = 60;

/** A thread that has work but is not scheduled for so long is on a severely overloaded machine. */
const OWN_SECONDS = 0.8;

/** Adding up sixteen-bit floats is the slowest thing that a rank does itself: about 8 ns an element, with room to spare. */
const SLOW_COPY_BYTES_PER_SECOND = 1e8;

/** How often the watch looks. */
export const LOOK_MILLISECONDS = 100;

interface Standing {
  readonly rank: number;
  readonly state: RankState;
  readonly seconds: number;
  readonly looks: number;
}

/** Looks at the control buffer every LOOK_MILLISECONDS. */
export class StallWatch {
  private readonly last: { progress: number; seconds: number }[];
  /** By rank, looks in vain when no rank had made progress for the first time; null where one just has. */
  private quiet: readonly number[] | null = null;

  constructor(
    private readonly control: Control,
    ranks: number,
    /** Called at every look: the load of the machine changes while ranks run. */
    private readonly limitsNow: () => StallLimits,
    private before: number,
  ) {
    this.last = Array.from({ length: ranks }, () => ({ progress: -1, seconds: 0 }));
  }

  /**
   * The stall at `now` (milliseconds of performance.now), or null. Time in which the watch itself was not scheduled is left out:
   * a process that was stopped (Ctrl-Z), or whose machine was, has made no progress for that reason.
   */
  look(now: number): Stall | null {
    const passed = Math.min(now - this.before, 2 * LOOK_MILLISECONDS) / 1000;
    this.before = now;
    const limits = this.limitsNow();
    const standings = this.last.map((_, rank) => this.standing(rank, passed));
    this.quiet = standings.some(({ seconds }) => seconds === 0)
      ? null
      : (this.quiet ?? standings.map(({ looks }) => looks));
    const unfinished = standings.filter(({ state }) => state !== 'idle' && state !== 'finished');
    const waiting = unfinished.filter(({ state }) => state === 'waiting');
    const waited = waiting.reduce((most, { seconds }) => Math.max(most, seconds), 0);
    // Others must have waited as long: a rank that computes for a minute blocks no other before one waits for it.
    const busy = unfinished.find(({ state, seconds }) => {
      const limit = limits[state];
      return state !== 'waiting' && seconds > limit && waited > limit;
    });
    if (busy) return { rank: busy.rank, seconds: busy.seconds, all: false };
    const [first] = waiting;
    const stuck = waiting.every((rank) => rank.seconds > limits.waiting && this.hasLooked(rank));
    return first && stuck && waiting.length === unfinished.length
      ? { rank: first.rank, seconds: first.seconds, all: true }
      : null;
  }

  /**
   * Whether a waiting rank has looked since the last progress of any rank: on an overloaded machine its data may have arrived
   * without the rank being scheduled since. The first of two looks may have begun before.
   */
  private hasLooked({ rank, looks }: Standing): boolean {
    return this.quiet !== null && looks - (this.quiet[rank] ?? looks) >= 2;
  }

  /** The state of a rank, and for how long it has been without progress. */
  private standing(rank: number, passed: number): Standing {
    const { progress, state, looks } = this.control.position(rank);
    const before = this.last[rank];
    const seconds = before?.progress === progress ? before.seconds + passed : 0;
    this.last[rank] = { progress, seconds };
    return { rank, state, seconds, looks };
  }
}
