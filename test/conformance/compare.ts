/**
 * @file Element-wise comparison, written apart from the product's own so that each can catch the other's errors.
 *
 * Integers and booleans must be equal. Floats are compared by tolerance, NaN and infinities by place; -0 is 0.
 */
import { type DType, isFloating } from '../../src/ir/dtype.js';
import type { ConstantTensor } from '../../src/ir/graph.js';
import type { Tolerance } from './case-files.js';

/**
 * The result of ONNX Runtime on the file as it is may differ from the expected one, in ways that are not errors:
 *
 *     step        8-bit results differ by one step: a value between two steps is rounded either way
 *     saturated   the largest finite number stands where an infinity is expected (masked scores), or the other way round
 */
type Leeway = 'step' | 'saturated';

/** The leeway of outputs that have one. */
export type Slack = ReadonlyMap<string, Leeway>;

/** A sentence that says how two tensors differ; null where every element agrees within the tolerance. */
export function difference(
  name: string,
  actual: ConstantTensor | undefined,
  expected: ConstantTensor,
  tolerance: Tolerance,
  slack: Slack = new Map(),
): string | null {
  if (!actual) return `${name} was not computed`;
  if (actual.dtype !== expected.dtype) return `${name} is ${actual.dtype}, expected ${expected.dtype}`;
  if (actual.shape.join() !== expected.shape.join()) {
    return `${name} is [${actual.shape.join(', ')}], expected [${expected.shape.join(', ')}]`;
  }
  const [left, right] = [elementsOf(actual), elementsOf(expected)];
  const leeway = slack.get(name);
  const { rtol, atol } = allowed(tolerance, expected, leeway === 'step' ? 1 : 0);
  let worst = { index: -1, error: 0 };
  for (let index = 0; index < right.length; index++) {
    const [found, wanted] = [left[index], right[index]];
    if (found === undefined || wanted === undefined || Object.is(found, wanted) || found === wanted) continue;
    if (leeway === 'saturated' && isHuge(found) && isHuge(wanted) && found > 0 === wanted > 0) continue;
    const error = Math.abs(Number(found) - Number(wanted));
    // An expected infinity would make the tolerance infinite: nothing but itself is near it.
    if (Number.isFinite(Number(wanted)) && error <= atol + rtol * Math.abs(Number(wanted)) && atol + rtol > 0) continue;
    if (worst.index < 0 || !(error <= worst.error)) worst = { index, error };
  }
  if (worst.index < 0) return null;
  return (
    `${name} differs by ${worst.error.toExponential(1)} at element ${worst.index}: ${left[worst.index]} ` +
    `instead of ${right[worst.index]}`
  );
}

/** The leeway with which `actual` is what is expected, where it differs otherwise; null where it is the same, or wrong. */
export function leewayOf(
  actual: ConstantTensor | undefined,
  expected: ConstantTensor,
  tolerance: Tolerance,
): Leeway | null {
  const fits = (slack: Slack): boolean => difference('', actual, expected, tolerance, slack) === null;
  if (fits(new Map())) return null;
  const leeway = expected.dtype === 'int8' || expected.dtype === 'uint8' ? 'step' : 'saturated';
  return fits(new Map([['', leeway]])) ? leeway : null;
}

/** No smaller than the largest finite float32, or infinite. */
function isHuge(value: Element): boolean {
  return Math.abs(Number(value)) >= 3.4028234e38;
}

/** Relative steps of the 16-bit floats, of which a result may be several off: their operators compute in float32 or not. */
const COARSE: Readonly<Partial<Record<DType, number>>> = { float16: 2 ** -8, bfloat16: 2 ** -5 };

/** Sums of large terms may be small: their loss of precision is measured by the largest element. */
const CANCELLATION = 1e-6;

function allowed({ rtol, atol }: Tolerance, expected: ConstantTensor, steps: number): Tolerance {
  if (!isFloating(expected.dtype)) return { rtol: 0, atol: steps };
  const coarse = COARSE[expected.dtype] ?? 0;
  return {
    rtol: Math.max(rtol, coarse),
    atol: Math.max(atol, Math.max(coarse / 4, CANCELLATION) * largest(expected)),
  };
}

function largest(value: ConstantTensor): number {
  return elementsOf(value).reduce<number>((most, item) => {
    const size = Math.abs(Number(item));
    return Number.isFinite(size) && size > most ? size : most;
  }, 0);
}

type Element = number | bigint;
type Read = (view: DataView, index: number) => Element;

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
  int64: (view, index) => view.getBigInt64(8 * index, true),
  uint64: (view, index) => view.getBigUint64(8 * index, true),
};

/** The elements; the bytes of types that are compared by pattern (4 and 8-bit floats, packed integers). */
function elementsOf({ dtype, shape, data }: ConstantTensor): readonly Element[] {
  if (dtype === 'string') throw new Error('strings are not compared');
  const read = READERS[dtype];
  if (!read) return [...data];
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const count = shape.reduce((product, size) => product * size, 1);
  return Array.from({ length: count }, (_, index) => read(view, index));
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
