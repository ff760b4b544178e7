/**
 * @file Gradients of pooling and resizing, of images and of regions: against finite differences.
 */
import test from 'ava';
import { gradientOperators } from '../../../src/ir/autodiff/backpropagation.js';
import { selection } from '../../selection.js';
import { makeRun } from '../ops/one-node.js';
import { type Case, c, f, i } from '../ops/sample.js';
import { needEntry } from '../ops/simulate.js';
import { checkGradient } from './check-gradient.js';
import { differentiatedOf, runGradient } from './sample-gradient.js';
import { poolingSamples } from './samples/pooling.js';

for (const [number, [sample, options]] of selection(poolingSamples, ([{ op }]) => op)) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  const attributes = JSON.stringify(sample.attributes, (_, value) => (value instanceof Uint8Array ? '…' : value));
  test(`${number} ${sample.op} ${shapes} ${attributes}`, async (t) => {
    const error = await checkGradient(sample, options);
    t.log(error.toExponential(1));
    t.true(error <= 2e-3);
  });
}

test('of equal elements of a window the first takes all, as in PyTorch; over all positions they share', async (t) => {
  const gradientOf = async (sample: Case, data: readonly number[], out: readonly number[]) => {
    const operator = differentiatedOf(sample, {});
    const [input, output] = [operator.inputs[0], operator.outputs[0]];
    const gradient = gradientOperators(needEntry(sample.op));
    if (!input || !output || !gradient) throw new Error('there is no gradient');
    const given = { ...output, data: out.map((_, index) => index + 1) };
    const values = new Map([
      ['in0', { ...input, data }],
      ['out0', { ...output, data: out }],
      ['grad0', given],
    ]);
    const [made] = await runGradient(operator, gradient(operator), values, makeRun());
    return made?.data;
  };
  const apart = c('MaxPool', [f(1, 1, 4)], { kernel_shape: [2], strides: [2] });
  t.deepEqual(await gradientOf(apart, [3, 3, 1, 1], [3, 1]), [1, 0, 2, 0]);
  const overlapping = c('MaxPool', [f(1, 1, 4)], { kernel_shape: [3], pads: [1, 1] });
  t.deepEqual(await gradientOf(overlapping, [-5, -5, -5, -5], [-5, -5, -5, -5]), [3, 3, 4, 0]);
  const whole = c('GlobalMaxPool', [f(1, 1, 4)]);
  t.deepEqual(await gradientOf(whole, [2, 0, 2, 1], [2]), [0.5, 0, 0.5, 0]);
});

test('the largest of as many samples as a region asks for is refused', (t) => {
  const gradient = gradientOperators(needEntry('RoiAlign'));
  const operator = differentiatedOf(c('RoiAlign', [f(1, 1, 4, 4), f(2, 4), i(1, 2)], { mode: 'max' }), {});
  if (!gradient) return t.fail();
  t.throws(() => gradient(operator), {
    message: /mode max with a sample count that depends on the region has no gradient/,
  });
});
