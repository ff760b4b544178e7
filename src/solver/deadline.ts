/**
 * @file The user's limit in seconds (`--time-limit`), and interruption: what long work asks between two of its steps.
 */
import { setImmediate } from 'node:timers/promises';

/** The time is over. What was found until then is what there is. */
export class OutOfTime extends Error {
  override readonly name = 'OutOfTime';
}

/** Milliseconds between two turns of the event loop. */
const TURN = 50;

export class Deadline {
  private readonly until: number;
  private turn = performance.now();

  /** @param seconds from now on; left out, there is no limit */
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

  /** Whether a pause is due: asked often, it costs a look at the clock. */
  isTurn(): boolean {
    return performance.now() - this.turn >= TURN || this.isOver();
  }

  /**
   * Gives an interruption its turn, now and then.
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
