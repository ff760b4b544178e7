/**
 * @file Derivatives of functions of one operand: a formula each, over the operand x, the result y and the result's gradient g.
 * A formula reads the result where the derivative follows from it, instead of recomputing (Exp, Tanh, Sqrt, …). Kinks follow
 * PyTorch: the derivative of the flat side, unless a row states otherwise. Half-precision operands are computed in float32, as in
 * PyTorch's kernels, except where a formula only selects or negates.
 */
import type { DType } from '../dtype.js';
import { numberOf, operand, text } from './operands.js';
import {
  type GradientBody,
  type GradientTable,
  INTEGER_RESULT,
  type OperatorGradient,
  STEPS,
} from './operator-gradient.js';
import type { Arithmetic } from './operator-writer.js';

/** Inputs of a formula: each is cast only when the formula reads it. */
interface ActivationFormula {
  readonly at: Arithmetic;
  readonly x: string;
  readonly y: string;
  readonly g: string;
  /** A number attribute of the operator. */
  readonly value: (attribute: string, otherwise: number) => number;
  readonly text: (attribute: string, otherwise: string) => string;
}

/** Writes g · f′(x). */
type ActivationGradient = (around: ActivationFormula) => string;

const SQRT_HALF = Math.SQRT1_2;
const INVERSE_SQRT_PI = 1 / Math.sqrt(Math.PI);
const GELU_TANH = Math.sqrt(2 / Math.PI);
const GELU_CUBE = 0.044715;

/** Formulas that select or negate: exact in the operand's own type. */
const CHOICES: Readonly<Record<string, ActivationGradient>> = {
  Identity: ({ g }) => g,
  Neg: ({ at, g }) => at.of('Neg', g),
  // Sign(0) = 0.
  Abs: ({ at, x, g }) => at.mul(g, at.of('Sign', x)),
  Relu: ({ at, y, g }) => at.where(at.of('Greater', y, 0), g, 0),
  LeakyRelu: ({ at, x, g, value }) => at.where(at.of('Greater', x, 0), g, at.mul(g, value('alpha', 0.01))),
  ThresholdedRelu: ({ at, x, g, value }) => at.where(at.of('Greater', x, value('alpha', 1)), g, 0),
  Shrink: ({ at, x, g, value }) => at.where(at.of('Greater', at.of('Abs', x), value('lambd', 0.5)), g, 0),
};

const FORMULAS: Readonly<Record<string, ActivationGradient>> = {
  Sqrt: ({ at, y, g }) => at.div(g, at.add(y, y)),
  Reciprocal: ({ at, y, g }) => at.of('Neg', at.mul(g, at.square(y))),
  Exp: ({ at, y, g }) => at.mul(g, y),
  Log: ({ at, x, g }) => at.div(g, x),
  Sigmoid: ({ at, y, g }) => at.mul(g, at.mul(y, at.sub(1, y))),
  Tanh: ({ at, y, g }) => at.mul(g, at.sub(1, at.square(y))),
  Erf: ({ at, x, g }) => at.mul(g, at.mul(bell(at, x, 1), 2 * INVERSE_SQRT_PI)),
  Softsign: ({ at, x, g }) => at.div(g, at.square(at.add(at.of('Abs', x), 1))),
  Softplus: ({ at, x, g }) => at.mul(g, at.of('Sigmoid', x)),
  HardSigmoid: ({ at, y, g, value }) => {
    const inside = at.of('And', at.of('Greater', y, 0), at.of('Less', y, 1));
    return at.where(inside, at.mul(g, value('alpha', 0.2)), 0);
  },
  HardSwish: ({ at, x, g }) => {
    const leakyGradient = at.add(at.mul(x, 1 / 3), 0.5);
    const upper = at.where(at.of('Less', x, 3), at.mul(g, leakyGradient), g);
    return at.where(at.of('Greater', x, -3), upper, 0);
  },
  // Left of 0: α e^x, not y + α, which loses all digits far out.
  Elu: ({ at, x, g, value }) => belowZero(at, x, g, at.mul(at.of('Exp', x), value('alpha', 1))),
  Celu: ({ at, x, g, value }) => belowZero(at, x, g, at.of('Exp', at.mul(x, 1 / value('alpha', 1)))),
  Selu: ({ at, x, g, value }) => {
    const [alpha, gamma] = [value('alpha', 1.6732632423543772), value('gamma', 1.0507009873554805)];
    const right = at.mul(g, gamma);
    return belowZero(at, x, right, at.mul(at.of('Exp', x), alpha));
  },
  // σ + α y (1 − σ) with σ = σ(α x).
  Swish: ({ at, x, y, g, value }) => swish(at, x, y, g, value('alpha', 1)),
  Gelu: ({ at, x, g, text }) =>
    at.mul(g, text('approximate', 'none') === 'tanh' ? tanhGeluDerivative(at, x) : erfGeluDerivative(at, x)),
  // tanh(s) + x (1 − tanh²(s)) σ(x) with s = softplus(x).
  Mish: ({ at, x, g }) => {
    const t = at.of('Tanh', at.of('Softplus', x));
    const bent = at.mul(at.mul(x, at.of('Sigmoid', x)), at.sub(1, at.square(t)));
    return at.mul(g, at.add(t, bent));
  },
  Sin: ({ at, x, g }) => at.mul(g, at.of('Cos', x)),
  Cos: ({ at, x, g }) => at.of('Neg', at.mul(g, at.of('Sin', x))),
  Tan: ({ at, y, g }) => at.mul(g, at.add(at.square(y), 1)),
  Asin: ({ at, x, g }) => at.div(g, at.of('Sqrt', at.sub(1, at.square(x)))),
  Acos: ({ at, x, g }) => at.of('Neg', at.div(g, at.of('Sqrt', at.sub(1, at.square(x))))),
  Atan: ({ at, x, g }) => at.div(g, at.add(at.square(x), 1)),
  Sinh: ({ at, x, g }) => at.mul(g, at.of('Cosh', x)),
  Cosh: ({ at, x, g }) => at.mul(g, at.of('Sinh', x)),
  Asinh: ({ at, x, g }) => at.div(g, at.of('Sqrt', at.add(at.square(x), 1))),
  Acosh: ({ at, x, g }) => at.div(g, at.of('Sqrt', at.sub(at.square(x), 1))),
  Atanh: ({ at, x, g }) => at.div(g, at.sub(1, at.square(x))),
};

