/**
 * @file Memory for the results of segments and collectives, used again once the tensor that held it is freed.
 *
 * Fresh memory costs a page fault every 4 KiB, ten times what copying it costs, and memory that a garbage collector
 * must find comes back late: the next result then goes to cold memory, and more is held than is live.
 */
import { allocate } from '../program/typed.js';

/** A buffer may be this many times as large as what is put into it; a larger one is left for larger results. */
const SLACK = 2;

export class BufferPool {
  /** Ascending by size. */
  private readonly idle: Uint8Array[] = [];
  private readonly taken = new Map<string, Uint8Array>();

  /** Uncleared memory for a tensor: the smallest idle buffer that is large enough and not much too large, or a new one. */
  take(tensor: string, bytes: number): Uint8Array {
    const index = this.idle.findIndex((buffer) => buffer.byteLength >= bytes);
    const found = this.idle[index];
    const fits = found !== undefined && found.byteLength <= SLACK * bytes;
    if (fits) this.idle.splice(index, 1);
    const buffer = fits ? found : allocate(bytes);
    this.taken.set(tensor, buffer);
    return buffer.byteLength === bytes ? buffer : buffer.subarray(0, bytes);
  }

  /** The tensor's memory, if it came from here, may be used again. */
  giveBack(tensor: string): void {
    const buffer = this.taken.get(tensor);
    if (!buffer) return;
    this.taken.delete(tensor);
    const index = this.idle.findIndex((other) => other.byteLength >= buffer.byteLength);
    this.idle.splice(index < 0 ? this.idle.length : index, 0, buffer);
  }
}
