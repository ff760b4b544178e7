/**
 * @file The user's limit in seconds (`--time-limit`), and interruption: long work checks them between two of its steps.
 */
import { setImmediate } from 'node:timers/promises';

/** The time is over. The answer is the best one found until then. */
export class OutOfTime extends Error {
  override readonly name = 'OutOfTime';
}

/** Milliseconds between two turns of the event loop. */
const TURN = 50;

export class Deadline {
  private readonly until: number;
  private turn = performance.now();

  /** @param seconds from now on; unlimited if left out */
  constructor(
    seconds = Infinity,
    readonly signal?: AbortSignal,
  ) {
    this.until = performance.now() + seconds * 1000;
  }

  /** Seconds that are left; Infinity without a limit, never negative. */
  left(): number {
    return Math.max(0, (this.until - performance.now()) / 1000);
  }

  isOver(): boolean {
    return performance.now() >= this.until;
  }

  /** @throws OutOfTime once the time is over */
  check(): void {
    if (this.isOver()) throw new OutOfTime('the time limit is over');
  }

  /** Whether a pause is due: cheap enough for frequent calls, it costs a look at the clock. */
  isTurn(): boolean {
    return performance.now() - this.turn >= TURN || this.isOver();
  }

  /**
   * Yields to the event loop from time to time, so that an interruption can arrive.
   * @throws OutOfTime; the signal's reason where it was given
   */
  async pause(): Promise<void> {
    this.check();
    if (performance.now() - this.turn < TURN) return;
    await setImmediate();
    this.turn = performance.now();
    this.signal?.throwIfAborted();
  }
}
