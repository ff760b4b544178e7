/**
 * @file NumPy's .npy: one array in one file.
 *
 *     \x93NUMPY  major minor  header length (2 bytes, from version 2 on 4)  a Python literal, padded to 64 bytes  data
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *
 * NumPy has no bfloat16: it is written as uint16 patterns (`npyNote` says so) and read from uint16 or the two-byte void
 * type that the ml_dtypes package writes. float8 is written as uint8 patterns likewise.
 */
import { byteLength, type DType } from '../../ir/dtype.js';
import { AutoparError } from '../../ir/error.js';
import { type ConstantTensor, elementCount } from '../../ir/graph.js';

/** The header of a .npy file, and where the data begins. */
export interface NpyHeader {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly start: number;
  /** The unit in which bytes stand in reverse order; null where they do not. */
  readonly swapped: number | null;
  /** Whether the first dimension varies fastest. */
  readonly fortran: boolean;
}

/** Bytes with which every header of version 1.0, and every sensible one of later versions, is whole. */
export const MOST_HEADER_BYTES = 2 ** 16 + 12;

/** Reads the header at the beginning of `bytes`. Throws AutoparError `bad-array` (exit input). */
export function readNpyHeader(bytes: Uint8Array, name: string): NpyHeader {
  if (bytes.byteLength < 10 || !MAGIC.every((byte, index) => bytes[index] === byte)) {
    throw bad(name, 'is not a .npy file', 'write it with numpy.save');
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const long = (bytes[6] as number) > 1;
  if (long && bytes.byteLength < 12) throw bad(name, 'ends inside its header');
  const length = long ? view.getUint32(8, true) : view.getUint16(8, true);
  const start = (long ? 12 : 10) + length;
  if (start > bytes.byteLength) throw bad(name, 'ends inside its header');
  const header = Buffer.from(bytes.subarray(long ? 12 : 10, start)).toString('utf8');
  const { descriptor, fortran, shape } = parseHeader(header, name);
  const { dtype, width, swapped } = parseDescriptor(descriptor, name);
  return { dtype, shape, start, swapped: swapped ? width : null, fortran: fortran && shape.length > 1 };
}

/** The array of a .npy file's bytes. `name` (a file name, or an archive member's) is for errors: exit input. */
export function readNpy(bytes: Uint8Array, name: string): ConstantTensor {
  const { dtype, shape, start, swapped, fortran } = readNpyHeader(bytes, name);
  const expected = byteLength(dtype, elementCount(shape));
  // An infinite size times 0 is NaN.
  if (!(bytes.byteLength - start >= expected)) {
    throw bad(
      name,
      `is truncated: ${dtype} [${shape.join(', ')}] needs ${expected} bytes, ${bytes.byteLength - start} are there`,
    );
  }
  let data: Uint8Array = bytes.slice(start, start + expected);
  if (swapped !== null) swapBytes(data, swapped);
  if (fortran) data = rowMajor(data, shape, byteLength(dtype, 1));
  return { dtype, shape, data };
}

/** A .npy file (version 1.0, as numpy.save writes it) of a tensor. Strings and 4-bit types are refused. */
export function writeNpy(tensor: ConstantTensor): Uint8Array {
  const descriptor = DESCRIPTORS[tensor.dtype];
  if (!descriptor) {
    throw new AutoparError(
      'unsupported-dtype',
      'input',
      `a .npy file cannot hold ${tensor.dtype}`,
      {},
      'choose another output',
    );
  }
  const shape = tensor.shape.length === 1 ? `(${tensor.shape[0]},)` : `(${tensor.shape.join(', ')})`;
  const literal = `{'descr': '${descriptor}', 'fortran_order': False, 'shape': ${shape}, }`;
  const padded = Math.ceil((10 + literal.length + 1) / 64) * 64 - 10;
  const file = Buffer.alloc(10 + padded + tensor.data.byteLength, ' ');
  file.set(MAGIC, 0);
  file.set([1, 0], 6);
  file.writeUInt16LE(padded, 8);
  file.write(literal, 10, 'latin1');
  file.write('\n', 10 + padded - 1, 'latin1');
  file.set(tensor.data, 10 + padded);
  return new Uint8Array(file.buffer, file.byteOffset, file.byteLength);
}

/** A note for readers of the file about a dtype that NumPy lacks; null for all others. */
export function npyNote(dtype: DType): string | null {
  if (dtype === 'bfloat16') return 'bfloat16 is written as uint16 patterns, for NumPy has no such type';
  if (dtype.startsWith('float8')) return `${dtype} is written as uint8 patterns, for NumPy has no such type`;
  return null;
}

const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59];

