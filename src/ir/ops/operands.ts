/**
 * @file Reading an operator's attributes and operands, with the errors for a malformed model.
 */
import { type DType, dtypeOfOnnx } from '../dtype.js';
import { AutoparError } from '../error.js';
import type { ConstantTensor, TensorType } from '../graph.js';
import type { Operator } from '../operator.js';

/** The error for operands that do not fit each other: names the operator and its shapes. */
export function mismatch(operator: Operator, message: string): AutoparError {
  const shapes = operator.inputs.map((type) => (type ? `${type.dtype}[${type.shape.join(', ')}]` : '–')).join(', ');
  return new AutoparError(
    'shape-mismatch',
    'input',
    `${operator.op} ${operator.name}: ${message}; its operands are ${shapes}`,
    { node: operator.name },
    'The model is inconsistent there, or --dim binds sizes that do not match.',
  );
}

/** Type of an operand that must be there. */
export function operand(operator: Operator, index: number): TensorType {
  const type = operator.inputs[index];
  if (!type) throw mismatch(operator, `operand ${index} is missing`);
  return type;
}

/** Type of a result; only where the operator's types are all known. */
export function result(operator: Operator, index: number): TensorType {
  const type = operator.outputs[index];
  if (!type) throw new Error(`${operator.name}: result ${index} has no type`);
  return type;
}

/** An operand of the rank given. */
export function ofRank(operator: Operator, index: number, rank: number, orMore = false): TensorType {
  const type = operand(operator, index);
  if (type.shape.length !== rank && !(orMore && type.shape.length > rank))
    throw mismatch(operator, `operand ${index} must have ${rank}${orMore ? ' or more' : ''} dimensions`);
  return type;
}

/** A number attribute, integral or not. */
export function numberOf(operator: Operator, name: string, otherwise: number): number {
  const value = operator.attributes[name];
  return typeof value === 'number' ? value : typeof value === 'bigint' ? Number(value) : otherwise;
}

export function text(operator: Operator, name: string, otherwise: string): string {
  const value = operator.attributes[name];
  return typeof value === 'string' ? value : otherwise;
}

/** A list of numbers; undefined where the attribute is left out. A single number is a list of one. */
export function integers(operator: Operator, name: string): readonly number[] | undefined {
  const value = operator.attributes[name];
  if (typeof value === 'number') return [value];
  return Array.isArray(value) && value.every((item) => typeof item === 'number') ? value : undefined;
}

/** A list of numbers that the operator requires. */
export function neededIntegers(operator: Operator, name: string): readonly number[] {
  const value = integers(operator, name);
  if (!value) throw mismatch(operator, `its ${name} must be a constant`);
  return value;
}

export function tensor(operator: Operator, name: string): ConstantTensor | undefined {
  const value = operator.attributes[name];
  return typeof value === 'object' && 'data' in value ? value : undefined;
}

/** The dtype that an attribute names by ONNX's number. */
export function dtypeAttribute(operator: Operator, name: string, otherwise: DType): DType {
  const number = numberOf(operator, name, 0);
  if (number === 0) return otherwise;
  const dtype = dtypeOfOnnx(number);
  if (!dtype || dtype === 'string') throw mismatch(operator, `element type ${dtype ?? number} is not handled`);
  return dtype;
}

/** An axis attribute, counted from the front. */
export function axisOf(operator: Operator, name: string, rank: number, otherwise: number): number {
  return checkedAxis(operator, numberOf(operator, name, otherwise), rank);
}

/** A list of axes counted from the front, ascending. */
export function axesFromFront(operator: Operator, axes: readonly number[], rank: number): readonly number[] {
  return axes.map((axis) => checkedAxis(operator, axis, rank)).sort((a, b) => a - b);
}

export function checkedAxis(operator: Operator, axis: number, rank: number): number {
  const result = axis < 0 ? axis + rank : axis;
  if (result < 0 || result >= Math.max(rank, 1)) throw mismatch(operator, `axis ${axis} is outside rank ${rank}`);
  return result;
}

/** The shape that operands broadcast to, by NumPy's rule. */
export function broadcast(operator: Operator, shapes: readonly (readonly number[])[]): readonly number[] {
  const rank = Math.max(0, ...shapes.map((shape) => shape.length));
  return Array.from({ length: rank }, (_, index) => {
    const sizes = shapes.map((shape) => shape[index - rank + shape.length] ?? 1);
    const size = sizes.find((other) => other !== 1) ?? 1;
    if (sizes.some((other) => other !== 1 && other !== size))
      throw mismatch(operator, `sizes ${[...new Set(sizes)].join(' and ')} do not broadcast`);
    return size;
  });
}

/** All results of one type. */
export function repeated(operator: Operator, type: TensorType): readonly TensorType[] {
  return Array.from({ length: operator.outputCount }, () => type);
}

/** Dimension names a0, a1, … of a tensor that an axis-wise rule is written over. */
export function dimensionNames(rank: number, prefix = 'a'): string[] {
  return Array.from({ length: rank }, (_, index) => `${prefix}${index}`);
}
