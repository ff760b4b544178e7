/**
 * @file Memory for the results of segments and collectives, used again once the tensor that held it is freed.
 *
 * Fresh memory costs a page fault every 4 KiB, ten times the cost of copying it, and memory that a garbage collector
 * must find comes back late: the next result then goes to cold memory, and more is held than is live.
 */
import { allocate } from '../program/typed.js';

/** A buffer may be this many times as large as its content; a larger one is left for larger results. */
const SLACK = 2;

export class BufferPool {
  /** Ascending by size. */
  private readonly idle: Uint8Array[] = [];

  /** Uncleared memory of `bytes` or more: the smallest idle buffer that is large enough and not much too large, or a new one. */
  take(bytes: number): Uint8Array {
    const index = this.idle.findIndex((buffer) => buffer.byteLength >= bytes);
    const found = this.idle[index];
    if (found === undefined || found.byteLength > SLACK * bytes) return allocate(bytes);
    this.idle.splice(index, 1);
    return found;
  }

  /** A buffer that `take` gave may be used again. */
  giveBack(buffer: Uint8Array): void {
    const index = this.idle.findIndex((other) => other.byteLength >= buffer.byteLength);
    this.idle.splice(index < 0 ? this.idle.length : index, 0, buffer);
  }
}
