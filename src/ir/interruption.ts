/**
 * @file Giving Ctrl-C its turn: work that never waits keeps the event loop, and a signal of the system that is listened for is
 * not seen until it ends. So the command listens only while something must be tidied up, and work says when that is; at any other
 * time a signal ends the process by the system's own action, at once, whatever keeps the thread.
 */
import { setImmediate } from 'node:timers/promises';

/** Events of an abort signal: whoever aborts it listens for signals of the system from the first to the second. */
export const LISTEN = { start: 'autopar:listen', end: 'autopar:deaf' } as const;

/** A turn of the event loop between two long pieces of work. @throws the signal's reason where it was given */
export async function interruptible(signal: AbortSignal | undefined): Promise<void> {
  await setImmediate();
  signal?.throwIfAborted();
}

/**
 * Does work that leaves something to be tidied up when it is interrupted, and that gives way to the event loop often: while it
 * runs, signals of the system abort `signal`.
 */
export async function listening<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
  signal?.dispatchEvent(new Event(LISTEN.start));
  try {
    return await work();
  } finally {
    // What came in the meantime is delivered in the next turn.
    await setImmediate();
    signal?.dispatchEvent(new Event(LISTEN.end));
  }
}
