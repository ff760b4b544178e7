/**
 * @file The arrays of a data file, opened to be read in slices: .npy, .npz as numpy.savez writes it, and raw tokens.
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { byteLength, type DType } from '../ir/dtype.js';
import { AutoparError } from '../ir/error.js';
import { elementCount } from '../ir/graph.js';
import { MOST_HEADER_BYTES, readNpyHeader, swapBytes } from '../program/arrays/npy.js';
import { allocate } from '../program/typed.js';
import { npzMembers } from './npz-members.js';

/** The types that a file of raw tokens may have; little-endian. */
export const TOKEN_TYPES = ['uint16', 'uint32'] as const;
export type TokenType = (typeof TOKEN_TYPES)[number];

/** An array in a file. */
export interface SlicedArray {
  /** The file, and of an .npz the array in it; for errors. */
  readonly place: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  /** Bytes of `count` elements from `element` on, rows first. */
  readonly read: (element: number, count: number) => Uint8Array;
}

export interface DataFile {
  readonly file: string;
  /** Arrays of an .npz by name; the only array of other files has the name ''. */
  readonly arrays: ReadonlyMap<string, SlicedArray>;
  readonly close: () => void;
}

/**
 * Opens a file and reads its headers. Whatever is neither .npy nor .npz holds tokens of `tokenType`.
 * @throws AutoparError (input) `missing-data`, `bad-array`, `compressed-data`
 */
export function openDataFile(file: string, tokenType: TokenType): DataFile {
  const descriptor = opened(file);
  const close = () => closeSync(descriptor);
  try {
    const { size } = fstatSync(descriptor);
    return { file, arrays: arraysIn(descriptor, size, file, tokenType), close };
  } catch (error) {
    close();
    throw error;
  }
}

function opened(file: string): number {
  try {
    const descriptor = openSync(file, 'r');
    if (!fstatSync(descriptor).isDirectory()) return descriptor;
    closeSync(descriptor);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const reason = code === 'ENOENT' ? 'does not exist' : `cannot be read (${code ?? message})`;
    throw new AutoparError('missing-data', 'input', `${file} ${reason}`, { file }, 'check the path');
  }
  throw new AutoparError('missing-data', 'input', `${file} is a folder`, { file }, 'name the files in it');
}

function arraysIn(
  descriptor: number,
  size: number,
  file: string,
  tokenType: TokenType,
): ReadonlyMap<string, SlicedArray> {
  if (file.endsWith('.npz'))
    return new Map(
      npzMembers(descriptor, size, file).map(({ name, start, bytes }) => [
        name,
        npyArray(descriptor, `${file}:${name}`, start, bytes),
      ]),
    );
  if (file.endsWith('.npy')) return new Map([['', npyArray(descriptor, file, 0, size)]]);
  const width = byteLength(tokenType, 1);
  if (size % width !== 0)
    throw new AutoparError(
      'bad-array',
      'input',
      `${file} has ${size} bytes, which is not a whole number of ${tokenType} tokens`,
      { file },
      'set the type of its tokens: --token-type uint16 or uint32; files with arrays must end in .npy or .npz',
    );
  if (tokenType === 'uint16' && isOfWideTokens(descriptor, size, file))
    throw new AutoparError(
      'bad-array',
      'input',
      `${file} has zero in every second uint16, as tokens of uint32 have`,
      { file },
      'set the type of its tokens: --token-type uint32',
    );
  const shape = [size / width];
  return new Map([['', { place: file, dtype: tokenType, shape, read: sliceReader(descriptor, file, 0, width, null) }]]);
}

/** Tokens at the beginning of a file that tell their type, and how few tell nothing. */
const TELLING = { most: 4096, least: 64 };

/** Whether a file has small numbers of 32 bits: in little-endian 16 bits the second of two is always zero, the first is not. */
function isOfWideTokens(descriptor: number, size: number, file: string): boolean {
  const bytes = new Uint8Array(Math.min(size - (size % 4), 4 * TELLING.most));
  if (bytes.length < 4 * TELLING.least) return false;
  readFully(descriptor, bytes, 0, file);
  const isZero = (at: number) => bytes[at] === 0 && bytes[at + 1] === 0;
  const places = Array.from({ length: bytes.length / 4 }, (_, token) => 4 * token);
  return places.every((at) => isZero(at + 2)) && places.some((at) => !isZero(at));
}

function npyArray(descriptor: number, place: string, start: number, bytes: number): SlicedArray {
  const head = new Uint8Array(Math.min(bytes, MOST_HEADER_BYTES));
  readFully(descriptor, head, start, place);
  const { dtype, shape, start: data, swapped, fortran } = readNpyHeader(head, place);
  if (fortran)
    throw new AutoparError(
      'bad-array',
      'input',
      `${place} is stored column by column, and a sample is not contiguous`,
      { file: place },
      'save numpy.ascontiguousarray(array)',
    );
  const expected = byteLength(dtype, elementCount(shape));
  if (!(bytes - data >= expected))
    throw new AutoparError(
      'bad-array',
      'input',
      `${place} is truncated: ${dtype} [${shape.join(', ')}] needs ${expected} bytes, ${bytes - data} are there`,
      { file: place },
      'write it again with numpy.save',
    );
  const width = byteLength(dtype, 1);
  return { place, dtype, shape, read: sliceReader(descriptor, place, start + data, width, swapped) };
}

function sliceReader(
  descriptor: number,
  place: string,
  start: number,
  width: number,
  swapped: number | null,
): SlicedArray['read'] {
  return (element, count) => {
    const bytes = allocate(count * width);
    readFully(descriptor, bytes, start + element * width, place);
    if (swapped !== null) swapBytes(bytes, swapped);
    return bytes;
  };
}

/** @throws AutoparError `bad-array` where the file ends before */
function readFully(descriptor: number, bytes: Uint8Array, position: number, place: string): void {
  for (let done = 0; done < bytes.byteLength; ) {
    const some = readSync(descriptor, bytes, done, bytes.byteLength - done, position + done);
    if (some === 0)
      throw new AutoparError(
        'bad-array',
        'input',
        `${place} ends before its data: the file shrank while it was read`,
        { file: place },
        'train again, and do not change the file during the run',
      );
    done += some;
  }
}
