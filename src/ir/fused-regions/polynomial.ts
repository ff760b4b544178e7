/**
 * @file Arithmetic with constants read as a polynomial of one tensor, so that a formula is recognised in whatever order it
 * is written: √(2/π)·(x + 0.044715·x³) and (0.79788·x)·(1 + 0.044715·x·x) are one polynomial.
 */
import type { DType } from '../dtype.js';
import type { Node } from '../graph.js';
import { type GraphIndex, isOp, makerOf, operandOf, scalarOf, soleReader } from './matching.js';

/** Coefficients from degree 0 upwards. */
export type Polynomial = readonly number[];

export interface PolynomialForm {
  /** The tensor it is a polynomial of; null for a constant. */
  readonly variable: string | null;
  readonly coefficients: Polynomial;
  readonly nodes: readonly Node[];
}

/** No activation needs more. */
const MAX_DEGREE = 3;
const MAX_DEPTH = 8;

/**
 * `tensor` as a polynomial. Tensors with one reader are looked into; the variable is `variable`, or else the one tensor
 * with several readers that is met. Null where there is more than one.
 */
export function polynomialOf(
  index: GraphIndex,
  tensor: string,
  variable: string | null,
  depth = 0,
): PolynomialForm | null {
  if (tensor === variable) return { variable, coefficients: [0, 1], nodes: [] };
  const value = scalarOf(index, tensor);
  if (value !== null) return { variable: null, coefficients: [value], nodes: [] };
  if (!soleReader(index, tensor))
    return variable === null ? { variable: tensor, coefficients: [0, 1], nodes: [] } : null;
  const maker = makerOf(index, tensor);
  if (!maker || depth === MAX_DEPTH) return null;
  const combine = isOp(maker, ...Object.keys(COMBINATIONS)) ? COMBINATIONS[maker.op] : undefined;
  const power = isOp(maker, 'Pow') ? scalarOf(index, maker.inputs[1]) : 1;
  if (!combine || power === null) return null;
  const operands: PolynomialForm[] = [];
  for (const input of isOp(maker, 'Pow') ? maker.inputs.slice(0, 1) : maker.inputs) {
    const operand = input === null ? null : polynomialOf(index, input, variable, depth + 1);
    if (!operand) return null;
    operands.push(operand);
  }
  const [left = null, right = null] = operands;
  const known = [...new Set(operands.flatMap((operand) => operand.variable ?? []))];
  const coefficients = left && known.length <= 1 ? combine(left.coefficients, right?.coefficients ?? [power]) : null;
  if (!coefficients || coefficients.length > MAX_DEGREE + 1) return null;
  return { variable: known[0] ?? null, coefficients, nodes: [...operands.flatMap((operand) => operand.nodes), maker] };
}

function plus(left: Polynomial, right: Polynomial): Polynomial {
  const length = Math.max(left.length, right.length);
  return Array.from({ length }, (_, degree) => (left[degree] ?? 0) + (right[degree] ?? 0));
}

function times(left: Polynomial, right: Polynomial): Polynomial {
  const product = new Array<number>(left.length + right.length - 1).fill(0);
  for (const [i, a] of left.entries())
    for (const [j, b] of right.entries()) product[i + j] = (product[i + j] ?? 0) + a * b;
  return product;
}

function scaled(polynomial: Polynomial, factor: number): Polynomial {
  return polynomial.map((coefficient) => coefficient * factor);
}

/** Whether two polynomials are equal up to what rounding their constants to `dtype` changes. */
export function near(actual: Polynomial, expected: Polynomial, dtype: DType): boolean {
  const relative = ROUNDING[dtype] ?? 5e-4;
  const length = Math.max(actual.length, expected.length);
  return Array.from({ length }, (_, degree) => degree).every((degree) => {
    const wanted = expected[degree] ?? 0;
    return Math.abs((actual[degree] ?? 0) - wanted) <= relative * (Math.abs(wanted) || 1e-3);
  });
}

/** Constants are the product of up to two rounded ones; in single precision, people write three or four digits. */
const ROUNDING: Readonly<Partial<Record<DType, number>>> = { bfloat16: 2 ** -7, float16: 2 ** -9 };

type PolynomialCombination = (left: Polynomial, right: Polynomial) => Polynomial | null;

const COMBINATIONS: Readonly<Record<string, PolynomialCombination>> = {
  Add: plus,
  Sub: (left, right) => plus(left, scaled(right, -1)),
  Mul: times,
  Div: (left, right) => (right.length === 1 && right[0] ? scaled(left, 1 / right[0]) : null),
  Neg: (left) => scaled(left, -1),
  Pow: (left, [power = 0]) => {
    if (!Number.isInteger(power) || power < 1 || power > MAX_DEGREE) return null;
    return Array.from({ length: power - 1 }).reduce<Polynomial>((product) => times(product, left), left);
  },
};

/** A tensor as slope·f + offset, with the nodes that compute it from f. */
export interface Affine {
  readonly slope: Polynomial;
  readonly offset: Polynomial;
  readonly nodes: readonly Node[];
}

/** `node` applied to t = slope·f + offset, where its other operand is a polynomial of `variable`; null where it is not. */
export function applied(
  index: GraphIndex,
  node: Node,
  tensor: string,
  affine: Affine,
  variable: string,
): Affine | null {
  if (!isOp(node, 'Add', 'Sub', 'Mul', 'Div') || node.inputs.length !== 2) return null;
  const first = operandOf(node) === tensor;
  if (first && operandOf(node, 1) === tensor) return null;
  const other = polynomialOf(index, operandOf(node, first ? 1 : 0), variable);
  const { slope, offset } = affine;
  const next = other && APPLICATIONS[node.op]?.(slope, offset, other.coefficients, first);
  return next && other ? { ...next, nodes: [...affine.nodes, ...other.nodes, node] } : null;
}

type PolynomialOperator = (
  slope: Polynomial,
  offset: Polynomial,
  other: Polynomial,
  first: boolean,
) => { readonly slope: Polynomial; readonly offset: Polynomial } | null;

const APPLICATIONS: Readonly<Record<string, PolynomialOperator>> = {
  Add: (slope, offset, other) => ({ slope, offset: plus(offset, other) }),
  Sub: (slope, offset, other, first) =>
    first
      ? { slope, offset: plus(offset, scaled(other, -1)) }
      : { slope: scaled(slope, -1), offset: plus(other, scaled(offset, -1)) },
  Mul: (slope, offset, other) => ({ slope: times(slope, other), offset: times(offset, other) }),
  Div: (slope, offset, other, first) => {
    const [divisor] = other;
    if (!first || other.length !== 1 || !divisor) return null;
    return { slope: scaled(slope, 1 / divisor), offset: scaled(offset, 1 / divisor) };
  },
};
