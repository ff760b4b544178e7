import test from 'ava';
import type { ConstantTensor } from '../../src/ir/graph.js';
import { difference } from './compare.js';

const floats = (...values: number[]): ConstantTensor => ({
  dtype: 'float32',
  shape: [values.length],
  data: new Uint8Array(new Float32Array(values).buffer),
});
const tolerance = { rtol: 1e-3, atol: 1e-4 };

test('an expected infinity or NaN is met by itself only', (t) => {
  t.is(difference('y', floats(Infinity, Number.NaN), floats(Infinity, Number.NaN), tolerance), null);
  t.regex(difference('y', floats(3e38), floats(Infinity), tolerance) ?? '', /y differs/);
  t.regex(difference('y', floats(-Infinity), floats(Infinity), tolerance) ?? '', /y differs/);
  t.regex(difference('y', floats(0), floats(Number.NaN), tolerance) ?? '', /y differs/);
  t.regex(difference('y', floats(Number.NaN), floats(0), tolerance) ?? '', /y differs/);
});

test('a value within the tolerance is equal, one beyond it is not', (t) => {
  t.is(difference('y', floats(1.0005), floats(1), tolerance), null);
  t.regex(difference('y', floats(1, 1.01), floats(1, 1), tolerance) ?? '', /element 1/);
});
