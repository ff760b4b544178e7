/**
 * @file Handling of Ctrl-C: work that never waits blocks the event loop, and a system signal with a listener is not seen until it
 * ends. So the command listens only while something must be cleaned up, and the work states when that is; at any other time a
 * signal ends the process at once by the system's default action, whatever blocks the thread.
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
 * Does work that leaves something to clean up when it is interrupted, and that yields to the event loop often: while it runs,
 * signals of the system abort `signal`.
 */
export async function listening<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
  signal?.dispatchEvent(new Event(LISTEN.start));
  try {
    return await work();
  } finally {
    // Signals that came in the meantime are delivered in the next turn.
    await setImmediate();
    signal?.dispatchEvent(new Event(LISTEN.end));
  }
}
