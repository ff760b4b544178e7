/**
 * @file A rank's file for tensors that are stored on disk: ranges written and read by position, freed ranges reused. The file
 * is private and has no name once it is open, so that it disappears however the process ends.
 */
import { closeSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import path from 'node:path';
import { AutoparError } from '../program/values.js';

/** Where a tensor is in the file. */
export class FileRange {
  constructor(
    readonly offset: number,
    readonly bytes: number,
  ) {}
}

export class DiskFile {
  private readonly descriptor: number;
  /** Free ranges before `end`, ascending, no two adjacent. */
  private free: FileRange[] = [];
  private end = 0;
  /** Bytes of tensors in the file. */
  private kept = 0;

  /** @param folder that ranks of this session alone write to. @throws AutoparError `offload-folder` (cannotWrite) */
  constructor(
    private readonly folder: string,
    private readonly rank: number,
  ) {
    const file = path.join(folder, `rank-${rank}`);
    this.descriptor = this.attempt(`a file of rank ${rank}`, () => openSync(file, 'wx+', 0o600));
    this.attempt(`a file of rank ${rank}`, () => rmSync(file));
  }

  /** Writes a tensor. @throws AutoparError `offload-folder` (cannotWrite) where there is no room, naming it */
  write(tensor: string, data: Uint8Array): FileRange {
    const range = this.take(data.byteLength);
    this.overwrite(tensor, range, data);
    this.kept += range.bytes;
    return range;
  }

  overwrite(tensor: string, { offset, bytes }: FileRange, data: Uint8Array): void {
    this.attempt(`tensor ${tensor} (${bytes} bytes, beside ${this.kept} of rank ${this.rank})`, () => {
      for (let done = 0; done < bytes; ) done += writeSync(this.descriptor, data, done, bytes - done, offset + done);
    });
  }

  read(tensor: string, { offset, bytes }: FileRange, into: Uint8Array): void {
    this.attempt(`tensor ${tensor} (${bytes} bytes)`, () => {
      for (let done = 0; done < bytes; ) {
        const got = readSync(this.descriptor, into, done, bytes - done, offset + done);
        if (got === 0) throw new Error(`its file ends at ${offset + done}`);
        done += got;
      }
    });
  }

  release({ offset, bytes }: FileRange): void {
    if (bytes === 0) return;
    this.kept -= bytes;
    const index = this.free.findIndex((range) => range.offset > offset);
    const at = index < 0 ? this.free.length : index;
    const [before, after] = [this.free[at - 1], this.free[at]];
    const joinsBefore = before !== undefined && before.offset + before.bytes === offset;
    const joinsAfter = after !== undefined && offset + bytes === after.offset;
    const from = joinsBefore ? before.offset : offset;
    const to = joinsAfter ? after.offset + after.bytes : offset + bytes;
    this.free.splice(
      joinsBefore ? at - 1 : at,
      Number(joinsBefore) + Number(joinsAfter),
      new FileRange(from, to - from),
    );
  }

  close(): void {
    closeSync(this.descriptor);
  }

  /** The first free range that is large enough, or the file's end. */
  private take(bytes: number): FileRange {
    const index = this.free.findIndex((range) => range.bytes >= bytes);
    const found = this.free[index];
    if (!found) {
      this.end += bytes;
      return new FileRange(this.end - bytes, bytes);
    }
    const rest = found.bytes - bytes;
    this.free.splice(index, 1, ...(rest > 0 ? [new FileRange(found.offset + bytes, rest)] : []));
    return new FileRange(found.offset, bytes);
  }

  private attempt<Result>(what: string, act: () => Result): Result {
    try {
      return act();
    } catch (error) {
      throw folderError(this.folder, what, error);
    }
  }
}

/** Why a folder cannot store offloaded tensors. */
export function folderError(folder: string, what: string, error: unknown): AutoparError {
  const { code = '', message } = error as NodeJS.ErrnoException;
  const reason = REASONS[code] ?? message;
  return new AutoparError(
    'offload-folder',
    'cannotWrite',
    `the offload folder ${path.dirname(folder)} cannot store ${what}: ${reason}`,
    { file: path.dirname(folder) },
    'choose a folder with more room (--offload-dir), or compile with --offload PART:host',
  );
}

const REASONS: Readonly<Record<string, string>> = {
  ENOSPC: 'no space is left on it',
  EDQUOT: 'the quota is used up',
  EFBIG: 'its file system does not support files of that size',
  EROFS: 'it is read-only',
  EACCES: 'it may not be written to',
  EPERM: 'it may not be written to',
  ENOENT: 'it does not exist',
  ENOTDIR: 'it is not a folder',
};
