/**
 * @file Gradients of losses: against finite differences with every reduction, weights and ignored labels; and where no label
 * counts.
 */
import test from 'ava';
import { selection } from '../../selection.js';
import { checkGradient } from './check-gradient.js';
import { floats, gradientAt, scalar } from './gradient-at.js';
import { lossSamples } from './samples/loss.js';

for (const [number, [sample, options]] of selection(lossSamples, ([{ op }]) => op)) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify([sample.attributes, options])}`, async (t) => {
    const error = await checkGradient(sample, options);
    t.log(error.toExponential(1));
    t.true(error < 2e-2);
  });
}

const labels = (...data: readonly number[]) => ({ dtype: 'int64' as const, shape: [data.length], data });

test('where no label counts the gradient is zero', async (t) => {
  const { gradients } = await gradientAt({
    op: 'SoftmaxCrossEntropyLoss',
    attributes: { ignore_index: 1 },
    operands: [floats([1, 2, 3, 4], [2, 2]), labels(1, 1)],
    gradients: [scalar(1)],
  });
  t.deepEqual(gradients[0]?.map(Math.abs), [0, 0, 0, 0]);
});

test('ignored labels get none, and the others share the mean among them', async (t) => {
  const { gradients } = await gradientAt({
    op: 'SoftmaxCrossEntropyLoss',
    attributes: { ignore_index: -100 },
    operands: [floats([0, 0, 0, 0, 0, 0], [3, 2]), labels(0, -100, 1)],
    gradients: [scalar(4)],
  });
  t.deepEqual(
    gradients[0]?.map((value) => value + 0),
    [-1, 1, 0, 0, 1, -1],
  );
});
