/**
 * @file Giving Ctrl-C its turn: work that never waits keeps the event loop, and a signal is not seen until it ends.
 */
import { setImmediate } from 'node:timers/promises';

/** A turn of the event loop between two long pieces of work. @throws the signal's reason where it was given */
export async function interruptible(signal: AbortSignal | undefined): Promise<void> {
  await setImmediate();
  signal?.throwIfAborted();
}