const DESCRIPTORS: Readonly<Partial<Record<DType, string>>> = {
  float16: '<f2',
  float32: '<f4',
  float64: '<f8',
  int8: '|i1',
  int16: '<i2',
  int32: '<i4',
  int64: '<i8',
  uint8: '|u1',
  uint16: '<u2',
  uint32: '<u4',
  uint64: '<u8',
  bool: '|b1',
  complex64: '<c8',
  complex128: '<c16',
  bfloat16: '<u2',
  float8e4m3fn: '|u1',
  float8e4m3fnuz: '|u1',
  float8e5m2: '|u1',
  float8e5m2fnuz: '|u1',
};

/** Kind and size → dtype; `width` is the unit that byte order applies to. */
const KINDS: Readonly<Record<string, readonly [dtype: DType, width: number]>> = {
  f2: ['float16', 2],
  f4: ['float32', 4],
  f8: ['float64', 8],
  i1: ['int8', 1],
  i2: ['int16', 2],
  i4: ['int32', 4],
  i8: ['int64', 8],
  u1: ['uint8', 1],
  u2: ['uint16', 2],
  u4: ['uint32', 4],
  u8: ['uint64', 8],
  b1: ['bool', 1],
  c8: ['complex64', 4],
  c16: ['complex128', 8],
  V2: ['bfloat16', 2],
};

function parseHeader(text: string, name: string): { descriptor: string; fortran: boolean; shape: number[] } {
  const descriptor = /'descr'\s*:\s*'([^']*)'/.exec(text)?.[1];
  const order = /'fortran_order'\s*:\s*(True|False)/.exec(text)?.[1];
  const dimensions = /'shape'\s*:\s*\(([^)]*)\)/.exec(text)?.[1];
  if (/'descr'\s*:\s*\[/.test(text)) throw bad(name, 'holds records with named fields', 'save plain numeric arrays');
  if (descriptor === undefined || order === undefined || dimensions === undefined)
    throw bad(name, 'has a malformed header');
  const shape = dimensions
    .split(',')
    .flatMap((part) => (part.trim() === '' ? [] : [Number(part.trim().replace(/L$/, ''))]));
  if (!shape.every((size) => Number.isSafeInteger(size) && size >= 0)) throw bad(name, 'has a malformed shape');
  return { descriptor, fortran: order === 'True', shape };
}

function parseDescriptor(descriptor: string, name: string): { dtype: DType; width: number; swapped: boolean } {
  const [, order, kind] = /^([<>|=]?)(.+)$/.exec(descriptor) ?? [];
  const found = kind === undefined ? undefined : KINDS[kind];
  if (!found) {
    throw bad(name, `holds elements of NumPy type '${descriptor}', which no tensor has`, 'save numbers or booleans');
  }
  return { dtype: found[0], width: found[1], swapped: order === '>' };
}

/** Reverses the bytes of every `width`, in place. */
export function swapBytes(data: Uint8Array, width: number): void {
  for (let at = 0; width > 1 && at + width <= data.byteLength; at += width) data.subarray(at, at + width).reverse();
}

/** Column-major to row-major. */
function rowMajor(data: Uint8Array, shape: readonly number[], width: number): Uint8Array {
  const result = new Uint8Array(data.byteLength);
  const strides: number[] = [];
  for (let index = 0, stride = 1; index < shape.length; index++) {
    strides.push(stride);
    stride *= shape[index] as number;
  }
  const counter = new Array<number>(shape.length).fill(0);
  let source = 0;
  for (let at = 0; at < data.byteLength; at += width) {
    for (let byte = 0; byte < width; byte++) result[at + byte] = data[source * width + byte] as number;
    for (let dimension = shape.length - 1; dimension >= 0; dimension--) {
      const count = (counter[dimension] as number) + 1;
      source += strides[dimension] as number;
      if (count < (shape[dimension] as number)) {
        counter[dimension] = count;
        break;
      }
      source -= count * (strides[dimension] as number);
      counter[dimension] = 0;
    }
  }
  return result;
}

function bad(name: string, what: string, hint = 'write it again with numpy.save'): AutoparError {
  return new AutoparError('bad-array', 'input', `${name} ${what}`, { file: name }, hint);
}
