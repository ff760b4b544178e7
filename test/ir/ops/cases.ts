/**
 * @file Sample operators: one or more per entry, small, with even sizes so that every factor can be halved.
 */
import type { DType } from '../../../src/ir/dtype.js';
import type { Attributes } from '../../../src/ir/graph.js';
import { constant } from '../../../src/ir/ops/constants.js';

/** An operand: shape, dtype, and the range its random values are drawn from. */
export interface Sample {
  readonly shape: readonly number[];
  readonly dtype: DType;
  readonly low: number;
  readonly high: number;
}

export interface Case {
  readonly op: string;
  readonly inputs: readonly (Sample | null)[];
  readonly attributes: Attributes;
  readonly outputs: number;
  /** Relative tolerance; 1e-4 unless told. */
  readonly tolerance?: number;
}

const f = (...shape: number[]): Sample => ({ shape, dtype: 'float32', low: -1, high: 1 });
const h = (...shape: number[]): Sample => ({ shape, dtype: 'float16', low: -1, high: 1 });
const positive = (...shape: number[]): Sample => ({ shape, dtype: 'float32', low: 0.5, high: 2 });
const wide = (...shape: number[]): Sample => ({ shape, dtype: 'float32', low: -8, high: 8 });
const i = (high: number, ...shape: number[]): Sample => ({ shape, dtype: 'int64', low: 0, high });
const signed = (size: number, ...shape: number[]): Sample => ({ shape, dtype: 'int64', low: -size, high: size });
const b = (...shape: number[]): Sample => ({ shape, dtype: 'bool', low: 0, high: 2 });
const of = (dtype: DType, high: number, ...shape: number[]): Sample => ({ shape, dtype, low: 0, high });
const c = (
  op: string,
  inputs: readonly (Sample | null)[],
  attributes: Attributes = {},
  outputs = 1,
  tolerance = 1e-4,
): Case => ({
  op,
  inputs,
  attributes,
  outputs,
  tolerance,
});

/** Two quantised operands with a scale and zero point each, those of the result, and what follows. */
const quantised = (left: number[], right: number[], ...more: Sample[]): readonly Sample[] => {
  const scaled = (shape: number[]) => [of('uint8', 9, ...shape), positive(), of('uint8', 3)];
  return [...scaled(left), ...scaled(right), positive(), of('uint8', 3), ...more];
};

const ELEMENTWISE: readonly Case[] = [
  ...['Identity', 'Neg', 'Abs', 'Ceil', 'Floor', 'Round', 'Sign', 'Relu', 'LeakyRelu', 'ThresholdedRelu', 'Shrink'].map(
    (op) => c(op, [wide(4, 6)]),
  ),
  ...['HardSigmoid', 'HardSwish', 'Softsign', 'Exp', 'Sigmoid', 'Tanh', 'Erf', 'Elu', 'Selu', 'Celu', 'Softplus'].map(
    (op) => c(op, [f(4, 6)]),
  ),
  ...['Sqrt', 'Reciprocal', 'Log'].map((op) => c(op, [positive(4, 6)])),
  ...['Gelu', 'Mish', 'Swish'].map((op) => c(op, [f(4, 6)])),
  c('Gelu', [f(4, 6)], { approximate: 'tanh' }),
  ...['Sin', 'Cos', 'Tan', 'Asin', 'Atan', 'Sinh', 'Cosh', 'Asinh', 'Acos'].map((op) => c(op, [f(4, 6)])),
  c('Atanh', [{ ...f(4, 6), low: -0.9, high: 0.9 }]),
  c('Acosh', [{ ...f(4, 6), low: 1.5, high: 3 }]),
  c('Not', [b(4, 6)]),
  c('BitwiseNot', [of('int32', 9, 4, 6)]),
  c('IsNaN', [f(4, 6)]),
  c('IsInf', [f(4, 6)]),
  ...['Add', 'Sub', 'Mul', 'Div'].flatMap((op) => [
    c(op, [f(4, 6), positive(4, 6)]),
    c(op, [f(2, 4, 6), positive(6)]),
    c(op, [f(4, 1), positive(2, 1, 6)]),
  ]),
  c('Div', [i(40, 4, 6), { ...i(5, 4, 6), low: 1 }]),
  c('Pow', [positive(4, 6), f()]),
  c('Pow', [f(4, 6), { ...i(3), low: 2 }]),
  c('Mod', [i(20, 4, 6), { ...i(7, 4, 6), low: 1 }]),
  c('Mod', [wide(4, 6), positive(6)], { fmod: 1 }),
  c('BitShift', [of('uint32', 9, 4, 6), of('uint32', 3, 4, 6)], { direction: 'LEFT' }),
  ...['And', 'Or', 'Xor'].map((op) => c(op, [b(4, 6), b(6)])),
  ...['BitwiseAnd', 'BitwiseOr', 'BitwiseXor'].map((op) => c(op, [of('int32', 9, 4, 6), of('int32', 9, 6)])),
  c('PRelu', [f(2, 4, 6), f(4, 1)]),
  ...['Equal', 'Less', 'LessOrEqual', 'Greater', 'GreaterOrEqual'].map((op) => c(op, [i(3, 4, 6), i(3, 4, 1)])),
  ...['Sum', 'Mean', 'Max', 'Min'].map((op) => c(op, [f(4, 6), f(6), f(2, 1, 6)])),
  c('Where', [b(4, 1), f(4, 6), f(6)]),
  c('Clip', [wide(4, 6), { ...f(), low: -2, high: -1 }, { ...f(), low: 1, high: 2 }]),
  c('Clip', [wide(4, 6), null, positive()]),
  c('Cast', [wide(4, 6)], { to: 7 }),
  c('Cast', [f(4, 6)], { to: 11 }),
  c('CastLike', [f(4, 6), i(3, 5)]),
  c('Dropout', [f(4, 6)]),
];

