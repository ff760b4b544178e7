/**
 * @file The control buffer: shared memory in which ranks report their position, meet at barriers, and see the stop flag.
 *
 *     word 0  stop           1 once the run is over for whatever reason
 *     word 1  arrived        ranks at the current barrier
 *     word 2  barriers       barriers passed so far
 *     then per rank, a cache line each: state, progress, action, instruction, looks
 */

/**
 * `loading`, `running` and `computing` are a rank's own work; `waiting` is for another rank's; an `idle` one has no command.
 * While it loads or computes a native library holds the thread: ending the thread then would abort the process, so a rank must
 * leave these states first. None enters `computing` after the stop flag is set.
 */
export const RANK_STATES = ['loading', 'running', 'computing', 'waiting', 'idle', 'finished'] as const;

export type RankState = (typeof RANK_STATES)[number];

/** Where a rank is; `progress` grows with everything it does. */
export interface RankPosition {
  readonly state: RankState;
  readonly progress: number;
  /** How often it has found, while it waits, that the data it waits for have not arrived. */
  readonly looks: number;
  /** Index in the rank's list of actions and in the phase's list of instructions; -1 before the first. */
  readonly action: number;
  readonly instruction: number;
}

/** Thrown in a rank that sees the stop flag: not a failure of its own. */
export class Stopped extends Error {}

export function makeControlBuffer(ranks: number): SharedArrayBuffer {
  return new SharedArrayBuffer((HEADER + ranks * LINE) * Int32Array.BYTES_PER_ELEMENT);
}

export class Control {
  private readonly words: Int32Array;

  constructor(
    buffer: SharedArrayBuffer,
    private readonly ranks: number,
  ) {
    this.words = new Int32Array(buffer);
  }

  /** Sets the stop flag for all ranks; those that wait notice within a tenth of a second. */
  stop(): void {
    Atomics.store(this.words, STOP, 1);
    Atomics.notify(this.words, STOP);
  }

  get isStopped(): boolean {
    return Atomics.load(this.words, STOP) !== 0;
  }

  /** Sleeps for so long; a rank that does makes progress. Throws Stopped when the stop flag is set. */
  pause(rank: number, milliseconds: number): void {
    const until = performance.now() + milliseconds;
    for (let left = milliseconds; left > 0; left = until - performance.now()) {
      Atomics.wait(this.words, STOP, 0, Math.min(left, STOP_CHECK_MILLISECONDS));
      Atomics.add(this.words, HEADER + rank * LINE + PROGRESS, 1);
      if (Atomics.load(this.words, STOP) !== 0) throw new Stopped();
    }
  }

  position(rank: number): RankPosition {
    const at = HEADER + rank * LINE;
    return {
      state: RANK_STATES[Atomics.load(this.words, at + STATE)] as RankState,
      progress: Atomics.load(this.words, at + PROGRESS),
      looks: Atomics.load(this.words, at + LOOKS),
      action: Atomics.load(this.words, at + ACTION) - 1,
      instruction: Atomics.load(this.words, at + INSTRUCTION) - 1,
    };
  }

  enter(rank: number, state: RankState): void {
    const at = HEADER + rank * LINE;
    Atomics.store(this.words, at + STATE, RANK_STATES.indexOf(state));
    Atomics.add(this.words, at + PROGRESS, 1);
  }

  /** Enters a state in which native code may run. Throws Stopped, never entering it, when the stop flag is set. */
  enterNative(rank: number, state: 'loading' | 'computing'): void {
    this.enter(rank, state);
    if (Atomics.load(this.words, STOP) === 0) return;
    this.enter(rank, 'running');
    throw new Stopped();
  }

  /** Records the instruction that the rank begins. Throws Stopped when the stop flag is set. */
  begin(rank: number, action: number, instruction: number): void {
    const at = HEADER + rank * LINE;
    Atomics.store(this.words, at + ACTION, action + 1);
    Atomics.store(this.words, at + INSTRUCTION, instruction + 1);
    Atomics.add(this.words, at + PROGRESS, 1);
    if (Atomics.load(this.words, STOP) !== 0) throw new Stopped();
  }

  /**
   * Blocks the thread until a counter has reached `target`. Gives the milliseconds blocked. Throws Stopped.
   * Tries a few times first: a wait that is nearly over costs no sleep.
   */
  blockUntil(rank: number, counters: Int32Array, index: number, target: number): number {
    for (let attempt = 0; attempt < SPINS; attempt++) if (Atomics.load(counters, index) - target >= 0) return 0;
    const from = performance.now();
    this.enter(rank, 'waiting');
    for (;;) {
      const seen = Atomics.load(counters, index);
      if (seen - target >= 0) break;
      this.lookedInVain(rank);
      if (Atomics.load(this.words, STOP) !== 0) throw new Stopped();
      Atomics.wait(counters, index, seen, STOP_CHECK_MILLISECONDS);
    }
    this.enter(rank, 'running');
    return performance.now() - from;
  }

  /** Counts that a waiting rank ran, and that the data it waits for had not arrived. */
  lookedInVain(rank: number): void {
    Atomics.add(this.words, HEADER + rank * LINE + LOOKS, 1);
  }

  /** Blocks until all ranks are here. Gives the milliseconds blocked. Throws Stopped. */
  barrier(rank: number): number {
    const passed = Atomics.load(this.words, BARRIERS);
    if (Atomics.add(this.words, ARRIVED, 1) === this.ranks - 1) {
      Atomics.store(this.words, ARRIVED, 0);
      Atomics.add(this.words, BARRIERS, 1);
      Atomics.notify(this.words, BARRIERS);
      return 0;
    }
    return this.blockUntil(rank, this.words, BARRIERS, passed + 1);
  }
}

const STOP = 0;
const ARRIVED = 1;
const BARRIERS = 2;
const HEADER = 16;
const LINE = 16;
const STATE = 0;
const PROGRESS = 1;
const ACTION = 2;
const INSTRUCTION = 3;
const LOOKS = 4;
const SPINS = 200;
const STOP_CHECK_MILLISECONDS = 100;
