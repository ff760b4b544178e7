import test from 'ava';
import type { ConstantTensor } from '../../src/ir/graph.js';
import { constant } from '../../src/ir/ops/constants.js';
import { difference, leewayOf } from './compare.js';

const floats = (...values: number[]): ConstantTensor => constant('float32', values, [values.length]);
const tolerance = { rtol: 1e-3, atol: 1e-7 };

test('an expected infinity or NaN is met by itself only', (t) => {
  t.is(difference('y', floats(Infinity, Number.NaN), floats(Infinity, Number.NaN), tolerance), null);
  t.regex(difference('y', floats(3e38), floats(Infinity), tolerance) ?? '', /y differs/);
  t.regex(difference('y', floats(-Infinity), floats(Infinity), tolerance) ?? '', /y differs/);
  t.regex(difference('y', floats(0), floats(Number.NaN), tolerance) ?? '', /y differs/);
  t.regex(difference('y', floats(Number.NaN), floats(0), tolerance) ?? '', /y differs/);
  t.regex(difference('y', floats(1, Number.NaN), floats(1, 0), tolerance) ?? '', /element 1: NaN instead of 0/);
});

test('a value within the tolerance is equal, one beyond it is not; -0 is 0', (t) => {
  t.is(difference('y', floats(1.0005), floats(1), tolerance), null);
  t.is(difference('y', floats(-0), floats(0), tolerance), null);
  t.regex(difference('y', floats(1, 1.01), floats(1, 1), tolerance) ?? '', /element 1/);
  t.regex(difference('y', floats(1.1, 1.5, 1.2), floats(1, 1, 1), tolerance) ?? '', /by 5.0e-1 at element 1/);
  t.regex(difference('y', floats(1e-6), floats(0), tolerance) ?? '', /y differs/);
});

test('what large terms cancel to is compared by the size of the largest element', (t) => {
  t.is(difference('y', floats(1000, 5e-4), floats(1000, 0), tolerance), null);
  t.regex(difference('y', floats(1000, 5e-3), floats(1000, 0), tolerance) ?? '', /element 1/);
});

test('16-bit floats are compared by their steps', (t) => {
  const half = (value: number) => constant('float16', [value], [1]);
  t.is(difference('y', half(1.003), half(1), tolerance), null);
  t.regex(difference('y', half(1.01), half(1), tolerance) ?? '', /y differs/);
  const brain = (value: number) => constant('bfloat16', [value], [1]);
  t.is(difference('y', brain(1.02), brain(1), tolerance), null);
  t.regex(difference('y', brain(1.06), brain(1), tolerance) ?? '', /y differs/);
});

test('integers and booleans are equal or not, 64 bits of them', (t) => {
  const large = (last: number): ConstantTensor => {
    const data = new Uint8Array(8);
    new DataView(data.buffer).setBigInt64(0, 2n ** 60n + BigInt(last), true);
    return { dtype: 'int64', shape: [1], data };
  };
  t.is(difference('y', large(1), large(1), tolerance), null);
  t.regex(difference('y', large(2), large(1), tolerance) ?? '', /1152921504606846978 instead of 1152921504606846977/);
  t.regex(difference('y', constant('bool', [1], [1]), constant('bool', [0], [1]), tolerance) ?? '', /y differs/);
  t.regex(difference('y', constant('int32', [1001], [1]), constant('int32', [1000], [1]), tolerance) ?? '', /differs/);
});

test('8-bit results may be a step off where ONNX Runtime is', (t) => {
  const bytes = (...values: number[]) => constant('uint8', values, [values.length]);
  t.is(leewayOf(bytes(3, 4), bytes(3, 5), tolerance), 'step');
  t.is(leewayOf(bytes(3, 5), bytes(3, 5), tolerance), null);
  t.is(leewayOf(bytes(3, 7), bytes(3, 5), tolerance), null);
  t.is(leewayOf(floats(3), floats(3.5), tolerance), null);
  t.is(difference('y', bytes(4), bytes(5), tolerance, new Map([['y', 'step']])), null);
  t.regex(difference('y', bytes(4), bytes(5), tolerance) ?? '', /y differs/);
  t.regex(difference('y', bytes(3), bytes(5), tolerance, new Map([['y', 'step']])) ?? '', /y differs/);
});

test('the largest finite number may stand for an infinity where ONNX Runtime has it so', (t) => {
  const least = -3.4028234663852886e38;
  t.is(leewayOf(floats(1, least), floats(1, -Infinity), tolerance), 'saturated');
  t.is(leewayOf(floats(1.5, least), floats(1, -Infinity), tolerance), null);
  t.is(leewayOf(floats(-least), floats(-Infinity), tolerance), null);
  t.is(difference('y', floats(-Infinity), floats(least), tolerance, new Map([['y', 'saturated']])), null);
  t.regex(difference('y', floats(-1e38), floats(-Infinity), tolerance, new Map([['y', 'saturated']])) ?? '', /differs/);
});

test('shape, type and presence are compared first', (t) => {
  t.regex(difference('y', floats(1), floats(1, 2), tolerance) ?? '', /y is \[1\], expected \[2\]/);
  t.regex(difference('y', constant('int64', [1], [1]), floats(1), tolerance) ?? '', /y is int64, expected float32/);
  t.regex(difference('y', undefined, floats(1), tolerance) ?? '', /not computed/);
  t.throws(() => difference('y', { ...floats(1), dtype: 'string' }, { ...floats(1), dtype: 'string' }, tolerance));
});