const CONTRACTIONS: readonly Case[] = [
  c('MatMul', [f(4, 6), f(6, 8)]),
  c('MatMul', [f(2, 4, 6), f(6, 8)]),
  c('MatMul', [f(2, 1, 4, 6), f(4, 6, 8)]),
  c('MatMul', [f(6), f(2, 6, 8)]),
  c('MatMul', [f(2, 4, 6), f(6)]),
  c('MatMul', [f(6), f(6)]),
  c('Gemm', [f(4, 6), f(6, 8)], { alpha: 0.5 }),
  c('Gemm', [f(4, 6), f(8, 6), f(8)], { transB: 1, beta: 2 }),
  c('Gemm', [f(6, 4), f(6, 8), f(4, 1)], { transA: 1, alpha: 0.5 }),
  c('Gemm', [f(6, 4), f(6, 8), f()], { transA: 1 }),
  c('Einsum', [f(2, 4, 6), f(6, 4)], { equation: 'bij,jk->bik' }),
  c('Einsum', [f(2, 4, 6), f(2, 8, 6)], { equation: 'bmk, bnk' }),
  c('Einsum', [f(2, 4, 6), f(4, 6, 2)], { equation: 'tec,ecd->td' }),
  c('Einsum', [f(4, 4)], { equation: 'ii->i' }),
  c('Einsum', [f(2, 4, 6), f(2, 6, 8)], { equation: '...ij,...jk->...ik' }),
  c('MatMulInteger', [of('uint8', 9, 2, 4, 6), of('uint8', 9, 6, 8), of('uint8', 3), of('uint8', 3)]),
];

