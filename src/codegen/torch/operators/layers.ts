/**
 * @file Matmuls, convolutions, pooling, normalisations and losses in torch functions.
 */
import { elementCount } from '../../../ir/graph.js';
import {
  atom,
  axisIn,
  fromFront,
  has,
  integersIn,
  microsoft,
  number,
  numberIn,
  rankOf,
  resultOf,
  shapeOf,
  type TorchNode,
  type TorchOperator,
  textIn,
  torch,
  tuple,
  typeOf,
  wide,
  x,
} from './operator.js';

const real = (node: TorchNode, name: string, otherwise: number) => number(numberIn(node, name, otherwise), 'float32');

const optional = (node: TorchNode, index: number) => (has(node, index) ? x(node, index) : 'None');

function gemm(node: TorchNode): string {
  const [a, b] = [0, 1].map((index) => {
    const isTransposed = numberIn(node, index === 0 ? 'transA' : 'transB', 0) !== 0;
    return isTransposed ? `${atom(x(node, index))}.T` : x(node, index);
  });
  const alpha = numberIn(node, 'alpha', 1);
  const beta = numberIn(node, 'beta', 1);
  const matmul = alpha === 1 ? `${a} @ ${b}` : `${a} @ ${b} * ${number(alpha, 'float32')}`;
  if (!has(node, 2)) return matmul;
  return `${matmul} + ${x(node, 2)}${beta === 1 ? '' : ` * ${number(beta, 'float32')}`}`;
}

function einsum(node: TorchNode): string {
  return `torch.einsum("${textIn(node, 'equation', '').replaceAll(' ', '')}", ${node.operands.join(', ')})`;
}

/** How a window moves over the dimensions behind batch and channels. */
interface TorchWindow {
  readonly kernel: readonly number[];
  readonly strides: readonly number[];
  readonly dilations: readonly number[];
  readonly before: readonly number[];
  readonly after: readonly number[];
}

/** null for a form that torch has no argument for. */
function windowOf(node: TorchNode, kernel: readonly number[]): TorchWindow | null {
  const ones = kernel.map(() => 1);
  const strides = integersIn(node, 'strides') ?? ones;
  const dilations = integersIn(node, 'dilations') ?? ones;
  const kind = textIn(node, 'auto_pad', 'NOTSET');
  const sizes = shapeOf(node).slice(2);
  if (kind === 'SAME_UPPER' || kind === 'SAME_LOWER') {
    const total = kernel.map((size, axis) => {
      const [stride = 1, dilation = 1, length = 1] = [strides[axis], dilations[axis], sizes[axis]];
      return Math.max(0, (Math.ceil(length / stride) - 1) * stride + (size - 1) * dilation + 1 - length);
    });
    const less = total.map((amount) => Math.floor(amount / 2));
    const more = total.map((amount) => Math.ceil(amount / 2));
    const [before, after] = kind === 'SAME_UPPER' ? [less, more] : [more, less];
    return { kernel, strides, dilations, before, after };
  }
  const pads = kind === 'VALID' ? [] : (integersIn(node, 'pads') ?? []);
  const before = kernel.map((_, axis) => pads[axis] ?? 0);
  const after = kernel.map((_, axis) => pads[axis + kernel.length] ?? 0);
  return { kernel, strides, dilations, before, after };
}

const isEven = ({ before, after }: TorchWindow) => before.every((amount, axis) => amount === after[axis]);

/** A dimension's own number where it is the same for all, else a tuple. */
const each = (values: readonly number[]) =>
  values.every((value) => value === values[0]) ? String(values[0]) : tuple(values);

const named = (name: string, values: readonly number[], usual: number) =>
  values.every((value) => value === usual) ? '' : `, ${name}=${each(values)}`;

/** The operand with its padding written out, where it differs at both ends. */
function padded(node: TorchNode, { before, after }: TorchWindow, value: string): string {
  const amounts = before.map((amount, axis) => [amount, after[axis] ?? 0]).reverse();
  return `F.pad(${x(node)}, ${tuple(amounts.flat())}, value=${value})`;
}

export function convolutionText(node: TorchNode): string | null {
  const weight = shapeOf(node, 1);
  const window = windowOf(node, weight.slice(2));
  const rank = weight.length - 2;
  if (!window || rank < 1 || rank > 3) return null;
  const even = isEven(window);
  const operand = even ? x(node) : padded(node, window, '0.0');
  const bias = has(node, 2) ? `, ${x(node, 2)}` : '';
  const group = numberIn(node, 'group', 1);
  const more = [
    named('stride', window.strides, 1),
    even ? named('padding', window.before, 0) : '',
    named('dilation', window.dilations, 1),
    group === 1 ? '' : `, groups=${group}`,
  ];
  return `F.conv${rank}d(${operand}, ${x(node, 1)}${bias}${more.join('')})`;
}

