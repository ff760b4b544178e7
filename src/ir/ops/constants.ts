/**
 * @file Small constants that expansions read, encoded in the dtype of the operands around them.
 */
import { byteLength, type DType } from '../dtype.js';
import type { ConstantTensor, Weight } from '../graph.js';
import { elementCount } from '../graph.js';
import { BFLOAT16, FLOAT16 } from '../half.js';

/** A tensor of numbers in `dtype`: integer, floating or bool types of 8 bits and more, float8 excepted. */
export function constant(dtype: DType, values: readonly number[], shape: readonly number[] = []): ConstantTensor {
  const data = new Uint8Array(byteLength(dtype, elementCount(shape)));
  const write = WRITERS[dtype];
  if (!write) throw new Error(`no constants of type ${dtype}`);
  const bytes = data.length / Math.max(1, values.length);
  const target = new DataView(data.buffer);
  for (const [index, value] of values.entries()) write(target, index * bytes, value);
  return { dtype, shape, data };
}

/** Whether `constant` makes tensors of a type. */
export function hasConstants(dtype: DType): boolean {
  return WRITERS[dtype] !== undefined;
}

/** A constant as a weight of a graph. */
export function constantWeight({ dtype, shape, data }: ConstantTensor): Weight {
  return { dtype, shape, role: 'constant', source: { kind: 'inline', data } };
}

/** The numbers that a constant of a plain dtype holds. */
export function numbersOf(value: ConstantTensor): readonly number[] {
  const read = READERS[value.dtype];
  if (!read) throw new Error(`no numbers in ${value.dtype}`);
  const count = elementCount(value.shape);
  const bytes = value.data.length / Math.max(1, count);
  const source = new DataView(value.data.buffer, value.data.byteOffset, value.data.byteLength);
  return Array.from({ length: count }, (_, index) => read(source, index * bytes));
}

type Write = (target: DataView, offset: number, value: number) => void;
type ReadElement = (source: DataView, offset: number) => number;

const WRITERS: Readonly<Partial<Record<DType, Write>>> = {
  float32: (target, offset, value) => target.setFloat32(offset, value, true),
  float64: (target, offset, value) => target.setFloat64(offset, value, true),
  float16: (target, offset, value) => target.setUint16(offset, FLOAT16.encode(value), true),
  bfloat16: (target, offset, value) => target.setUint16(offset, BFLOAT16.encode(value), true),
  int64: (target, offset, value) => target.setBigInt64(offset, BigInt(value), true),
  uint64: (target, offset, value) => target.setBigUint64(offset, BigInt(value), true),
  int32: (target, offset, value) => target.setInt32(offset, value, true),
  uint32: (target, offset, value) => target.setUint32(offset, value, true),
  int16: (target, offset, value) => target.setInt16(offset, value, true),
  uint16: (target, offset, value) => target.setUint16(offset, value, true),
  int8: (target, offset, value) => target.setInt8(offset, value),
  uint8: (target, offset, value) => target.setUint8(offset, value),
  bool: (target, offset, value) => target.setUint8(offset, value ? 1 : 0),
};

const READERS: Readonly<Partial<Record<DType, ReadElement>>> = {
  float32: (source, offset) => source.getFloat32(offset, true),
  float64: (source, offset) => source.getFloat64(offset, true),
  float16: (source, offset) => FLOAT16.decode(source.getUint16(offset, true)),
  bfloat16: (source, offset) => BFLOAT16.decode(source.getUint16(offset, true)),
  int64: (source, offset) => Number(source.getBigInt64(offset, true)),
  uint64: (source, offset) => Number(source.getBigUint64(offset, true)),
  int32: (source, offset) => source.getInt32(offset, true),
  uint32: (source, offset) => source.getUint32(offset, true),
  int16: (source, offset) => source.getInt16(offset, true),
  uint16: (source, offset) => source.getUint16(offset, true),
  int8: (source, offset) => source.getInt8(offset),
  uint8: (source, offset) => source.getUint8(offset),
  bool: (source, offset) => source.getUint8(offset),
};
