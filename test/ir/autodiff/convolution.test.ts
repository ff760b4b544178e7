/**
 * @file Gradients of convolutions: against finite differences, and lowered under the forward's strategies.
 */
import test from 'ava';
import { CASES } from '../../ir/ops/cases.js';
import { type Case, c, f, ms } from '../ops/sample.js';
import { checkGradient, checkShardedGradient } from './check-gradient.js';
import { crossesKinks, seedAwayFromKinks } from './kinks.js';

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
];

const samples = [...CASES.filter(({ op }) => ['Conv', 'ConvTranspose', 'FusedConv'].includes(op)), ...OWN];
for (const [number, sample] of samples.entries()) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify(sample.attributes)}`, async (t) => {
    const rough = crossesKinks(sample);
    const seed = rough ? 1 : await seedAwayFromKinks(sample);
    const error = await checkGradient(sample, rough ? { tolerance: 5e-2 } : { seed });
    t.log(error.toExponential(1));
    await checkShardedGradient(sample);
    t.true(error <= (rough ? 5e-2 : 2e-3));
  });
}
