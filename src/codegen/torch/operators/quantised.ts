/**
 * @file Quantised operators in torch functions. Sums of integers are formed in float64, which holds them exactly and which every
 * device multiplies.
 */
import type { DType } from '../../../ir/dtype.js';
import { convolutionText } from './layers.js';
import {
  atom,
  axisIn,
  dtypeText,
  has,
  microsoft,
  numberIn,
  rankOf,
  resultOf,
  shapeOf,
  type TorchNode,
  type TorchOperator,
  torch,
  typeOf,
  x,
} from './operator.js';

/** Types of quantised numbers that torch has. */
const QUANTISED: ReadonlySet<DType> = new Set(['uint8', 'int8', 'uint16', 'int16']);

/** Scales or zero points so that they stand along an axis of an operand; null where they are of another form. */
function along(node: TorchNode, index: number, rank: number, axis: number): string | null {
  const shape = shapeOf(node, index);
  if (shape.length === 0 || (shape.length === 1 && shape[0] === 1)) return x(node, index);
  if (shape.length !== 1) return null;
  const behind = rank - 1 - axis;
  if (behind === 0) return x(node, index);
  return `${atom(x(node, index))}.reshape(${[-1, ...Array.from({ length: behind }, () => 1)].join(', ')})`;
}

/** Per block: every scale stands for so many elements along the axis. */
function inBlocks(node: TorchNode, index: number, axis: number): string {
  const size = numberIn(node, 'block_size', 0);
  const length = shapeOf(node)[axis] ?? 1;
  const text = `${atom(x(node, index))}.repeat_interleave(${size}, ${axis})`;
  return (shapeOf(node, index)[axis] ?? 1) * size === length ? text : `${text}.narrow(${axis}, 0, ${length})`;
}

function scaleAt(node: TorchNode, index: number, usual: number): string | null {
  const axis = rankOf(node) === 0 ? 0 : axisIn(node, usual);
  return numberIn(node, 'block_size', 0) ? inBlocks(node, index, axis) : along(node, index, rankOf(node), axis);
}

function quantize(node: TorchNode, usual: number): string | null {
  const { dtype } = resultOf(node);
  const scale = scaleAt(node, 1, usual);
  const zero = has(node, 2) ? scaleAt(node, 2, usual) : '0';
  if (scale === null || zero === null || typeOf(node).dtype !== 'float32') return null;
  return quantized(`${x(node)} / ${scale}`, zero, dtype);
}

function quantized(value: string, zero: string, dtype: DType): string | null {
  return QUANTISED.has(dtype) ? `quantized(${value}, ${zero}, ${dtypeText(dtype)})` : null;
}

function dequantize(node: TorchNode, usual: number): string | null {
  const { dtype } = resultOf(node);
  const scale = scaleAt(node, 1, usual);
  const zero = has(node, 2) ? scaleAt(node, 2, usual) : null;
  const isKnown = QUANTISED.has(typeOf(node).dtype) || typeOf(node).dtype === 'int32';
  if (!isKnown || scale === null || (has(node, 2) && zero === null) || dtype !== 'float32') return null;
  const whole = `${atom(x(node))}.to(${dtypeText(dtype)})`;
  return has(node, 2) ? `(${whole} - ${zero}) * ${scale}` : `${whole} * ${scale}`;
}

/** An operand's whole numbers without its zero point. */
function numbers(node: TorchNode, index: number, zero: number, axis: number): string | null {
  const whole = `${atom(x(node, index))}.double()`;
  if (!has(node, zero)) return whole;
  const own = along(node, zero, rankOf(node, index), axis);
  return own === null ? null : `(${whole} - ${own})`;
}

function matmulText(node: TorchNode, [a, aZero]: QuantisedOperand, [b, bZero]: QuantisedOperand): string | null {
  const left = numbers(node, a, aZero, rankOf(node, a) - 2);
  const right = numbers(node, b, bZero, rankOf(node, b) - 1);
  return left === null || right === null ? null : `${left} @ ${right}`;
}

/** Places of an operand and of its zero point. */
type QuantisedOperand = readonly [value: number, zero: number];

function matMulInteger(node: TorchNode): string | null {
  const text = matmulText(node, [0, 2], [1, 3]);
  return text === null ? null : `(${text}).to(torch.int32)`;
}

function convolved(
  node: TorchNode,
  [a, aZero]: QuantisedOperand,
  [b, bZero]: QuantisedOperand,
  bias: string | null,
): string | null {
  const operands = [numbers(node, a, aZero, 1), numbers(node, b, bZero, 0), bias];
  if (operands[0] === null || operands[1] === null) return null;
  return convolutionText({ ...node, operands, inputs: [typeOf(node, a), typeOf(node, b)] });
}

function convInteger(node: TorchNode): string | null {
  const text = convolved(node, [0, 2], [1, 3], null);
  return text === null ? null : `${text}.to(torch.int32)`;
}

/** `scales` of both operands and the result, with the axis along which the second's and the zero point stand. */
function requantized(node: TorchNode, value: string | null, rank: number, axis: number): string | null {
  const scale = along(node, 4, rank, axis);
  if (value === null || scale === null) return null;
  const factor = `(${x(node, 1)} * ${scale} / ${x(node, 6)})`;
  return quantized(`${value} * ${factor}`, x(node, 7), resultOf(node).dtype);
}

function qLinearMatMul(node: TorchNode): string | null {
  const text = matmulText(node, [0, 2], [3, 5]);
  return requantized(node, text === null ? null : `(${text})`, rankOf(node, 3), rankOf(node, 3) - 1);
}

function qLinearConv(node: TorchNode): string | null {
  if (numberIn(node, 'channels_last', 0)) return null;
  const text = convolved(node, [0, 2], [3, 5], has(node, 8) ? `${atom(x(node, 8))}.double()` : null);
  return requantized(node, text, rankOf(node), 1);
}

export const quantisedOperators: readonly TorchOperator[] = [
  torch('QuantizeLinear', (node) => quantize(node, 1)),
  torch('DequantizeLinear', (node) => dequantize(node, 1)),
  microsoft('QuantizeLinear', (node) => quantize(node, 1)),
  microsoft('DequantizeLinear', (node) => dequantize(node, 1)),
  torch('MatMulInteger', matMulInteger),
  torch('ConvInteger', convInteger),
  torch('QLinearMatMul', qLinearMatMul),
  torch('QLinearConv', qLinearConv),
  microsoft('QLinearConv', qLinearConv),
];

export const QUANTISED_HELPERS = {
  quantized: `def quantized(x, zero, dtype):
    """Whole numbers of x, which is in units of the scale."""
    limits = torch.iinfo(dtype)
    return torch.clamp(torch.round(x) + zero, limits.min, limits.max).to(dtype)
`,
} as const;