const VIEWS: readonly Case[] = [
  c('Reshape', [f(4, 6, 8)], { shape: [4, 6, 2, 4] }),
  c('Reshape', [f(4, 6, 8)], { shape: [24, 8] }),
  c('Reshape', [f(4, 6)], { shape: [6, 4] }),
  c('Reshape', [f(4, 1, 6)], { shape: [0, -1] }),
  c('Reshape', [f(6, 4, 4)], { shape: [4, 6, 2, 2] }),
  c('Reshape', [f(1, 8)], { shape: [1, 2, 1, 4] }),
  c('Reshape', [f(4)], { shape: [4, 1] }),
  c('Flatten', [f(2, 4, 6)], { axis: 2 }),
  c('Squeeze', [f(4, 1, 6, 1)], { axes: [-1] }),
  c('Squeeze', [f(4, 1, 6, 1)]),
  c('Unsqueeze', [f(4, 6)], { axes: [0, -1] }),
  c('Transpose', [f(2, 4, 6)], { perm: [2, 0, 1] }),
  c('Transpose', [f(2, 4)]),
  c('Expand', [f(4, 1)], { shape: [2, 1, 6] }),
  c('Slice', [f(4, 6, 8)], { starts: [2, 0], ends: [4, 8], axes: [1, 2], steps: [1, 1] }),
  c('Slice', [f(4, 24)], { starts: [8], ends: [16], axes: [1], steps: [1] }),
  c('Slice', [f(4, 8, 6)], { starts: [4], ends: [100], axes: [-2], steps: [1] }),
  c('Slice', [f(4, 6)], { starts: [-1], ends: [-100], axes: [1], steps: [-2] }),
  c('Slice', [f(4, 6)], { starts: [1], ends: [6], axes: [1], steps: [2] }),
  c('Split', [f(4, 12)], { split: [4, 4, 4], axis: 1 }, 3),
  c('Split', [f(4, 12)], { split: [8, 4], axis: -1 }, 2),
  c('Split', [f(4, 7)], { num_outputs: 2, axis: 1 }, 2),
  c('Split', [f(4, 2)], { split: [1, 1], axis: 1 }, 2),
  c('Concat', [f(4, 2), f(4, 2), f(4, 2)], { axis: 1 }),
  c('Concat', [f(4, 2), f(4, 6)], { axis: -1 }),
  c('Concat', [f(4), f(4)], { axis: 0 }),
  c('Pad', [f(4, 6)], { pads: [0, 1, 0, 2] }),
  c('Pad', [f(4, 6)], { pads: [1, 1], axes: [1], mode: 'reflect' }),
  c('Pad', [f(4, 6)], { pads: [0, 1, 0, 2], constant_value: constant('float32', [1]) }),
  c('Tile', [f(4, 6)], { repeats: [2, 4] }),
  c('DepthToSpace', [f(2, 8, 4, 6)], { blocksize: 2 }),
  c('DepthToSpace', [f(2, 8, 4, 6)], { blocksize: 2, mode: 'CRD' }),
  c('SpaceToDepth', [f(2, 4, 4, 8)], { blocksize: 2 }),
];

const INDEXING: readonly Case[] = [
  c('Gather', [f(8, 6), signed(8, 2, 4)]),
  c('Gather', [f(4, 8, 6), i(8)], { axis: 1 }),
  c('Gather', [f(4, 8), i(8, 6)], { axis: -1 }),
  c('GatherElements', [f(4, 8), signed(8, 4, 6)], { axis: 1 }),
  c('GatherElements', [f(4, 8, 6), i(8, 4, 2, 2)], { axis: 1 }),
  c('GatherND', [f(4, 6, 8), i(4, 2, 2)]),
  c('GatherND', [f(4, 6, 8), i(6, 4, 2, 1)], { batch_dims: 1 }),
  c('ScatterElements', [f(4, 6), i(6, 4, 1), f(4, 1)], { axis: 1 }),
  c('ScatterElements', [f(4, 6), i(6, 2, 2), f(2, 2)], { axis: 1, reduction: 'add' }),
  c('ScatterND', [f(4, 6), i(4, 2, 1), f(2, 6)], { reduction: 'add' }),
];

const REDUCTIONS: readonly Case[] = [
  ...['Sum', 'Mean', 'L1', 'L2', 'SumSquare', 'LogSumExp', 'Max', 'Min', 'Prod'].flatMap((kind) => [
    c(`Reduce${kind}`, [f(2, 4, 6)], { axes: [-1, 1], keepdims: 0 }),
    c(`Reduce${kind}`, [f(4, 6)], { axes: [1] }),
    c(`Reduce${kind}`, [f(4, 6)]),
  ]),
  c('ReduceLogSum', [positive(4, 6)], { axes: [1], keepdims: 0 }),
  c('ReduceSum', [f(4, 6)], { noop_with_empty_axes: 1 }),
  c('ReduceSum', [i(9, 4, 6)], { axes: [0] }),
  c(
    'ReduceMean',
    [i(9, 4, 6)].map((sample) => ({ ...sample, dtype: 'int32' as const })),
    { axes: [0] },
  ),
  c('ArgMax', [f(4, 6)], { axis: 1, keepdims: 0 }),
  c('ArgMin', [f(4, 6)]),
  c('TopK', [f(4, 6)], { k: 2 }, 2),
  c('CumSum', [f(4, 6)], { axis: 1 }),
  c('CumProd', [f(4, 6)], { axis: 1 }),
  c('BitCast', [f(4, 6)], { to: 6 }),
];

