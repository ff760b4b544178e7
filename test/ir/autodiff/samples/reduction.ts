/**
 * @file Sample reductions and Softmaxes whose gradients are checked.
 */
import { CASES } from '../../ops/cases.js';
import { type Case, c, h, positive, wide } from '../../ops/sample.js';
import type { GradientOptions } from '../sample-gradient.js';

const KINDS = ['Sum', 'Mean', 'L1', 'L2', 'SumSquare', 'LogSumExp', 'Max', 'Min', 'Prod'];

const OWN: readonly Case[] = [
  ...KINDS.map((kind) => c(`Reduce${kind}`, [wide(4, 6)], { noop_with_empty_axes: 1 })),
  ...KINDS.map((kind) => c(`Reduce${kind}`, [positive(4, 6, 2)], { axes: [0], keepdims: 0 })),
  c('ReduceLogSum', [positive(4, 6)], { noop_with_empty_axes: 1 }),
  c('ReduceLogSum', [positive(4, 6, 2)], { axes: [0, 2] }),
  ...['Sum', 'Mean', 'LogSumExp'].map((kind) => c(`Reduce${kind}`, [h(4, 6)], { axes: [0], keepdims: 0 }, 1, 1e-2)),
  c('LogSoftmax', [wide(2, 4, 6)], { axis: 0 }),
  c('LogSoftmax', [h(4, 6)], {}, 1, 1e-2),
  c('Softmax', [wide(6)]),
];

const OPERATORS = new Set([...[...KINDS, 'LogSum'].map((kind) => `Reduce${kind}`), 'Softmax', 'LogSoftmax']);
const samples = [
  ...CASES.filter(
    ({ domain, op, inputs }) => domain === '' && OPERATORS.has(op) && inputs[0]?.dtype.startsWith('float'),
  ),
  ...OWN,
];
export const reductionSamples: readonly (readonly [Case, GradientOptions])[] = samples.map((sample) => [sample, {}]);
