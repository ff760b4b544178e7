/**
 * @file Gradients of pooling and resizing: against finite differences, and lowered under the forward's strategies.
 */
import test from 'ava';
import { constant } from '../../../src/ir/ops/constants.js';
import { CASES } from '../../ir/ops/cases.js';
import { makeRun } from '../ops/one-node.js';
import { type Case, c, f } from '../ops/sample.js';
import { needEntry } from '../ops/simulate.js';
import { checkGradient, checkShardedGradient } from './check-gradient.js';
import { gradientViewOf, runGradient } from './sample-gradient.js';

const OPERATORS = ['AveragePool', 'LpPool', 'MaxPool', 'Resize', 'GlobalAveragePool', 'GlobalMaxPool', 'GlobalLpPool'];
const scales = (...values: number[]) => constant('float32', values, [values.length]);

const OWN: readonly Case[] = [
  c('MaxPool', [f(2, 4, 9)], { kernel_shape: [3], strides: [2], dilations: [2] }),
  c('MaxPool', [f(2, 2, 8, 6)], { kernel_shape: [2, 3], strides: [2, 1], pads: [0, 1, 0, 1] }),
  c('MaxPool', [f(2, 2, 4, 5, 6)], { kernel_shape: [2, 2, 2], strides: [2, 1, 2] }),
  c('MaxPool', [f(2, 4, 7, 7)], { kernel_shape: [3, 3], strides: [2, 2], auto_pad: 'SAME_LOWER' }),
  c('AveragePool', [f(2, 4, 7, 7)], { kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1] }),
  c('AveragePool', [f(2, 4, 7)], { kernel_shape: [3], strides: [2], pads: [1, 1], ceil_mode: 1 }),
  c('AveragePool', [f(2, 4, 8, 6)], { kernel_shape: [2, 3], strides: [2, 2] }),
  c('AveragePool', [f(2, 4, 9)], { kernel_shape: [3], strides: [2], dilations: [2], pads: [2, 1] }),
  c('AveragePool', [f(2, 2, 4, 4, 4)], { kernel_shape: [2, 2, 2], strides: [2, 2, 2] }),
  c('LpPool', [f(2, 4, 8, 6)], { kernel_shape: [3, 2], strides: [2, 2], p: 3, pads: [1, 0, 1, 0] }),
  c('LpPool', [f(2, 4, 8)], { kernel_shape: [3], p: 1 }),
  c('GlobalAveragePool', [f(2, 4, 6)]),
  c('Resize', [f(2, 4, 6, 6)], { scales: scales(1, 1, 0.5, 1.5), mode: 'nearest', nearest_mode: 'floor' }),
  c('Resize', [f(2, 4, 6)], { scales: scales(1, 1, 2.5), coordinate_transformation_mode: 'asymmetric' }),
  c('Resize', [f(2, 4, 6, 6)], {
    sizes: [9, 3],
    axes: [2, 3],
    mode: 'linear',
    coordinate_transformation_mode: 'align_corners',
  }),
  c('Resize', [f(1, 2, 6, 6)], { sizes: [1, 2, 9, 12], mode: 'cubic', cubic_coeff_a: -0.5 }),
  c('Resize', [f(1, 2, 8, 8)], { sizes: [1, 2, 3, 5], mode: 'linear', antialias: 1 }),
  c('Resize', [f(1, 2, 4, 4, 4)], { sizes: [1, 2, 8, 6, 4], mode: 'linear' }),
  c('Resize', [f(1, 2, 4, 6)], {
    sizes: [8, 18],
    axes: [2, 3],
    keep_aspect_ratio_policy: 'not_larger',
    mode: 'linear',
  }),
];

const samples = [...CASES.filter(({ op }) => OPERATORS.includes(op)), ...OWN];
for (const [number, sample] of samples.entries()) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  const attributes = JSON.stringify(sample.attributes, (_, value) => (value instanceof Uint8Array ? '…' : value));
  test(`${number} ${sample.op} ${shapes} ${attributes}`, async (t) => {
    const error = await checkGradient(sample);
    t.log(error.toExponential(1));
    await checkShardedGradient(sample);
    t.true(error <= 2e-3);
  });
}

test('of equal elements of a window the first takes all, as in PyTorch; over all positions they share', async (t) => {
  const gradientOf = async (sample: Case, data: readonly number[], out: readonly number[]) => {
    const view = gradientViewOf(sample, {});
    const [input, output] = [view.inputs[0], view.outputs[0]];
    const { gradient } = needEntry(sample.op);
    if (!input || !output || typeof gradient !== 'function') throw new Error('there is no gradient');
    const given = { ...output, data: out.map((_, index) => index + 1) };
    const values = new Map([
      ['in0', { ...input, data }],
      ['out0', { ...output, data: out }],
      ['grad0', given],
    ]);
    const [made] = await runGradient(view, gradient(view), values, makeRun());
    return made?.data;
  };
  const apart = c('MaxPool', [f(1, 1, 4)], { kernel_shape: [2], strides: [2] });
  t.deepEqual(await gradientOf(apart, [3, 3, 1, 1], [3, 1]), [1, 0, 2, 0]);
  const overlapping = c('MaxPool', [f(1, 1, 4)], { kernel_shape: [3], pads: [1, 1] });
  t.deepEqual(await gradientOf(overlapping, [-5, -5, -5, -5], [-5, -5, -5, -5]), [3, 3, 4, 0]);
  const whole = c('GlobalMaxPool', [f(1, 1, 4)]);
  t.deepEqual(await gradientOf(whole, [2, 0, 2, 1], [2]), [0.5, 0, 0.5, 0]);
});