/**
 * The gradient of a convolution's kernel, of its image and its result's gradient. torch has one number for the paddings of both
 * ends: what is beyond the last window at the end is not read.
 */
function kernelGradient(node: TorchNode): string | null {
  const kernel = resultOf(node).shape;
  const window = windowOf(node, kernel.slice(2));
  const rank = kernel.length - 2;
  if (!window || rank < 1 || rank > 3) return null;
  const { strides, dilations, before } = window;
  const isPadded = before.every((amount, axis) => {
    const [size = 1, stride = 1] = [shapeOf(node)[axis + 2], strides[axis]];
    const last = size + 2 * amount - 1 - (dilations[axis] ?? 1) * ((window.kernel[axis] ?? 1) - 1);
    return Math.floor(last / stride) + 1 === shapeOf(node, 1)[axis + 2];
  });
  const group = numberIn(node, 'group', 1);
  const more = [
    named('stride', strides, 1),
    isPadded ? named('padding', before, 0) : '',
    named('dilation', dilations, 1),
    group === 1 ? '' : `, groups=${group}`,
  ];
  const image = isPadded ? x(node) : padded(node, window, '0.0');
  return `torch.nn.grad.conv${rank}d_weight(${image}, ${tuple(kernel)}, ${x(node, 1)}${more.join('')})`;
}

/**
 * torch has one number for the paddings of both ends: a result that is padded less at its end is longer there, as far as torch
 * allows; other unequal paddings are cropped from the result.
 */
function transposedConvolution(node: TorchNode): string | null {
  const weight = shapeOf(node, 1);
  const rank = weight.length - 2;
  const given = windowOf({ ...node, attributes: { ...node.attributes, auto_pad: 'NOTSET' } }, weight.slice(2));
  if (!given || rank < 1 || rank > 3) return null;
  const window = { ...given, ...paddingOfResult(node, given) };
  const { strides, dilations, before, after } = window;
  if ([...before, ...after].some((amount) => amount < 0)) return null;
  const own = integersIn(node, 'output_padding') ?? before.map(() => 0);
  const longer = own.map((amount, axis) => amount + (before[axis] ?? 0) - (after[axis] ?? 0));
  const isAllowed = (amount: number, axis: number) =>
    amount >= (own[axis] ?? 0) && amount < Math.max(strides[axis] ?? 1, dilations[axis] ?? 1);
  const isWhole = isEven(window) || longer.every(isAllowed);
  const more = [
    named('stride', strides, 1),
    isWhole ? named('padding', before, 0) : '',
    named('output_padding', isWhole ? longer : own, 0),
    numberIn(node, 'group', 1) === 1 ? '' : `, groups=${numberIn(node, 'group', 1)}`,
    named('dilation', dilations, 1),
  ];
  const bias = has(node, 2) ? `, ${x(node, 2)}` : '';
  const text = `F.conv_transpose${rank}d(${x(node)}, ${x(node, 1)}${bias}${more.join('')})`;
  const cut = before.map((amount, axis) => [-amount, -(after[axis] ?? 0)]).reverse();
  return isWhole ? text : `F.pad(${text}, ${tuple(cut.flat().map((amount) => amount || 0))})`;
}

/** For a transposed convolution with a given result size: the padding that removes the other positions at both ends. */
function paddingOfResult(
  node: TorchNode,
  { kernel, strides, dilations }: TorchWindow,
): Partial<Pick<TorchWindow, 'before' | 'after'>> {
  const kind = textIn(node, 'auto_pad', 'NOTSET');
  if (kind === 'NOTSET' && !integersIn(node, 'output_shape')) return {};
  const total = kernel.map((size, axis) => {
    const [from = 1, to = 1] = [shapeOf(node)[axis + 2], resultOf(node).shape[axis + 2]];
    const more = integersIn(node, 'output_padding')?.[axis] ?? 0;
    return (strides[axis] ?? 1) * (from - 1) + more + (size - 1) * (dilations[axis] ?? 1) + 1 - to;
  });
  const less = total.map((amount) => Math.floor(amount / 2));
  const rest = total.map((amount, axis) => amount - (less[axis] ?? 0));
  return kind === 'SAME_UPPER' ? { before: less, after: rest } : { before: rest, after: less };
}

function maxPool(node: TorchNode): string | null {
  const window = windowOf(node, integersIn(node, 'kernel_shape') ?? []);
  const isReal = typeOf(node).dtype.includes('float');
  if (!window || (node.outputs.length > 1 && node.outputs[1]) || !isReal) return null;
  const within = isEven(window) && window.before.every((amount, axis) => amount * 2 <= (window.kernel[axis] ?? 0));
  const operand = within ? x(node) : padded(node, window, 'float("-inf")');
  const more = [
    `, stride=${each(window.strides)}`,
    within ? named('padding', window.before, 0) : '',
    named('dilation', window.dilations, 1),
    numberIn(node, 'ceil_mode', 0) ? ', ceil_mode=True' : '',
  ];
  return `F.max_pool${window.kernel.length}d(${operand}, ${each(window.kernel)}${more.join('')})`;
}

