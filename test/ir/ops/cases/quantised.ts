/**
 * @file Samples of ONNX Runtime's operators on quantised tensors.
 */
import { constant } from '../../../../src/ir/ops/constants.js';
import { b, type Case, c, f, i, ms, of, positive, quantised, type Sample, wide } from '../sample.js';

const bytes = (...shape: number[]): Sample => of('uint8', 200, ...shape);
const scale = (...shape: number[]): Sample => ({ shape, dtype: 'float32', low: 0.01, high: 0.05 });
const zero = (...shape: number[]): Sample => of('uint8', 100, ...shape);

const PRODUCTS: readonly Case[] = [
  c('DynamicQuantizeLinear', [wide(4, 6)], {}, 3),
  ms('MatMulInteger16', [of('int16', 9, 2, 4, 6), of('int16', 9, 6, 8)]),
  ms('MatMulIntegerToFloat', [bytes(2, 4, 6), bytes(6, 8), scale(), scale(), zero(), zero()]),
  ms('MatMulIntegerToFloat', [bytes(4, 6), bytes(6, 8), scale(1), scale(8), zero(1), zero(8), f(8)]),
  ms('DynamicQuantizeMatMul', [f(2, 4, 6), bytes(6, 8), scale(), zero()]),
  ms('DynamicQuantizeMatMul', [f(4, 6), bytes(6, 8), scale(8), zero(8), f(8)]),
  ms('QGemm', [bytes(4, 6), scale(), zero(), bytes(6, 8), scale(), zero(), of('int32', 9, 8), scale(), zero()]),
  ms('QGemm', [bytes(4, 6), scale(), zero(), bytes(8, 6), scale(8), zero(8)], { transB: 1, alpha: 0.5 }),
  ms('MatMulNBits', [f(2, 4, 64), bytes(8, 4, 8), scale(8, 4)], { K: 64, N: 8, bits: 4, block_size: 16 }),
  ms('MatMulNBits', [f(4, 64), bytes(8, 4, 8), scale(32), bytes(16)], { K: 64, N: 8, bits: 4, block_size: 16 }),
  ms('MatMulNBits', [f(4, 64), bytes(8, 4, 8), scale(8, 4), bytes(8, 2), null, f(8)], {
    K: 64,
    N: 8,
    bits: 4,
    block_size: 16,
  }),
  ms('MatMulNBits', [f(4, 60), bytes(8, 4, 8), scale(8, 4)], { K: 60, N: 8, bits: 4, block_size: 16 }),
  ms('MatMulNBits', [f(4, 64), bytes(8, 2, 32), scale(8, 2)], { K: 64, N: 8, bits: 8, block_size: 32 }),
  ms('MatMulBnb4', [f(4, 64), bytes(256), scale(32)], { K: 64, N: 8, block_size: 16, quant_type: 1 }),
  ms('GatherBlockQuantized', [bytes(8, 32), i(8, 2, 4), scale(8, 4)], {
    gather_axis: 0,
    quantize_axis: 1,
    block_size: 16,
    bits: 4,
  }),
  ms('GatherBlockQuantized', [bytes(8, 32), i(8, 4), scale(8, 4), bytes(8, 2)], {
    gather_axis: 0,
    quantize_axis: 1,
    block_size: 16,
    bits: 4,
  }),
];

const OTHERS: readonly Case[] = [
  ...['QLinearAdd', 'QLinearMul'].map((op) => ms(op, quantised([2, 4, 6], [4, 6]))),
  ms('QLinearSigmoid', [bytes(4, 6), scale(), zero(), scale(), zero()]),
  ms('QLinearLeakyRelu', [bytes(4, 6), scale(), zero(), scale(), zero()], { alpha: 1 }),
  ms('QLinearWhere', [b(4, 6), bytes(4, 6), scale(), zero(), bytes(6), scale(), zero(), scale(), zero()]),
  ms('QLinearSoftmax', [bytes(2, 4, 6), scale(), zero(), scale(), zero()], { axis: -1, opset: 13 }),
  ms('QLinearSoftmax', [bytes(2, 4, 6), scale(), zero(), scale(), zero()], { axis: 1, opset: 11 }),
  ms('QLinearConcat', [scale(), zero(), bytes(4, 2), scale(), zero(), bytes(4, 2), scale(), zero()], { axis: 1 }),
  ms('QLinearConcat', [scale(), zero(), bytes(4, 2), scale(), zero(), bytes(4, 4), scale(), zero()], { axis: 1 }),
  ms('QLinearAveragePool', [bytes(2, 4, 8, 8), scale(), zero(), scale(), zero()], {
    kernel_shape: [2, 2],
    strides: [2, 2],
  }),
  ms('QLinearAveragePool', [bytes(2, 8, 8, 4), scale(), zero(), scale(), zero()], {
    kernel_shape: [3, 3],
    channels_last: 1,
  }),
  ms('QLinearGlobalAveragePool', [bytes(2, 4, 6, 6), scale(), zero(), scale(), zero()]),
  ms('QLinearGlobalAveragePool', [bytes(2, 6, 6, 4), scale(), zero(), scale(), zero()], { channels_last: 1 }),
  ms('QLinearConv', quantised([2, 4, 4, 4], [6, 4, 1, 1], of('int32', 9, 6))),
  ms('QLinearConv', quantised([2, 4, 4, 4], [6, 4, 1, 1]), { channels_last: 1 }),
  ms('QuantizeLinear', [wide(4, 6), positive(6), of('uint8', 9, 6)], { axis: 1 }),
  ms('DequantizeLinear', [of('uint8', 9, 4, 6), positive(), of('uint8', 9)]),
  ms('NhwcMaxPool', [bytes(2, 8, 8, 4)], { kernel_shape: [2, 2], strides: [2, 2] }),
  ms('Trilu', [f(4, 6)], { upper: 0, k: 1 }),
  ms('GatherND', [f(4, 6, 8), i(4, 2, 2)]),
  ms('GridSample', [f(2, 4, 6, 6), f(2, 8, 4, 2)]),
  ms('Pad', [f(4, 6)], { pads: [0, 1, 0, 2], constant_value: constant('float32', [1]) }),
  ms('Range', [], { start: constant('int64', [3]), limit: constant('int64', [27]), delta: constant('int64', [3]) }),
  ms('ExpandDims', [f(4, 6)], { axis: constant('int32', [1]) }),
  ms('Inverse', [f(2, 4, 4)], {}, 1, 1e-2),
  ms('UnfoldTensor', [f(4, 8)], { dim: 1, size: 4, step: 2 }),
  ms('ConvTransposeWithDynamicPads', [f(2, 4, 6), f(4, 8, 3), null, f(8)], { strides: [2], pads: [1, 1] }),
  ms('ConvTransposeWithDynamicPads', [f(2, 8, 6), f(8, 2, 3)], { group: 4, pads: [0, 1] }),
  ms(
    'DynamicQuantizeLSTM',
    [
      ...[f(4, 2, 6), bytes(1, 6, 16), bytes(1, 4, 16), f(1, 32), null, null, null, null],
      ...[scale(1), zero(1), scale(1), zero(1)],
    ],
    { hidden_size: 4 },
    3,
  ),
  ms('CDist', [f(4, 6), f(8, 6)], { metric: 'euclidean' }),
  ms('CropAndResize', [f(2, 4, 6, 6), { ...f(4, 4), low: 0 }, of('int32', 2, 4)], {
    crop_size: constant('int32', [4, 4], [2]),
  }),
];

export const QUANTISED_CASES: readonly Case[] = [...PRODUCTS, ...OTHERS];
