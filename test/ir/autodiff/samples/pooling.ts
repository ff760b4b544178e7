/**
 * @file Sample pooling and resizing, of images and of regions, whose gradients are checked.
 */
import { constant } from '../../../../src/ir/ops/constants.js';
import { CASES } from '../../ops/cases.js';
import { type Case, c, f, i, ms, of, type Sample } from '../../ops/sample.js';
import { firstSeed } from '../first-seed.js';
import type { GradientOptions } from '../sample-gradient.js';

const OPERATORS = [
  'AveragePool',
  'LpPool',
  'MaxPool',
  'Resize',
  'GlobalAveragePool',
  'GlobalMaxPool',
  'GlobalLpPool',
  'RoiAlign',
  'CropAndResize',
];
const size = (...values: number[]) => constant('int32', values, [2]);
const scales = (...values: number[]) => constant('float32', values, [values.length]);

const OWN: readonly Case[] = [
  c('MaxPool', [f(2, 4, 9)], { kernel_shape: [3], strides: [2], dilations: [2] }),
  c('MaxPool', [f(2, 2, 8, 6)], { kernel_shape: [2, 3], strides: [2, 1], pads: [0, 1, 0, 1] }),
  c('MaxPool', [f(2, 2, 4, 5, 6)], { kernel_shape: [2, 2, 2], strides: [2, 1, 2] }),
  c('MaxPool', [f(2, 4, 7, 7)], { kernel_shape: [3, 3], strides: [2, 2], auto_pad: 'SAME_LOWER' }),
  c('AveragePool', [f(2, 4, 7, 7)], { kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1] }),
  c('MaxPool', [f(2, 2, 2, 2)], { kernel_shape: [3, 3], strides: [2, 2], ceil_mode: 1 }),
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

/** Regions of an image: low corners, then high ones; some reach outside, some are smaller than a pixel. */
const regions = (count: number): Sample => ({ ...f(count, 4), low: 0, high: 5 });

const REGIONS: readonly Case[] = [
  c('RoiAlign', [f(2, 3, 6, 5), regions(4), i(2, 4)], { output_height: 2, output_width: 3, sampling_ratio: 2 }),
  c('RoiAlign', [f(2, 2, 6, 5), regions(6), i(2, 6)], {
    output_height: 3,
    output_width: 2,
    sampling_ratio: 3,
    spatial_scale: 1.5,
    coordinate_transformation_mode: 'output_half_pixel',
  }),
  c('RoiAlign', [f(2, 2, 5, 4), regions(4), i(2, 4)], {
    output_height: 2,
    output_width: 1,
    mode: 'max',
    sampling_ratio: 1,
    coordinate_transformation_mode: 'output_half_pixel',
  }),
  c('RoiAlign', [f(1, 2, 9, 8), { ...f(4, 4), low: 0, high: 9 }, i(1, 4)], {
    output_height: 2,
    output_width: 2,
    coordinate_transformation_mode: 'output_half_pixel',
  }),
  c('MaxRoiPool', [f(2, 2, 7, 6), { ...f(4, 5), low: 0, high: 1.99 }], { pooled_shape: [3, 2], spatial_scale: 3 }),
  c('MaxRoiPool', [f(1, 3, 5, 9), { ...f(4, 5), low: 0, high: 0.9 }], { pooled_shape: [1, 4], spatial_scale: 12 }),
  ms('CropAndResize', [f(2, 3, 6, 5), { ...f(4, 4), low: -0.2 }, of('int32', 2, 4)], { crop_size: size(3, 2) }),
  ms('CropAndResize', [f(1, 2, 4, 5), { ...f(2, 4), low: 0 }, of('int32', 1, 2)], {
    crop_size: size(1, 3),
    mode: 'nearest',
  }),
];

const samples = [...CASES.filter(({ op }) => OPERATORS.includes(op)), ...OWN, ...REGIONS];

/** As many samples as a region's size asks for: ONNX Runtime has that for regions whose low corner is the lower one. */
const adaptive = c('RoiAlign', [f(2, 2, 6, 7), { ...f(3, 4), low: -2, high: 9 }, i(2, 3)], {
  output_height: 2,
  output_width: 1,
});

const isUpright = (data: readonly number[]) =>
  data.every((value, at) => at % 4 > 1 || value + 0.1 < (data[at + 2] ?? 0));

export const poolingSamples: readonly (readonly [Case, GradientOptions])[] = [
  // Bounds of MaxRoiPool's regions are rounded to pixels, and the first of them is an image's number.
  ...samples.map((sample) => [sample, sample.op === 'MaxRoiPool' ? { wanted: [true] } : {}] as const),
  [adaptive, { seed: firstSeed(adaptive, ([, regions]) => isUpright(regions?.data ?? [])) }],
];
