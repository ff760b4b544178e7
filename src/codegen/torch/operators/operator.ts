/**
 * @file The data that an operator's entry in the table of torch functions reads, and the Python texts that entries are made of.
 */
import type { DType } from '../../../ir/dtype.js';
import { type Attributes, type ConstantTensor, elementCount, type TensorType } from '../../../ir/graph.js';
import { numbersOf } from '../../../ir/ops/constants.js';

/** An operator on local shards, its operands being Python expressions. */
export interface TorchNode {
  readonly op: string;
  readonly attributes: Attributes;
  /** Python expressions: names, attributes of `self`, or numbers; null for an optional operand that is left out. */
  readonly operands: readonly (string | null)[];
  readonly inputs: readonly (TensorType | null)[];
  /** null for a result that is not used. */
  readonly outputs: readonly (TensorType | null)[];
}

/**
 * The Python expression of an operator's result, or of the tuple of its results up to the last that is used; null for a form of
 * the operator that it does not cover.
 */
export type TorchText = (node: TorchNode) => string | null;

export interface TorchOperator {
  readonly op: string;
  /** '' is ONNX's own. */
  readonly domain: string;
  readonly text: TorchText;
  /** Operands may be Python numbers. */
  readonly takesNumbers?: true;
}

export function torch(op: string, text: TorchText): TorchOperator {
  return { op, domain: '', text };
}

/** The same for an operator of ONNX Runtime's domain. */
export function microsoft(op: string, text: TorchText): TorchOperator {
  return { op, domain: 'com.microsoft', text };
}

/** The operand's expression. Throws (an internal error) for one that is left out. */
export function x({ op, operands }: TorchNode, index = 0): string {
  const text = operands[index];
  if (text === null || text === undefined) throw new Error(`${op} has no operand ${index}`);
  return text;
}

export function has({ operands }: TorchNode, index: number): boolean {
  return operands[index] !== null && operands[index] !== undefined;
}

export function typeOf({ op, inputs }: TorchNode, index = 0): TensorType {
  const type = inputs[index];
  if (!type) throw new Error(`${op} has no operand ${index}`);
  return type;
}

export function resultOf({ op, outputs }: TorchNode, index = 0): TensorType {
  const type = outputs[index];
  if (!type) throw new Error(`${op} has no result ${index}`);
  return type;
}

export function shapeOf(node: TorchNode, index = 0): readonly number[] {
  return typeOf(node, index).shape;
}

export function rankOf(node: TorchNode, index = 0): number {
  return shapeOf(node, index).length;
}

export function numberIn({ attributes }: TorchNode, name: string, otherwise: number): number {
  const value = attributes[name];
  return typeof value === 'number' || typeof value === 'bigint' ? Number(value) : otherwise;
}

export function textIn({ attributes }: TorchNode, name: string, otherwise: string): string {
  const value = attributes[name];
  return typeof value === 'string' ? value : otherwise;
}

export function integersIn({ attributes }: TorchNode, name: string): readonly number[] | undefined {
  const value = attributes[name];
  return Array.isArray(value) ? value.map(Number) : undefined;
}

export function numbersIn({ attributes }: TorchNode, name: string): readonly number[] {
  const value = attributes[name];
  return Array.isArray(value) ? value.map(Number) : [];
}

export function textsIn({ attributes }: TorchNode, name: string): readonly string[] {
  const value = attributes[name];
  return Array.isArray(value) ? value.map(String) : [];
}

/** The numbers of an attribute that is a tensor. */
export function constantIn({ attributes }: TorchNode, name: string): readonly number[] | undefined {
  const value = attributes[name];
  const isTensor = typeof value === 'object' && !Array.isArray(value) && 'data' in value;
  return isTensor ? numbersOf(value as ConstantTensor) : undefined;
}

/** An axis counted from the front. */
export function fromFront(axis: number, rank: number): number {
  return axis < 0 ? axis + rank : axis;
}