const NORMALISATIONS: readonly Case[] = [
  c('Softmax', [wide(4, 6)]),
  c('Softmax', [wide(2, 4, 6)], { axis: 1 }),
  c('Softmax', [h(4, 6)], {}, 1, 1e-2),
  c('LogSoftmax', [wide(4, 6)]),
  c('Hardmax', [f(4, 6)]),
  c('LayerNormalization', [wide(4, 2, 6), f(6), f(6)]),
  c('LayerNormalization', [wide(4, 2, 6), f(2, 6)], { axis: 1, epsilon: 1e-3 }, 3),
  c('LayerNormalization', [h(4, 6), h(6), h(6)], {}, 1, 1e-2),
  c('RMSNormalization', [wide(4, 2, 6), f(6)]),
  c('RMSNormalization', [wide(4, 2, 6), f(2, 6)], { axis: -2 }),
  c('BatchNormalization', [f(2, 4, 6), f(4), f(4), f(4), positive(4)]),
  c('InstanceNormalization', [f(2, 4, 6, 2), f(4), f(4)]),
  c('GroupNormalization', [f(2, 8, 6), f(8), f(8)], { num_groups: 4 }),
  c('LpNormalization', [f(4, 6)]),
  c('MeanVarianceNormalization', [f(2, 4, 6, 2)]),
  c('LRN', [f(2, 4, 6, 2)], { size: 3 }),
];

const WINDOWS: readonly Case[] = [
  c('Conv', [f(2, 4, 6, 6), f(8, 4, 3, 3)], { pads: [1, 1, 1, 1] }),
  c('Conv', [f(2, 4, 6, 6), f(8, 4, 3, 3), f(8)], { strides: [2, 2] }),
  c('Conv', [f(2, 8, 6), f(8, 2, 1), f(8)], { group: 4 }),
  c('Conv', [f(2, 8, 6), f(16, 2, 3)], { group: 4, auto_pad: 'SAME_UPPER', strides: [2] }),
  c('Conv', [f(2, 4, 8, 8), f(6, 4, 2, 2), f(6)], { strides: [2, 2] }),
  c('ConvTranspose', [f(2, 4, 6), f(4, 8, 3), f(8)], { strides: [2], output_padding: [1] }),
  c('ConvTranspose', [f(2, 8, 6), f(8, 2, 3)], { group: 4, auto_pad: 'SAME_LOWER', strides: [2] }),
  c('MaxPool', [f(2, 4, 7, 7)], { kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1], ceil_mode: 1 }),
  c('MaxPool', [f(2, 4, 8, 8)], { kernel_shape: [2, 2], strides: [2, 2] }),
  c('MaxPool', [f(2, 4, 8)], { kernel_shape: [2] }, 2),
  c('AveragePool', [f(2, 4, 8, 8)], { kernel_shape: [2, 2], strides: [2, 2] }),
  c('AveragePool', [f(2, 4, 7)], { kernel_shape: [3], pads: [1, 1], count_include_pad: 1, ceil_mode: 1, strides: [2] }),
  c('LpPool', [f(2, 4, 8)], { kernel_shape: [2], strides: [2] }),
  c('GlobalAveragePool', [f(2, 4, 6, 2)]),
  c('GlobalMaxPool', [f(2, 4, 6, 2)]),
  c('Resize', [f(2, 4, 6, 6)], { scales: constant('float32', [1, 1, 2, 2], [4]) }),
  c('Resize', [f(2, 4, 6, 6)], { sizes: [2, 4, 9, 12], mode: 'linear' }),
];