function averagePool(node: TorchNode): string | null {
  const window = windowOf(node, integersIn(node, 'kernel_shape') ?? []);
  const isDilated = window?.dilations.some((dilation) => dilation !== 1);
  if (!window || isDilated || !isEven(window)) return null;
  if (window.before.some((amount, axis) => amount * 2 > (window.kernel[axis] ?? 0))) return null;
  const isPadded = window.before.some((amount) => amount > 0);
  const ceil = numberIn(node, 'ceil_mode', 0) ? ', ceil_mode=True' : '';
  const counts = isPadded ? `, count_include_pad=${numberIn(node, 'count_include_pad', 0) ? 'True' : 'False'}` : '';
  const more = [`, stride=${each(window.strides)}`, named('padding', window.before, 0), ceil, counts];
  return `F.avg_pool${window.kernel.length}d(${x(node)}, ${each(window.kernel)}${more.join('')})`;
}

/**
 * Norms of windows; torch takes powers of the values themselves, and of a window that ends behind the operand a mean of fewer.
 * Zeros around the operand change no norm.
 */
function normPool(node: TorchNode): string | null {
  const window = windowOf(node, integersIn(node, 'kernel_shape') ?? []);
  if (!window || window.dilations.some((dilation) => dilation !== 1) || window.kernel.length > 3) return null;
  const { kernel, strides, before } = window;
  const places = resultOf(node).shape.slice(2);
  const after = shapeOf(node)
    .slice(2)
    .map((size, axis) => {
      const end = ((places[axis] ?? 1) - 1) * (strides[axis] ?? 1) + (kernel[axis] ?? 1);
      return Math.max(0, end - size - (before[axis] ?? 0));
    });
  const isPadded = [...before, ...after].some((amount) => amount > 0);
  const operand = isPadded ? padded(node, { ...window, after }, '0.0') : x(node);
  const p = numberIn(node, 'p', 2);
  const powers = p % 2 === 0 ? operand : `torch.abs(${operand})`;
  return `F.lp_pool${kernel.length}d(${powers}, ${number(p, 'float64')}, ${each(kernel)}, stride=${each(strides)})`;
}

function localNormalisation(node: TorchNode): string | null {
  const size = numberIn(node, 'size', 1);
  if (size % 2 === 0) return null;
  const more = [real(node, 'alpha', 1e-4), real(node, 'beta', 0.75), real(node, 'bias', 1)];
  return `F.local_response_norm(${x(node)}, ${size}, ${more.join(', ')})`;
}

/** A matmul whose operands may be transposed, in the last two dimensions or as a stack of rows. */
function fusedMatmul(node: TorchNode): string | null {
  if (numberIn(node, 'transBatchA', 0) || numberIn(node, 'transBatchB', 0)) return null;
  const [a, b] = [0, 1].map((index) => {
    const isTransposed = numberIn(node, index === 0 ? 'transA' : 'transB', 0) !== 0 && rankOf(node, index) > 1;
    return isTransposed ? `${atom(x(node, index))}.mT` : x(node, index);
  });
  const alpha = numberIn(node, 'alpha', 1);
  return alpha === 1 ? `${a} @ ${b}` : `${a} @ ${b} * ${number(alpha, 'float32')}`;
}

function overPlaces(name: string): (node: TorchNode) => string {
  return (node) => {
    const dims = Array.from({ length: rankOf(node) - 2 }, (_, axis) => axis + 2);
    return `torch.${name}(${x(node)}, dim=${tuple(dims)}, keepdim=True)`;
  };
}

function layerNormalisation(node: TorchNode): string | null {
  const axis = axisIn(node, -1);
  const shape = shapeOf(node).slice(axis);
  const fits = (index: number) => !has(node, index) || String(shapeOf(node, index)) === String(shape);
  if (!fits(1) || !fits(2) || typeOf(node).dtype !== typeOf(node, 1).dtype) return null;
  const more = `${tuple(shape)}, ${x(node, 1)}, ${optional(node, 2)}, ${real(node, 'epsilon', 1e-5)}`;
  if (node.outputs.slice(1).every((output) => output === null)) return `F.layer_norm(${x(node)}, ${more})`;
  const all = `torch.native_layer_norm(${x(node)}, ${more})`;
  return node.outputs.length === 2 ? `${all}[:2]` : all;
}

