/**
 * @file A file seen through a window: positioned reads of a few KiB at first and after a jump, of up to 4 MiB while
 * reading goes on, so that only the parts between the weights of a file are read.
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

const SMALLEST = 16 * 1024;
const LARGEST = 4 * 1024 * 1024;

/** Has the identity of an open file; `close` it when done. */
export class FileWindow {
  /** Bytes of the file. */
  readonly size: number;
  private readonly file: number;
  private held: Uint8Array = new Uint8Array(0);
  private start = 0;
  private reach = SMALLEST;

  /** Throws Node's own errors where the file cannot be opened. */
  constructor(readonly path: string) {
    this.file = openSync(path, 'r');
    this.size = fstatSync(this.file).size;
  }

  close(): void {
    closeSync(this.file);
  }

  /** The byte at `offset`. @throws RangeError beyond the end of the file */
  byte(offset: number): number {
    if (offset < this.start || offset >= this.start + this.held.length) this.load(offset);
    return this.held[offset - this.start] as number;
  }

  /** `length` bytes from `offset` on; the window stays where it is. @throws RangeError beyond the end of the file */
  bytes(offset: number, length: number): Uint8Array {
    const from = offset - this.start;
    if (from >= 0 && from + length <= this.held.length) return this.held.subarray(from, from + length);
    return this.read(offset, length);
  }

  private load(offset: number): void {
    const gap = offset - (this.start + this.held.length);
    const onwards = gap >= 0 && gap < this.held.length;
    this.reach = onwards ? Math.min(this.reach * 2, LARGEST) : SMALLEST;
    this.held = this.read(offset, Math.max(1, Math.min(this.reach, this.size - offset)));
    this.start = offset;
  }

  private read(offset: number, length: number): Uint8Array {
    if (offset + length > this.size) throw new RangeError(`byte ${offset + length} is beyond the end of the file`);
    const bytes = Buffer.allocUnsafeSlow(length);
    readFully(this.file, bytes, offset);
    return bytes;
  }
}

/** Largest single read: the system's limit is just below 2 GiB. */
const ONE_READ = 2 ** 30;

/** Fills `into` from `offset` of an open file on. @throws RangeError where the file ends before */
export function readFully(file: number, into: Uint8Array, offset: number): void {
  for (let done = 0; done < into.length; ) {
    const count = readSync(file, into, done, Math.min(into.length - done, ONE_READ), offset + done);
    if (count === 0) throw new RangeError(`byte ${offset + done + 1} is beyond the end of the file`);
    done += count;
  }
}