export function axisIn(node: TorchNode, otherwise: number, rank = rankOf(node)): number {
  return fromFront(numberIn(node, 'axis', otherwise), rank);
}

/** A Python tuple of numbers. */
export function tuple(values: readonly number[]): string {
  return values.length === 1 ? `(${values[0]},)` : `(${values.join(', ')})`;
}

/** A number as Python writes it; float32 values in the fewest digits that give them back. */
export function number(value: number, dtype: DType = 'float64'): string {
  if (dtype === 'bool') return value === 0 ? 'False' : 'True';
  if (Number.isNaN(value)) return 'float("nan")';
  if (!Number.isFinite(value)) return value > 0 ? 'float("inf")' : 'float("-inf")';
  const short = dtype === 'float32' ? shortFloat(value) : String(value);
  const isWhole = /^-?\d+$/.test(short);
  return isWhole && dtype.includes('float') ? `${Object.is(value, -0) ? '-0' : short}.0` : exponent(short);
}

/** A constant's values as Python writes them, those of 64 bits to the last digit. */
export function numbersText(value: ConstantTensor): readonly string[] {
  const { dtype, shape, data } = value;
  if (dtype !== 'int64' && dtype !== 'uint64') return numbersOf(value).map((one) => number(one, dtype));
  const bytes = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const at = (index: number) =>
    dtype === 'int64' ? bytes.getBigInt64(8 * index, true) : bytes.getBigUint64(8 * index, true);
  return Array.from({ length: elementCount(shape) }, (_, index) => String(at(index)));
}

/** Python's formatter writes `1e-05` as it is, and no plus sign. */
function exponent(text: string): string {
  return text.replace('e+', 'e');
}

const FLOAT32_DIGITS = 9;

function shortFloat(value: number): string {
  for (let digits = 1; digits < FLOAT32_DIGITS; digits++) {
    const text = String(Number(value.toPrecision(digits)));
    if (Math.fround(Number(text)) === value) return text;
  }
  return String(value);
}

/** `torch.float32` of a dtype. */
export function dtypeText(dtype: DType): string {
  return `torch.${DTYPE_NAMES[dtype] ?? dtype}`;
}

const DTYPE_NAMES: Readonly<Partial<Record<DType, string>>> = {
  float8e4m3fn: 'float8_e4m3fn',
  float8e4m3fnuz: 'float8_e4m3fnuz',
  float8e5m2: 'float8_e5m2',
  float8e5m2fnuz: 'float8_e5m2fnuz',
};

export function isFloat(type: TensorType): boolean {
  return type.dtype.includes('float');
}

/**
 * Unsigned numbers that torch has little arithmetic for. Those of up to 32 bits have room in int64; those of 64 have the
 * same bits.
 */
export const WIDE: ReadonlySet<DType> = new Set(['uint16', 'uint32', 'uint64']);

/**
 * An operator whose unsigned operands are computed with as int64. The bits of its result are right for 64 bits too, unless it
 * looks at the order of numbers or at their size: null for that.
 */
export function wide(text: TorchText, isOrdered = false): TorchText {
  return (node) => {
    const { dtype } = typeOf(node);
    if (!WIDE.has(dtype)) return text(node);
    if (isOrdered && dtype === 'uint64') return null;
    const isWide = (index: number) => WIDE.has(node.inputs[index]?.dtype ?? dtype);
    const operands = node.operands.map((own, index) => (own !== null && isWide(index) ? `${atom(own)}.long()` : own));
    const inputs = node.inputs.map((type, index) =>
      type && isWide(index) ? { ...type, dtype: 'int64' as const } : type,
    );
    const value = text({ ...node, operands, inputs });
    return value === null ? null : `${atom(value)}.to(${dtypeText(dtype)})`;
  };
}

/** An operand of a method call or an arithmetic expression: any text but a name stands in parentheses. */
export function atom(text: string): string {
  return /^[\w.[\]"()]+$/.test(text) && !text.startsWith('-') ? text : `(${text})`;
}
