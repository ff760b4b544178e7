/**
 * @file Making the C library keep freed memory instead of giving it back to the system.
 *
 * onnxruntime-node copies every result into a fresh JavaScript buffer, also where it has written it to memory that it was
 * given. glibc takes a large buffer from the system and returns it when it is freed: a page fault for every 4 KiB of every
 * result (measured: 1.4 ms for 4 MiB, in a segment of 4.7 ms). Once a buffer of some size has been freed, though, glibc
 * serves all up to that size (at most 32 MiB) from memory that it keeps. So one is freed before the first step.
 *
 * Other C libraries, and larger buffers, are no worse off than before.
 */
import { MessageChannel } from 'node:worker_threads';

/** Just below glibc's largest; it is never touched, so it costs address space for a moment and nothing else. */
const BYTES = 31 << 20;

/** Process-wide. Takes effect a moment after it returns: closing a channel frees the buffer in it. */
export function keepFreedMemory(): void {
  const { port1, port2 } = new MessageChannel();
  const buffer = new ArrayBuffer(BYTES);
  port1.postMessage(null, [buffer]);
  port2.close();
  port1.close();
}
