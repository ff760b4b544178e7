/**
 * @file Sample pooling and resizing whose gradients are checked.
 */
import { constant } from '../../../../src/ir/ops/constants.js';
import { CASES } from '../../ops/cases.js';
import { type Case, c, f } from '../../ops/sample.js';
import type { GradientOptions } from '../sample-gradient.js';

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
  c('GlobalMaxPool', [f(4, 2, 3)]),
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

export const poolingSamples: readonly (readonly [Case, GradientOptions])[] = samples.map((sample) => [sample, {}]);
