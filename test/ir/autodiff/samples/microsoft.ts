/**
 * @file Samples of ONNX Runtime's own operators beside attention and normalisation, and of caches, whose gradients are checked.
 */
import { constant } from '../../../../src/ir/ops/constants.js';
import { CASES } from '../../ops/cases.js';
import { type Case, c, f, i, ms, of, positive } from '../../ops/sample.js';
import type { GradientOptions } from '../sample-gradient.js';

const OPERATORS = [
  'CDist',
  'ConvTransposeWithDynamicPads',
  'ExpandDims',
  'GridSample',
  'Inverse',
  'MatMulBnb4',
  'MatMulNBits',
  'TensorScatter',
  'UnfoldTensor',
];

/** Quantised values. */
export const bytes = (...shape: number[]) => of('uint8', 256, ...shape);

const OWN: readonly Case[] = [
  ms('CDist', [f(3, 4), f(5, 4)], { metric: 'sqeuclidean' }),
  ms('ConvTransposeWithDynamicPads', [f(2, 4, 4, 3), f(4, 2, 3, 2), null, f(2)], {
    pads: [1, 0, 1, 1],
    dilations: [1, 2],
  }),
  ms('ExpandDims', [f(4, 2, 6)], { axis: constant('int32', [-1]) }),
  c('GridSample', [f(2, 3, 5, 4), f(2, 3, 2, 2)], { align_corners: 1, padding_mode: 'border' }),
  c('GridSample', [f(2, 2, 4, 3), { ...f(2, 5, 2, 2), low: -1.8, high: 1.8 }], { padding_mode: 'border' }),
  c('GridSample', [f(2, 2, 4, 3), { ...f(2, 5, 2, 2), low: -1.8, high: 1.8 }], { padding_mode: 'reflection' }),
  c('GridSample', [f(1, 2, 4, 5), { ...f(1, 4, 3, 2), low: -1.8, high: 1.8 }], {
    padding_mode: 'reflection',
    align_corners: 1,
  }),
  c('GridSample', [f(2, 2, 4, 3), { ...f(2, 5, 2, 2), low: -1.3, high: 1.3 }], { mode: 'nearest' }),
  c('GridSample', [f(1, 2, 2, 3, 3), f(1, 2, 1, 2, 3)]),
  ms('MatMulBnb4', [f(2, 2, 32), bytes(64), positive(8)], { K: 32, N: 4, block_size: 16, quant_type: 0 }),
  ms('MatMulBnb4', [f(4, 24), bytes(48), positive(6)], { K: 24, N: 4, block_size: 16, quant_type: 1 }),
  ms('MatMulNBits', [f(4, 64), bytes(8, 4, 4), positive(8, 4), bytes(8, 1)], { K: 64, N: 8, bits: 2, block_size: 16 }),
  ms('MatMulNBits', [f(4, 48), bytes(8, 3, 8), positive(8, 3), bytes(8, 2)], { K: 48, N: 8, bits: 4, block_size: 16 }),
  ms('MatMulNBits', [f(4, 32), bytes(8, 2, 8), positive(8, 2), f(8, 2)], { K: 32, N: 8, bits: 4, block_size: 16 }),
  c('TensorScatter', [f(2, 4, 6, 8), f(2, 4, 3, 8), i(4, 2)]),
  c('TensorScatter', [f(4, 6, 2), f(4, 3, 2), i(6, 4)], { mode: 'circular' }),
  c('TensorScatter', [f(2, 5, 3), f(2, 2, 3)], { axis: 1 }),
  ms('UnfoldTensor', [f(4, 7, 2)], { dim: 1, size: 3, step: 1 }),
  ms('Inverse', [f(3, 3)], {}, 1, 1e-2),
  ms('GridSample', [f(1, 2, 4, 4), f(1, 3, 2, 2)]),
  ms('UnfoldTensor', [f(2, 9)], { size: 2, step: 3 }),
];

const samples = [...CASES.filter(({ op }) => OPERATORS.includes(op)), ...OWN];
// Scales and zero points of quantised weights have no gradients. In float32 alone, differences of places cross the borders
// between pixels: ONNX's own GridSample has them in float64.
const FIRST = { wanted: [true, false, false, false, false, true] };

export const microsoftSamples: readonly (readonly [Case, GradientOptions])[] = samples.map((sample) => {
  const isQuantised = /MatMulNBits|MatMulBnb4/.test(sample.op);
  const isCoarse = sample.op === 'GridSample' && sample.domain !== '';
  return [sample, isQuantised || isCoarse ? FIRST : {}];
});
