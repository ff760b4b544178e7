/**
 * @file Gradients of the operators that move elements: each against finite differences, and under the forward's strategies.
 */
import test from 'ava';
import { constant } from '../../../src/ir/ops/constants.js';
import { CASES } from '../ops/cases.js';
import { type Case, c, f, h } from '../ops/sample.js';
import { checkGradient, checkShardedGradient } from './check-gradient.js';

const OPERATORS: ReadonlySet<string> = new Set([
  ...['Reshape', 'Flatten', 'Squeeze', 'Unsqueeze', 'Transpose', 'Expand', 'Slice', 'Split', 'Concat', 'Pad', 'Tile'],
  ...['DepthToSpace', 'SpaceToDepth', 'CenterCropPad', 'Col2Im'],
]);

const OWN: readonly Case[] = [
  c('Expand', [f(3, 1)], { shape: [2, 3, 4] }),
  c('Expand', [f(4, 6)], { shape: [1] }),
  c('Transpose', [h(2, 3, 4)], { perm: [1, 2, 0] }),
  c('Slice', [f(4, 9)], { starts: [7], ends: [0], axes: [1], steps: [-3] }),
  c('Slice', [f(4, 9)], { starts: [-1], ends: [-100], axes: [1], steps: [-1] }),
  c('Slice', [f(4, 9)], { starts: [1, 2], ends: [3, 9], axes: [0, 1], steps: [1, 3] }),
  c('Slice', [h(4, 9)], { starts: [3], ends: [3], axes: [1], steps: [1] }),
  c('Concat', [f(2, 3), f(2, 1), f(2, 2)], { axis: 1 }),
  ...['edge', 'reflect', 'wrap'].flatMap((mode) => [
    c('Pad', [f(4, 6)], { pads: [1, 2, 3, 4], mode }),
    c('Pad', [f(2, 5, 4)], { pads: [0, 3], axes: [1], mode }),
  ]),
  c('Pad', [f(4, 6)], { pads: [0, 9, 0, 2], mode: 'edge' }),
  c('Pad', [f(4, 6)], { pads: [-1, -2, -1, 0] }),
  c('Pad', [f(4, 6)], { pads: [-1, 2, 2, -1], constant_value: constant('float32', [2]) }),
  c('Pad', [h(4, 6)], { pads: [0, 2, 0, 1] }),
  c('Tile', [f(1, 3)], { repeats: [3, 2] }),
  c('Tile', [f(2, 3)], { repeats: [1, 1] }),
  c('CenterCropPad', [f(5, 8)], { shape: [2, 11] }),
  c('CenterCropPad', [f(4, 5)], { shape: [8], axes: [-1] }),
  c('Col2Im', [f(1, 18, 4)], { image_shape: [4, 4], block_shape: [3, 3], pads: [1, 1, 1, 1], strides: [2, 2] }),
  c('Col2Im', [f(2, 8, 4)], { image_shape: [4, 4], block_shape: [2, 2], dilations: [2, 2] }),
];

for (const [number, sample] of [...CASES.filter(isMoving), ...OWN].entries()) {
  test(`${number} ${sample.op} ${sample.inputs.map((input) => `[${input?.shape}]`)}`, async (t) => {
    const error = await checkGradient(sample);
    t.log(`worst ${error.toExponential(1)}`);
    t.true((await checkShardedGradient(sample)) >= 0);
  });
}

test('a Split whose parts do not all have a gradient', async (t) => {
  const equal = c('Split', [f(4, 12)], { split: [4, 4, 4], axis: 1 }, 3);
  const unequal = c('Split', [f(4, 12)], { split: [2, 7, 3], axis: 1 }, 3);
  for (const sample of [equal, unequal])
    for (const given of [
      [true, false, false],
      [true, false, true],
    ]) {
      t.true((await checkGradient(sample, { given })) < 1e-5);
      t.true((await checkShardedGradient(sample, { given })) > 0);
    }
});

test('a Concat of which one operand is wanted', async (t) => {
  const sample = c('Concat', [f(4, 2), f(4, 6)], { axis: 1 });
  t.true((await checkGradient(sample, { wanted: [false, true] })) < 1e-5);
  t.true((await checkShardedGradient(sample, { wanted: [false, true] })) > 0);
});

function isMoving({ op, domain, inputs }: Case): boolean {
  return domain === '' && OPERATORS.has(op) && inputs[0]?.dtype === 'float32';
}