function rmsNormalisation(node: TorchNode): string | null {
  const shape = shapeOf(node).slice(axisIn(node, -1));
  if (String(shapeOf(node, 1)) !== String(shape)) return null;
  if (node.outputs.length > 1 && node.outputs.slice(1).some((output) => output !== null)) return null;
  return `F.rms_norm(${x(node)}, ${tuple(shape)}, ${x(node, 1)}, ${real(node, 'epsilon', 1e-5)})`;
}

function batchNormalisation(node: TorchNode): string {
  const [scale, bias, mean, variance] = [x(node, 1), x(node, 2), x(node, 3), x(node, 4)];
  const epsilon = real(node, 'epsilon', 1e-5);
  if (!numberIn(node, 'training_mode', 0))
    return `F.batch_norm(${x(node)}, ${mean}, ${variance}, ${scale}, ${bias}, eps=${epsilon})`;
  const momentum = real(node, 'momentum', 0.9);
  const all = `batch_norm_training(${[x(node), scale, bias, mean, variance, epsilon, momentum].join(', ')})`;
  return node.outputs.length === 1 ? `${all}[0]` : all;
}

/** The function of `F` refuses groups of one value, for which the operator is its bias. */
function groupNormalisation(node: TorchNode): string | null {
  if (String(shapeOf(node, 1)) !== String([shapeOf(node)[1]])) return null;
  const groups = numberIn(node, 'num_groups', 1);
  return `torch.group_norm(${x(node)}, ${groups}, ${x(node, 1)}, ${x(node, 2)}, ${real(node, 'epsilon', 1e-5)})`;
}

/** Each channel is a group. */
function instanceNormalisation(node: TorchNode): string {
  return `torch.group_norm(${x(node)}, ${shapeOf(node)[1]}, ${x(node, 1)}, ${x(node, 2)}, ${real(node, 'epsilon', 1e-5)})`;
}

function softmax(name: string): (node: TorchNode) => string {
  return (node) => `torch.${name}(${x(node)}, dim=${axisIn(node, -1)})`;
}

/** Scores, or their logarithmic probabilities; the second result is the latter. */
function loss(node: TorchNode): string | null {
  const isScores = node.op === 'SoftmaxCrossEntropyLoss';
  const ignored = 'ignore_index' in node.attributes ? `, ignore_index=${numberIn(node, 'ignore_index', -100)}` : '';
  const reduction = textIn(node, 'reduction', 'mean');
  const weight = has(node, 2) ? `, weight=${x(node, 2)}` : '';
  const labels = typeOf(node, 1).dtype === 'int64' ? x(node, 1) : `${atom(x(node, 1))}.long()`;
  // torch ignores labels of -100 by default.
  const left = ignored || ', ignore_index=-(2**31)';
  const name = isScores ? 'cross_entropy' : 'nll_loss';
  const value = `F.${name}(${x(node)}, ${labels}${weight}${left}, reduction="${reduction}")`;
  if (elementCount(shapeOf(node)) === 0) return null;
  return node.outputs.length > 1 && node.outputs[1] ? `${value}, torch.log_softmax(${x(node)}, dim=1)` : value;
}

function lpNormalisation(node: TorchNode): string {
  const p = number(numberIn(node, 'p', 2), 'float32');
  return `F.normalize(${x(node)}, p=${p}, dim=${fromFront(numberIn(node, 'axis', -1), resultOf(node).shape.length)})`;
}

export const layerOperators: readonly TorchOperator[] = [
  torch(
    'MatMul',
    wide((node) => `${x(node)} @ ${x(node, 1)}`),
  ),
  torch('Gemm', gemm),
  torch('Einsum', einsum),
  torch('Conv', convolutionText),
  { op: 'KernelGradient', domain: 'autopar', text: kernelGradient },
  torch('ConvTranspose', transposedConvolution),
  torch('MaxPool', maxPool),
  torch('AveragePool', averagePool),
  torch('LpPool', normPool),
  torch('LRN', localNormalisation),
  microsoft('FusedMatMul', fusedMatmul),
  microsoft('TransposeMatMul', fusedMatmul),
  microsoft('Inverse', (node) => `torch.linalg.inv(${x(node)})`),
  torch('GlobalAveragePool', overPlaces('mean')),
  torch('GlobalMaxPool', overPlaces('amax')),
  torch('LayerNormalization', layerNormalisation),
  torch('RMSNormalization', rmsNormalisation),
  torch('SimplifiedLayerNormalization', rmsNormalisation),
  torch('BatchNormalization', batchNormalisation),
  torch('GroupNormalization', groupNormalisation),
  torch('InstanceNormalization', instanceNormalisation),
  torch('LpNormalization', lpNormalisation),
  torch('Softmax', softmax('softmax')),
  torch('LogSoftmax', softmax('log_softmax')),
  torch('SoftmaxCrossEntropyLoss', loss),
  torch('NegativeLogLikelihoodLoss', loss),
  torch('Det', (node) => `torch.linalg.det(${x(node)})`),
];
