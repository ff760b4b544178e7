/**
 * @file Elementwise operators in torch functions.
 */
import type { DType } from '../../../ir/dtype.js';
import { dtypeOfOnnx } from '../../../ir/dtype.js';
import {
  atom,
  constantIn,
  dtypeText,
  has,
  isFloat,
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
  WIDE,
  wide,
  x,
} from './operator.js';

const FUNCTIONS: Readonly<Record<string, string>> = {
  Abs: 'torch.abs',
  Ceil: 'torch.ceil',
  Floor: 'torch.floor',
  Round: 'torch.round',
  Sign: 'torch.sign',
  Relu: 'torch.relu',
  Not: 'torch.logical_not',
  BitwiseNot: 'torch.bitwise_not',
  Sqrt: 'torch.sqrt',
  Reciprocal: 'torch.reciprocal',
  Exp: 'torch.exp',
  Log: 'torch.log',
  Sigmoid: 'torch.sigmoid',
  Tanh: 'torch.tanh',
  Erf: 'torch.erf',
  Softplus: 'F.softplus',
  Softsign: 'F.softsign',
  Mish: 'F.mish',
  HardSwish: 'F.hardswish',
  Sin: 'torch.sin',
  Cos: 'torch.cos',
  Tan: 'torch.tan',
  Asin: 'torch.asin',
  Acos: 'torch.acos',
  Atan: 'torch.atan',
  Sinh: 'torch.sinh',
  Cosh: 'torch.cosh',
  Asinh: 'torch.asinh',
  Acosh: 'torch.acosh',
  Atanh: 'torch.atanh',
  IsNaN: 'torch.isnan',
};

const BINARY: Readonly<Record<string, string>> = {
  Add: '+',
  Sub: '-',
  Mul: '*',
  Equal: '==',
  Less: '<',
  LessOrEqual: '<=',
  Greater: '>',
  GreaterOrEqual: '>=',
};

const LOGICAL: Readonly<Record<string, string>> = {
  And: 'torch.logical_and',
  Or: 'torch.logical_or',
  Xor: 'torch.logical_xor',
  BitwiseAnd: 'torch.bitwise_and',
  BitwiseOr: 'torch.bitwise_or',
  BitwiseXor: 'torch.bitwise_xor',
};

const real = (node: TorchNode, name: string, otherwise: number) => number(numberIn(node, name, otherwise), 'float32');

function chained(node: TorchNode, join: (left: string, right: string) => string): string {
  const present = node.operands.filter((operand) => operand !== null);
  return present.length === 1 ? atom(present[0] as string) : present.slice(1).reduce(join, present[0] as string);
}

function gelu(node: TorchNode): string {
  return textIn(node, 'approximate', 'none') === 'tanh'
    ? `F.gelu(${x(node)}, approximate="tanh")`
    : `F.gelu(${x(node)})`;
}

/** Its bounds are scalars, either of which may be left out. */
function clip(node: TorchNode): string {
  const bounds = [has(node, 1) ? `min=${x(node, 1)}` : null, has(node, 2) ? `max=${x(node, 2)}` : null];
  const given = bounds.filter((bound) => bound !== null);
  return given.length === 0 ? x(node) : `torch.clamp(${[x(node), ...given].join(', ')})`;
}

function cast(node: TorchNode, dtype: DType): string | null {
  const [from, to] = [typeOf(node).dtype, dtype];
  return from === 'string' || to === 'string' ? null : `${atom(x(node))}.to(${dtypeText(to)})`;
}

function isInfinite(node: TorchNode): string {
  const [negative, positive] = [numberIn(node, 'detect_negative', 1), numberIn(node, 'detect_positive', 1)];
  if (negative && positive) return `torch.isinf(${x(node)})`;
  if (positive) return `torch.isposinf(${x(node)})`;
  return negative ? `torch.isneginf(${x(node)})` : `torch.zeros_like(${x(node)}, dtype=torch.bool)`;
}

function binary(node: TorchNode, sign: string): string {
  const { dtype } = typeOf(node);
  if (!WIDE.has(dtype) || sign === '==') return `${x(node)} ${sign} ${x(node, 1)}`;
  const [left, right] = [`${atom(x(node))}.long()`, `${atom(x(node, 1))}.long()`];
  const isCompared = /[<>]/.test(sign);
  // The order of numbers without a sign is that of numbers with one, the first bit being flipped.
  if (isCompared && dtype === 'uint64') return `(${left} ^ -(2**63)) ${sign} (${right} ^ -(2**63))`;
  return isCompared ? `${left} ${sign} ${right}` : `(${left} ${sign} ${right}).to(${dtypeText(dtype)})`;
}

/** torch shifts uint8 alone of unsigned numbers. */
function shifted(node: TorchNode): string {
  const { dtype } = typeOf(node);
  const isLeft = textIn(node, 'direction', 'LEFT') === 'LEFT';
  const name = `torch.bitwise_${isLeft ? 'left' : 'right'}_shift`;
  if (dtype === 'uint64' && !isLeft) return `shifted_right(${x(node)}, ${x(node, 1)})`;
  if (!WIDE.has(dtype)) return `${name}(${x(node)}, ${x(node, 1)})`;
  return `${name}(${atom(x(node))}.long(), ${atom(x(node, 1))}.long()).to(${dtypeText(dtype)})`;
}

/** The slope's dimensions are the last ones of the operand that it scales. */
function prelu(node: TorchNode): string {
  return `torch.where(${x(node)} < 0, ${x(node)} * ${x(node, 1)}, ${x(node)})`;
}

