/**
 * @file Sample operators that move elements, whose gradients are checked.
 */
import { constant } from '../../../../src/ir/ops/constants.js';
import { CASES } from '../../ops/cases.js';
import { type Case, c, f, h, ms } from '../../ops/sample.js';
import type { GradientOptions } from '../sample-gradient.js';

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
  ms('Pad', [f(2, 5, 4)], { pads: [0, 1, 0, 0, 2, 3], mode: 'edge' }),
  c('Flatten', [f(2, 3, 2, 2)], { axis: -1 }),
  c('Flatten', [f(6)], { axis: 0 }),
  c('Squeeze', [f(1, 6, 1, 2)], { axes: [0, 2] }),
  c('Unsqueeze', [f(2, 3, 4)], { axes: [1] }),
  c('DepthToSpace', [f(1, 9, 2, 2)], { blocksize: 3 }),
  c('SpaceToDepth', [f(1, 2, 6, 3)], { blocksize: 3 }),
  c('Tile', [f(1, 3)], { repeats: [3, 2] }),
  c('Tile', [f(2, 3)], { repeats: [1, 1] }),
  c('CenterCropPad', [f(5, 8)], { shape: [2, 11] }),
  c('CenterCropPad', [f(4, 5)], { shape: [8], axes: [-1] }),
  c('Col2Im', [f(1, 18, 4)], { image_shape: [4, 4], block_shape: [3, 3], pads: [1, 1, 1, 1], strides: [2, 2] }),
  c('Col2Im', [f(2, 8, 4)], { image_shape: [4, 4], block_shape: [2, 2], dilations: [2, 2] }),
];

export const movementSamples: readonly (readonly [Case, GradientOptions])[] = [...CASES.filter(isMoving), ...OWN].map(
  (sample) => [sample, {}],
);

function isMoving({ op, domain, inputs }: Case): boolean {
  return (domain === '' || op === 'Pad') && OPERATORS.has(op) && inputs[0]?.dtype === 'float32';
}