const OTHERS: readonly Case[] = [
  c('Attention', [f(2, 4, 6, 8), f(2, 2, 4, 8), f(2, 2, 4, 4)]),
  c('Attention', [f(2, 4, 6, 8), f(2, 4, 6, 8), f(2, 4, 6, 8)], { is_causal: 1 }),
  c('Attention', [f(2, 6, 32), f(2, 4, 16), f(2, 4, 8)], { q_num_heads: 4, kv_num_heads: 2 }),
  c('Attention', [f(2, 4, 6, 8), f(2, 2, 4, 8), f(2, 2, 4, 8), f(2, 1, 6, 4)], { scale: 0.5, softcap: 2 }),
  c('Attention', [f(2, 4, 6, 8), f(2, 2, 4, 8), f(2, 2, 4, 8), f(2, 4, 6, 4)]),
  c('Attention', [f(2, 4, 6, 8), f(2, 2, 4, 8), f(2, 2, 4, 8), b(6, 4)]),
  c('Attention', [f(2, 4, 6, 8), f(2, 2, 4, 8), f(2, 2, 4, 8), null, f(2, 2, 2, 8), f(2, 2, 2, 8)], {}, 3),
  c('RotaryEmbedding', [f(2, 4, 6, 8), f(10, 4), f(10, 4), i(10, 2, 6)]),
  c('RotaryEmbedding', [f(2, 6, 32), f(2, 6, 4), f(2, 6, 4)], { num_heads: 4 }),
  c('TensorScatter', [f(2, 4, 6, 8), f(2, 4, 2, 8), i(4, 2)]),
  c('GridSample', [f(2, 4, 6, 6), f(2, 8, 4, 2)]),
  c('LSTM', [f(4, 2, 6), f(1, 16, 6), f(1, 16, 4), f(1, 32), null, f(1, 2, 4), f(1, 2, 4)], { hidden_size: 4 }, 3),
  c('GRU', [f(4, 2, 6), f(2, 12, 6), f(2, 12, 4)], { hidden_size: 4, direction: 'bidirectional' }, 2),
  c('RNN', [f(4, 2, 6), f(1, 4, 6), f(1, 4, 4)], { hidden_size: 4 }, 2),
  c('SoftmaxCrossEntropyLoss', [wide(4, 6), i(6, 4)], {}, 2),
  c('SoftmaxCrossEntropyLoss', [wide(4, 6, 2), i(6, 4, 2), positive(6)], { ignore_index: 2 }),
  c('SoftmaxCrossEntropyLoss', [wide(4, 6), i(6, 4)], { ignore_index: 2, reduction: 'sum' }),
  c('SoftmaxCrossEntropyLoss', [wide(4, 6, 2), i(6, 4, 2)], { reduction: 'none' }, 2),
  c('NegativeLogLikelihoodLoss', [f(4, 6, 2), i(6, 4, 2), positive(6)], {}),
  c('NegativeLogLikelihoodLoss', [f(4, 6), i(6, 4)], { ignore_index: 1 }),
  c('Trilu', [f(2, 4, 6)], { upper: 0 }),
  c('Trilu', [f(4, 6)], { k: 1 }),
  c('Range', [], { start: constant('int64', [3]), limit: constant('int64', [27]), delta: constant('int64', [3]) }),
  c('Range', [], {
    start: constant('float32', [1]),
    limit: constant('float32', [-3]),
    delta: constant('float32', [-0.5]),
  }),
  c('OneHot', [signed(6, 4), null, f(2)], { depth: 6 }),
  c('OneHot', [i(6, 4, 2), null, f(2)], { depth: constant('int64', [6]), axis: 1 }),
  c('EyeLike', [f(4, 6)], { k: 1 }),
  c('ConstantOfShape', [], { shape: [4, 6], value: constant('int64', [7], [1]) }),
  c('Constant', [], { value: constant('float32', [1, 2, 3, 4], [2, 2]) }),
  c('Shape', [f(4, 6)], { start: 1 }),
  c('Size', [f(4, 6)]),
  c('QuantizeLinear', [wide(4, 6), positive(6), of('uint8', 9, 6)], { axis: 1 }),
  c('QuantizeLinear', [wide(4, 6), positive()], {}),
  c('QuantizeLinear', [wide(), positive(), of('uint8', 9)], { axis: -1 }),
  c('ConvInteger', [of('uint8', 9, 2, 4, 4, 4), of('uint8', 9, 6, 4, 3, 3), of('uint8', 3)], { pads: [1, 1, 1, 1] }),
  c('ConvInteger', [of('uint8', 9, 2, 4, 4, 4), of('uint8', 9, 4, 2, 1, 1)], { group: 2 }),
  c('QLinearConv', quantised([2, 4, 4, 4], [6, 4, 1, 1], of('int32', 9, 6))),
  c('QLinearConv', quantised([2, 4, 4, 4], [4, 2, 3, 3]), { group: 2, pads: [1, 1, 1, 1] }),
  c('QLinearMatMul', quantised([2, 4, 6], [6, 8])),
  c('DequantizeLinear', [of('uint8', 9, 4, 6), positive(4), of('uint8', 9, 4)], { axis: 0 }),
  c('DequantizeLinear', [of('uint8', 9, 4, 6), positive(), of('uint8', 9, 1)]),
  c('DequantizeLinear', [of('uint8', 9, 4, 6), positive(2, 6)], { block_size: 2, axis: 0 }),
  c('DynamicQuantizeLinear', [wide(4, 6)], {}, 3),
];

export const CASES: readonly Case[] = [
  ...ELEMENTWISE,
  ...CONTRACTIONS,
  ...VIEWS,
  ...INDEXING,
  ...REDUCTIONS,
  ...NORMALISATIONS,
  ...WINDOWS,
  ...OTHERS,
];