function power(node: TorchNode): string {
  const text = `torch.pow(${x(node)}, ${x(node, 1)})`;
  return typeOf(node).dtype === typeOf(node, 1).dtype ? text : `${text}.to(${dtypeText(typeOf(node).dtype)})`;
}

function divided(node: TorchNode): string {
  const isReal = isFloat(typeOf(node));
  return isReal ? `${x(node)} / ${x(node, 1)}` : `torch.div(${x(node)}, ${x(node, 1)}, rounding_mode="trunc")`;
}

function mean(node: TorchNode): string {
  const count = node.operands.filter((operand) => operand !== null).length;
  return `(${chained(node, (left, right) => `${left} + ${right}`)}) / ${count}`;
}

/** Evaluation: nothing is dropped. */
function undropped(node: TorchNode): string | null {
  const isTraining = constantIn(node, 'training_mode')?.[0] ?? numberIn(node, 'training_mode', 0);
  if (isTraining !== 0 || has(node, 2)) return null;
  return node.outputs.length > 1 && node.outputs[1]
    ? `${x(node)}, torch.ones(${tuple(shapeOf(node))}, dtype=torch.bool)`
    : x(node);
}

const numbers = (operator: TorchOperator): TorchOperator => ({ ...operator, takesNumbers: true });

export const elementwiseOperators: readonly TorchOperator[] = [
  ...Object.entries(FUNCTIONS).map(([op, name]) => torch(op, (node) => `${name}(${x(node)})`)),
  ...Object.entries(BINARY).map(([op, sign]) => numbers(torch(op, (node) => binary(node, sign)))),
  ...Object.entries(LOGICAL).map(([op, name]) => torch(op, (node) => `${name}(${x(node)}, ${x(node, 1)})`)),
  numbers(torch('Div', wide(divided, true))),
  torch('Identity', (node) => x(node)),
  torch('Neg', (node) => `-${atom(x(node))}`),
  numbers(torch('Pow', power)),
  torch(
    'Mod',
    wide((node) => `torch.${numberIn(node, 'fmod', 0) ? 'fmod' : 'remainder'}(${x(node)}, ${x(node, 1)})`, true),
  ),
  torch('BitShift', shifted),
  torch('BitCast', (node) => `${atom(x(node))}.view(${dtypeText(resultOf(node).dtype)})`),
  torch('IsInf', isInfinite),
  torch('PRelu', prelu),
  torch('Sum', (node) => chained(node, (left, right) => `${left} + ${right}`)),
  torch('Mean', mean),
  torch(
    'Max',
    wide((node) => chained(node, (left, right) => `torch.maximum(${left}, ${right})`), true),
  ),
  torch(
    'Min',
    wide((node) => chained(node, (left, right) => `torch.minimum(${left}, ${right})`), true),
  ),
  torch('Where', (node) => `torch.where(${x(node)}, ${x(node, 1)}, ${x(node, 2)})`),
  torch('Clip', wide(clip, true)),
  torch('Cast', (node) => cast(node, dtypeOfOnnx(numberIn(node, 'to', 1)) ?? resultOf(node).dtype)),
  torch('CastLike', (node) => cast(node, typeOf(node, 1).dtype)),
  torch('Dropout', undropped),
  torch('Gelu', gelu),
  torch('Elu', (node) => `F.elu(${x(node)}, alpha=${real(node, 'alpha', 1)})`),
  torch('Celu', (node) => `F.celu(${x(node)}, alpha=${real(node, 'alpha', 1)})`),
  torch('Selu', (node) => {
    const own = 'alpha' in node.attributes || 'gamma' in node.attributes;
    if (!own) return `torch.selu(${x(node)})`;
    const [alpha, gamma] = [real(node, 'alpha', 1.67326319), real(node, 'gamma', 1.05070102)];
    return `F.elu(${x(node)}, alpha=${alpha}) * ${gamma}`;
  }),
  torch('LeakyRelu', (node) => `F.leaky_relu(${x(node)}, ${real(node, 'alpha', 0.01)})`),
  torch('ThresholdedRelu', (node) => `F.threshold(${x(node)}, ${real(node, 'alpha', 1)}, 0.0)`),
  torch('HardSigmoid', (node) => {
    const line = `${x(node)} * ${real(node, 'alpha', 0.2)} + ${real(node, 'beta', 0.5)}`;
    return `torch.clamp(${line}, 0.0, 1.0)`;
  }),
  torch('Swish', (node) => {
    const alpha = numberIn(node, 'alpha', 1);
    return alpha === 1 ? `F.silu(${x(node)})` : `${x(node)} * torch.sigmoid(${x(node)} * ${number(alpha, 'float32')})`;
  }),
  torch('Shrink', (node) => {
    const [bias, lambd] = [real(node, 'bias', 0), real(node, 'lambd', 0.5)];
    const [above, below] = [`${x(node)} > ${lambd}`, `${x(node)} < -${lambd}`];
    if (!isFloat(typeOf(node))) return null;
    return `torch.where(${above}, ${x(node)} - ${bias}, torch.where(${below}, ${x(node)} + ${bias}, 0.0))`;
  }),
  microsoft('Gelu', (node) => `F.gelu(${x(node)})`),
  microsoft('QuickGelu', (node) => `${x(node)} * torch.sigmoid(${x(node)} * ${real(node, 'alpha', 1.702)})`),
  microsoft('BiasGelu', (node) => `F.gelu(${x(node)} + ${x(node, 1)})`),
  microsoft('FastGelu', (node) => {
    const sum = has(node, 1) ? `${x(node)} + ${x(node, 1)}` : x(node);
    return rankOf(node) > 0 ? `F.gelu(${sum}, approximate="tanh")` : null;
  }),
];
