/**
 * @file Small constants that expansions read, encoded in the dtype of the operands around them.
 */
import { byteLength, type DType } from '../dtype.js';
import type { ConstantTensor, Weight } from '../graph.js';
import { elementCount } from '../graph.js';

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
  float16: (target, offset, value) => target.setUint16(offset, float16Bits(value), true),
  bfloat16: (target, offset, value) => target.setUint16(offset, bfloat16Bits(value), true),
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
  float16: (source, offset) => fromFloat16Bits(source.getUint16(offset, true)),
  bfloat16: (source, offset) => fromBfloat16Bits(source.getUint16(offset, true)),
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

/** IEEE 754 binary16, rounded to nearest, ties to even. */
function float16Bits(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (Number.isNaN(value)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  const exponent = Math.max(-14, Math.floor(Math.log2(size || 2 ** -14)));
  const mantissa = roundToEven(size / 2 ** (exponent - 10));
  // A normal number's mantissa has its leading one at bit 10; adding lets a round-up carry into the exponent.
  return sign | (size < 2 ** -14 ? mantissa : ((exponent + 14) << 10) + mantissa);
}

function fromFloat16Bits(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const mantissa = bits & 1023;
  if (exponent === 31) return mantissa ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (exponent === 0 ? mantissa * 2 ** -24 : (1024 + mantissa) * 2 ** (exponent - 25));
}

function bfloat16Bits(value: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, value);
  const bits = view.getUint32(0);
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

function fromBfloat16Bits(bits: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint32(0, bits * 65536);
  return view.getFloat32(0);
}

function roundToEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor;
}
