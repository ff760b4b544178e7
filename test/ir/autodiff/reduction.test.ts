/**
 * @file Gradients of reductions and of Softmax: against finite differences and where elements
 * tie or are zero.
 */
import test from 'ava';
import { isDifferentiable } from '../../../src/ir/operator.js';
import { reductionEntries } from '../../../src/ir/ops/reduction.js';
import { selection } from '../../selection.js';
import { checkGradient } from './check-gradient.js';
import { floats, gradientAt } from './gradient-at.js';
import { reductionSamples } from './samples/reduction.js';

for (const [number, [sample]] of selection(reductionSamples, ([{ op }]) => op)) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify(sample.attributes)}`, async (t) => {
    const error = await checkGradient(sample);
    t.log(error.toExponential(1));
    t.true(error < 2e-2);
  });
}

test('each reduction has a gradient', (t) => {
  const without = reductionEntries.filter((entry) => !isDifferentiable(entry)).map(({ op }) => op);
  t.deepEqual(without, []);
});

const rows = (op: string, data: readonly number[], shape: readonly number[]) =>
  gradientAt({
    op,
    attributes: { axes: [1], keepdims: 0 },
    operands: [floats(data, shape)],
    gradients: [floats(Array.from({ length: shape[0] ?? 1 }, () => 6))],
  });

test('elements that tie for the largest or smallest share the gradient evenly', async (t) => {
  t.deepEqual((await rows('ReduceMax', [1, 3, 3, 2, 2, 2], [2, 3])).gradients[0], [0, 3, 3, 2, 2, 2]);
  t.deepEqual((await rows('ReduceMin', [1, 3, 1, 2, 2, 2], [2, 3])).gradients[0], [3, 0, 3, 2, 2, 2]);
});

test('a product with zeros among its factors has the products of the others', async (t) => {
  const { gradients } = await rows('ReduceProd', [2, 3, 4, 0, 3, 4, 0, 3, 0], [3, 3]);
  t.deepEqual(gradients[0], [72, 48, 36, 72, 0, 0, 0, 0, 0]);
});

test('at zero a norm has no slope', async (t) => {
  t.deepEqual((await rows('ReduceL2', [0, 0, 3, 4], [2, 2])).gradients[0], [0, 0, 3.6, 4.8]);
  t.deepEqual((await rows('ReduceL1', [0, -2], [1, 2])).gradients[0]?.map(Math.abs), [0, 6]);
});

test('large scores do not overflow', async (t) => {
  const { gradients } = await rows('ReduceLogSumExp', [1000, 1000, -1000, 1000], [2, 2]);
  const off = gradients[0]?.map((value, at) => Math.abs(value - ([3, 3, 0, 6][at] ?? 0))) ?? [];
  // The result itself, near 1000, is float32's to within 6e-5.
  t.true(Math.max(...off) < 1e-3);
});
