/**
 * @file Forms of operators that no sample of the registry has: types that torch computes little with, and edges of its functions.
 */
import type { DType } from '../../../src/ir/dtype.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { type Case, c, f, i, of, positive, signed } from '../../ir/ops/sample.js';

const UNSIGNED: readonly DType[] = ['uint16', 'uint32', 'uint64'];
const SHORTER: readonly DType[] = ['uint16', 'uint32'];

const counted = (dtype: DType, ...shape: number[]) => ({ shape, dtype, low: 1, high: 9 });

export const FORMS: readonly Case[] = [
  ...UNSIGNED.flatMap((dtype) => [
    c('GatherElements', [of(dtype, 9, 4, 6), signed(6, 4, 3)], { axis: 1 }),
    c('ScatterElements', [of(dtype, 9, 4, 6), i(6, 4, 1), of(dtype, 9, 4, 1)], { axis: 1 }),
    c('ScatterND', [of(dtype, 9, 4, 6), i(4, 1, 1), of(dtype, 9, 1, 6)]),
  ]),
  ...SHORTER.flatMap((dtype) => [
    c('Div', [of(dtype, 99, 4, 6), counted(dtype, 6)]),
    c('Mod', [of(dtype, 99, 4, 6), counted(dtype, 6)]),
    c('ScatterElements', [of(dtype, 9, 4, 6), i(6, 4, 3), of(dtype, 9, 4, 3)], { axis: 1, reduction: 'max' }),
  ]),
  c('Max', [of('uint32', 9, 4, 6), of('uint32', 9, 6)]),
  c('Min', [of('uint32', 9, 4, 6), of('uint32', 9, 6)]),
  c('Clip', [of('uint32', 9, 4, 6), of('uint32', 3), counted('uint32')]),
  c('MatMul', [of('uint32', 9, 2, 4, 6), of('uint32', 9, 6, 2)]),
  c('MatMul', [of('uint64', 9, 4, 6), of('uint64', 9, 6, 2)]),
  c('LayerNormalization', [f(4, 6), positive(6)], {}, 2),
  c('InstanceNormalization', [f(1, 4, 1), positive(4), f(4)]),
  c('GroupNormalization', [f(1, 4, 1), positive(4), f(4)], { num_groups: 4 }),
  c('LpPool', [f(2, 4, 6, 6)], { kernel_shape: [3, 2], strides: [2, 3], ceil_mode: 1 }),
  c('LpPool', [f(2, 4, 6, 6)], { kernel_shape: [3, 3], pads: [1, 0, 2, 1], p: 1 }),
  c('DFT', [f(2, 8, 1)], { axis: 1, inverse: 1 }),
  c('Resize', [of('int32', 9, 2, 3, 4, 4), null, null], {
    mode: 'linear',
    scales: constant('float32', [1, 1, 2, 2], [4]),
  }),
  c('Resize', [{ ...of('int8', 9, 2, 3, 4), low: -9 }, null, null], {
    mode: 'linear',
    coordinate_transformation_mode: 'half_pixel_symmetric',
    scales: constant('float32', [1, 1, 2], [3]),
  }),
  c('Resize', [of('int32', 9, 2, 3, 4, 4), null, null], {
    mode: 'nearest',
    coordinate_transformation_mode: 'asymmetric',
    nearest_mode: 'floor',
    scales: constant('float32', [1, 1, 2, 2], [4]),
  }),
];
