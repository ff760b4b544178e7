/**
 * @file Element-wise comparison, written apart from the product's own so that each can catch the other's faults.
 */
import type { DType } from '../../src/ir/dtype.js';
import type { ConstantTensor } from '../../src/ir/graph.js';
import type { Tolerance } from './arrays.js';

/** A sentence that says how two tensors differ; null where every element agrees within the tolerance. */
export function difference(
  name: string,
  actual: ConstantTensor | undefined,
  expected: ConstantTensor,
  tolerance: Tolerance,
): string | null {
  if (!actual) return `${name} was not computed`;
  if (actual.dtype !== expected.dtype) return `${name} is ${actual.dtype}, expected ${expected.dtype}`;
  if (actual.shape.join() !== expected.shape.join()) {
    return `${name} is [${actual.shape.join(', ')}], expected [${expected.shape.join(', ')}]`;
  }
  const [left, right] = [numbersOf(actual), numbersOf(expected)];
  const { rtol, atol } = widened(tolerance, expected.dtype);
  let worst = { index: -1, error: 0 };
  for (let index = 0; index < right.length; index++) {
    const [found = Number.NaN, wanted = Number.NaN] = [left[index], right[index]];
    if (Object.is(found, wanted) || found === wanted) continue;
    const error = Math.abs(found - wanted);
    // An expected infinity would make the tolerance infinite: nothing but itself is near it.
    if (Number.isFinite(wanted) && error <= atol + rtol * Math.abs(wanted)) continue;
    if (!(error <= worst.error)) worst = { index, error };
  }
  if (worst.index < 0) return null;
  return `${name} differs by ${worst.error.toExponential(1)} at element ${worst.index}: ${left[worst.index]} instead of ${right[worst.index]}`;
}

/** 16-bit floats: 2e-2 both ways. */
function widened(tolerance: Tolerance, dtype: DType): Tolerance {
  if (dtype !== 'float16' && dtype !== 'bfloat16') return tolerance;
  return { rtol: Math.max(tolerance.rtol, 2e-2), atol: Math.max(tolerance.atol, 2e-2) };
}

type Read = (view: DataView, index: number) => number;

const READERS: Readonly<Partial<Record<DType, Read>>> = {
  float32: (view, index) => view.getFloat32(4 * index, true),
  float64: (view, index) => view.getFloat64(8 * index, true),
  float16: (view, index) => float16(view.getUint16(2 * index, true)),
  bfloat16: (view, index) => bfloat16(view.getUint16(2 * index, true)),
  int8: (view, index) => view.getInt8(index),
  uint8: (view, index) => view.getUint8(index),
  bool: (view, index) => view.getUint8(index),
  int16: (view, index) => view.getInt16(2 * index, true),
  uint16: (view, index) => view.getUint16(2 * index, true),
  int32: (view, index) => view.getInt32(4 * index, true),
  uint32: (view, index) => view.getUint32(4 * index, true),
  int64: (view, index) => Number(view.getBigInt64(8 * index, true)),
  uint64: (view, index) => Number(view.getBigUint64(8 * index, true)),
};

function numbersOf({ dtype, shape, data }: ConstantTensor): Float64Array {
  const read = READERS[dtype];
  if (!read) throw new Error(`no comparison for ${dtype}`);
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const count = shape.reduce((product, size) => product * size, 1);
  return Float64Array.from({ length: count }, (_, index) => read(view, index));
}

function float16(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function bfloat16(bits: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint32(0, bits << 16);
  return view.getFloat32(0);
}
