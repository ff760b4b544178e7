/**
 * @file Sample convolutions whose gradients are checked.
 */
import { CASES } from '../../ops/cases.js';
import { type Case, c, f, ms, wide } from '../../ops/sample.js';
import { crossesKinks } from '../kinks.js';
import type { GradientOptions } from '../sample-gradient.js';

const OWN: readonly Case[] = [
  c('Conv', [f(2, 3, 9), f(4, 3, 3), f(4)], { strides: [3], dilations: [2], pads: [1, 2] }),
  c('Conv', [f(2, 4, 10), f(6, 2, 2)], { group: 2, strides: [3] }),
  c('Conv', [f(2, 4, 6, 6), f(4, 1, 3, 3), f(4)], { group: 4, pads: [1, 1, 1, 1] }),
  c('Conv', [f(2, 4, 6, 8), f(4, 2, 1, 3)], { group: 2, strides: [1, 2] }),
  c('Conv', [f(2, 4, 8, 6), f(4, 4, 2, 3)], { strides: [2, 1], pads: [0, 1, 0, 1] }),
  c('Conv', [f(2, 2, 4, 5, 6), f(4, 2, 2, 3, 3), f(4)], { strides: [2, 1, 2], pads: [0, 1, 1, 0, 1, 1] }),
  c('Conv', [f(2, 4, 7, 7), f(4, 4, 3, 3)], { auto_pad: 'SAME_LOWER', strides: [2, 2] }),
  c('Conv', [f(2, 4, 7), f(4, 4, 3)], { auto_pad: 'VALID', dilations: [2] }),
  c('Conv', [f(1, 1, 6), f(1, 1, 1)], { strides: [2] }),
  // So many channels that each place of the kernel has a product of its own.
  c('Conv', [f(2, 16, 5, 6), f(2, 16, 3, 2)], { strides: [2, 1], pads: [1, 1, 0, 1] }),
  c('Conv', [f(1, 32, 5), f(4, 16, 3)], { group: 2, dilations: [2], pads: [2, 1] }),
  // Kernels of so many places that their gradient is a convolution.
  c('Conv', [f(2, 2, 7, 8), f(4, 2, 6, 5)], { pads: [1, 0, 1, 2], strides: [1, 2] }),
  c('Conv', [f(2, 4, 36), f(4, 2, 29)], { group: 2, strides: [2], pads: [1, 0] }),
  c('ConvTranspose', [f(2, 4, 4), f(4, 2, 28)], { strides: [2] }),
  ms('FusedConv', [f(2, 4, 6, 6), f(8, 2, 3, 3), f(8), f(2, 8, 4, 4)], { group: 2, activation: 'Tanh' }),
  ms('FusedConv', [f(2, 4, 6), f(8, 4, 2), f(8)], { strides: [2], activation: 'Sigmoid' }),
  ms('FusedConv', [f(1, 2, 3, 3), f(2, 2, 2, 2), f(2)], { activation: 'Relu' }),
  ms('FusedConv', [f(1, 2, 3, 3), f(2, 2, 2, 2), f(2)], { activation: 'LeakyRelu', activation_params: [0.25] }),
  ms('FusedConv', [f(1, 2, 3, 3), f(2, 2, 2, 2), f(2)], { activation: 'HardSigmoid', activation_params: [0.25, 0.5] }),
  ms('FusedConv', [f(1, 4, 3), f(2, 2, 2)], { group: 2, activation: 'Clip', activation_params: [-0.5, 0.5] }),
  c('ConvTranspose', [f(2, 4, 4, 4), f(4, 6, 2, 2), f(6)], { strides: [2, 2] }),
  c('ConvTranspose', [f(2, 4, 4), f(4, 6, 1), f(6)]),
  c('ConvTranspose', [f(2, 4, 3, 4), f(4, 2, 3, 2)], { strides: [2, 2], pads: [1, 0, 0, 0], group: 2 }),
  c('ConvTranspose', [f(2, 4, 4), f(4, 2, 3)], { strides: [2], dilations: [3], output_padding: [1], pads: [1, 1] }),
  c('ConvTranspose', [f(2, 4, 4), f(4, 2, 3)], { strides: [2], output_shape: [8] }),
  c('ConvTranspose', [f(2, 4, 4), f(4, 2, 4)], { strides: [2], auto_pad: 'SAME_UPPER' }),
  c('ConvTranspose', [f(1, 2, 3, 3, 3), f(2, 4, 2, 3, 2)], { strides: [2, 1, 1] }),
  c('DeformConv', [f(1, 2, 5, 4), f(3, 2, 3, 2), wide(1, 12, 3, 2)], { strides: [2, 2], pads: [1, 0, 1, 1] }),
  c('DeformConv', [f(2, 2, 4, 4), f(2, 1, 2, 2), f(2, 8, 4, 2), f(2), f(2, 4, 4, 2)], {
    group: 2,
    pads: [1, 0, 1, 0],
    dilations: [2, 2],
  }),
  ms('CausalConvWithState', [f(2, 4, 5), f(4, 1, 4), f(4)], { activation: 'silu' }, 2),
  ms('CausalConvWithState', [f(1, 3, 2), f(3, 1, 4), null, f(1, 3, 3)], {}, 2),
];

const OPERATORS = ['CausalConvWithState', 'Conv', 'ConvTranspose', 'DeformConv', 'FusedConv'];
const samples = [...CASES.filter(({ op }) => OPERATORS.includes(op)), ...OWN];
export const convolutionSamples: readonly (readonly [Case, GradientOptions])[] = samples.map((sample) => [
  sample,
  crossesKinks(sample) ? { tolerance: 5e-2 } : {},
]);