const WHY: Readonly<Record<string, string>> = {
  ...Object.fromEntries(['Ceil', 'Floor', 'Round', 'Sign'].map((op) => [op, STEPS])),
  ...Object.fromEntries(['Not', 'BitwiseNot', 'IsNaN', 'IsInf'].map((op) => [op, INTEGER_RESULT])),
};

/** Gradients of ONNX's functions of one operand, by operator. */
export const unaryGradients: GradientTable = {
  ...table(CHOICES, (write) => operand(write.operator, 0).dtype),
  ...table(FORMULAS, (write) => write.sumType),
  ...WHY,
};

/** Gradient of x + bias (an optional bias along the last dimension), then GELU. */
export function biasGelu(derivative: (at: Arithmetic, x: string) => string): GradientBody {
  return (write) => {
    const { shape, dtype } = operand(write.operator, 0);
    const type = write.sumType;
    const at = write.on(type);
    const x = write.inType('in0', dtype, type);
    const biased = write.operator.inputs[1] ? at.add(x, write.inType('in1', dtype, type)) : x;
    const made = at.mul(write.inType('grad0', dtype, type), derivative(at, biased));
    if (write.wants(0)) write.become(0, made, type);
    if (write.wants(1)) write.into(1, made, type, shape);
  };
}

/** Gradient of x σ(α x), with `alpha` as the default of α. */
export function quickGelu(alpha: number): GradientBody {
  return unary(
    ({ at, x, y, g, value }) => swish(at, x, y, g, value('alpha', alpha)),
    (write) => write.sumType,
  );
}

/** Φ(x) + x φ(x): the derivative of x Φ(x), Φ the normal distribution. */
export function erfGeluDerivative(at: Arithmetic, x: string): string {
  const share = at.mul(at.add(at.of('Erf', at.mul(x, SQRT_HALF)), 1), 0.5);
  const density = at.mul(bell(at, x, 0.5), SQRT_HALF * INVERSE_SQRT_PI);
  return at.add(share, at.mul(x, density));
}

/** The derivative of x (1 + tanh u) / 2 with u = √(2/π) (x + 0.044715 x³). */
export function tanhGeluDerivative(at: Arithmetic, x: string): string {
  const square = at.square(x);
  const t = at.of('Tanh', at.mul(at.mul(x, at.add(at.mul(square, GELU_CUBE), 1)), GELU_TANH));
  const inner = at.mul(at.add(at.mul(square, 3 * GELU_CUBE), 1), GELU_TANH / 2);
  const bent = at.mul(at.mul(x, inner), at.sub(1, at.square(t)));
  return at.add(at.mul(at.add(t, 1), 0.5), bent);
}

function table(formulas: Readonly<Record<string, ActivationGradient>>, type: (write: OperatorGradient) => DType) {
  return Object.fromEntries(Object.entries(formulas).map(([op, formula]) => [op, unary(formula, type)]));
}

function unary(formula: ActivationGradient, typeOf: (write: OperatorGradient) => DType): GradientBody {
  return (write) => {
    const { dtype } = operand(write.operator, 0);
    const type = typeOf(write);
    const read = (name: string) => write.inType(name, dtype, type);
    const made = formula({
      at: write.on(type),
      get x() {
        return read('in0');
      },
      get y() {
        return read('out0');
      },
      get g() {
        return read('grad0');
      },
      value: (attribute, otherwise) => numberOf(write.operator, attribute, otherwise),
      text: (attribute, otherwise) => text(write.operator, attribute, otherwise),
    });
    write.become(0, made, type);
  };
}

/** e^(−s x²). */
function bell(at: Arithmetic, x: string, s: number): string {
  const square = at.square(x);
  return at.of('Exp', s === 1 ? at.of('Neg', square) : at.mul(square, -s));
}

/** `right` where x > 0, elsewhere `right` · `slope`. */
function belowZero(at: Arithmetic, x: string, right: string, slope: string): string {
  return at.where(at.of('Greater', x, 0), right, at.mul(right, slope));
}

function swish(at: Arithmetic, x: string, y: string, g: string, alpha: number): string {
  const share = at.of('Sigmoid', alpha === 1 ? x : at.mul(x, alpha));
  const scaled = alpha === 1 ? y : at.mul(y, alpha);
  return at.mul(g, at.add(share, at.mul(scaled, at.sub(1, share))));
}
