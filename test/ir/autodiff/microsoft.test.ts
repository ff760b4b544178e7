/**
 * @file Gradients of ONNX Runtime's own operators beside attention and normalisation, and of caches: against finite differences,
 * and lowered under the forward's strategies.
 */
import test from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import { differentiate } from '../../../src/ir/autodiff/differentiate.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { operatorEntries } from '../../../src/ir/ops/index.js';
import { CASES } from '../../ir/ops/cases.js';
import { type Case, c, f, i, ms, of, positive } from '../ops/sample.js';
import { needEntry } from '../ops/simulate.js';
import { checkGradient, checkShardedGradient } from './check-gradient.js';
import { gradientViewOf } from './sample-gradient.js';

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

const bytes = (...shape: number[]) => of('uint8', 256, ...shape);

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
  ms('UnfoldTensor', [f(2, 9)], { size: 2, step: 3 }),
];

const samples = [...CASES.filter(({ op }) => OPERATORS.includes(op)), ...OWN];
for (const [number, sample] of samples.entries()) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify(sample.attributes)}`, async (t) => {
    // Of quantised weights, scales and zero points are what they are.
    const isQuantised = /MatMulNBits|MatMulBnb4/.test(sample.op);
    // In float32 alone, differences of places cross the borders between pixels: ONNX's own GridSample has them in float64.
    const isCoarse = sample.op === 'GridSample' && sample.domain !== '';
    const options = isQuantised || isCoarse ? { wanted: [true, false, false, false, false, true] } : {};
    const error = await checkGradient(sample, options);
    t.log(error.toExponential(1));
    await checkShardedGradient(sample, options);
    t.true(error <= 1e-2);
  });
}

test('scales of quantised weights, and columns in another order, have no gradient, and it says so', (t) => {
  const { gradient } = needEntry('MatMulNBits', 'com.microsoft');
  const attributes = { K: 32, N: 8, bits: 4, block_size: 16 };
  const scales = ms('MatMulNBits', [f(4, 32), bytes(8, 2, 8), positive(8, 2)], attributes);
  const ordered = ms('MatMulNBits', [f(4, 32), bytes(8, 2, 8), positive(8, 2), null, of('int32', 2, 32)], attributes);
  if (typeof gradient !== 'function') return t.fail();
  t.throws(() => gradient(gradientViewOf(scales, {})), { message: /scales and zero points .* are not trained/ });
  t.throws(() => gradient(gradientViewOf(ordered, { wanted: [true] })), { message: /another order/ });
});

test('every operator has a gradient, a reason why none passes, or one why it is refused', (t) => {
  const silent = operatorEntries.filter(({ gradient, lacksGradient }) => gradient === undefined && !lacksGradient);
  t.deepEqual(
    silent.map(({ op }) => op),
    [],
  );
});

test('training through an operator without a gradient is refused with the reason', (t) => {
  const build = new GraphBuilder('regions', 1);
  const image = build.parameter('image', [1, 2, 8, 8]);
  const regions = build.input('regions', 'float32', [2, 4]);
  const samples = build.input('samples', 'int64', [2]);
  const pooled = build.operator('RoiAlign', [image, regions, samples], { output_height: 2, output_width: 2 });
  build.output('loss', build.operator('ReduceSum', [pooled], { axes: [0, 1, 2, 3], keepdims: 0 }));
  t.throws(() => differentiate(build.build(), 'loss', ['image']), {
    message: /RoiAlign\) has no gradient \(where a region lies decides what is read/,
  });
});
