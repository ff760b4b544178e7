/**
 * @file Bytes seen as numbers: which typed array holds each dtype.
 */
import type { DType } from '../ir/dtype.js';

export type NumberArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array;

type ArrayMaker = new (buffer: ArrayBufferLike, byteOffset: number, length: number) => NumberArray;

/** sixteen-bit floats are their patterns, 4-bit types their packed bytes; complex values are (real, imaginary) pairs. */
const ARRAYS: Readonly<Record<Exclude<DType, 'string'>, ArrayMaker & { readonly BYTES_PER_ELEMENT: number }>> = {
  float32: Float32Array,
  float64: Float64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  float8e4m3fn: Uint8Array,
  float8e4m3fnuz: Uint8Array,
  float8e5m2: Uint8Array,
  float8e5m2fnuz: Uint8Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  bool: Uint8Array,
  complex64: Float32Array,
  complex128: Float64Array,
  int4: Uint8Array,
  uint4: Uint8Array,
};

/** A typed array over `bytes`: a view where they are aligned for it, else over a copy. Strings have none. */
export function typedView(dtype: DType, bytes: Uint8Array): NumberArray {
  if (dtype === 'string') throw new Error('strings have no numeric view');
  const make = ARRAYS[dtype];
  // A Buffer would slice without copying.
  const aligned = bytes.byteOffset % make.BYTES_PER_ELEMENT === 0 ? bytes : new Uint8Array(bytes);
  return new make(aligned.buffer, aligned.byteOffset, aligned.byteLength / make.BYTES_PER_ELEMENT);
}

/** The bytes that a typed array looks at, without copying. */
export function asBytes(array: ArrayBufferView): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

/** Fresh memory that is not cleared: every byte must be written by the caller. Not pooled, hence aligned. */
export function allocate(bytes: number): Uint8Array {
  const buffer = Buffer.allocUnsafeSlow(bytes);
  return new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
}
