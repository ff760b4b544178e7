/**
 * @file Reading an operator's attributes and operands, with the errors for a malformed model.
 */
import { type DType, dtypeOfOnnx } from '../dtype.js';
import { AutoparError } from '../error.js';
import type { ConstantTensor, TensorType } from '../graph.js';
import type { OperatorView } from '../operator.js';

/** The error for operands that do not fit each other: names the operator and its shapes. */
export function mismatch(view: OperatorView, message: string): AutoparError {
  const shapes = view.inputs.map((type) => (type ? `${type.dtype}[${type.shape.join(', ')}]` : '–')).join(', ');
  return new AutoparError(
    'shape-mismatch',
    'input',
    `${view.op} ${view.name}: ${message}; its operands are ${shapes}`,
    { node: view.name },
    'The model is inconsistent there, or --dim binds sizes that do not match.',
  );
}

/** Type of an operand that must be there. */
export function operand(view: OperatorView, index: number): TensorType {
  const type = view.inputs[index];
  if (!type) throw mismatch(view, `operand ${index} is missing`);
  return type;
}

/** Type of a result; only where the operator's types are all known. */
export function result(view: OperatorView, index: number): TensorType {
  const type = view.outputs[index];
  if (!type) throw new Error(`${view.name}: result ${index} has no type`);
  return type;
}

/** An operand of the rank given. */
export function ofRank(view: OperatorView, index: number, rank: number, orMore = false): TensorType {
  const type = operand(view, index);
  if (type.shape.length !== rank && !(orMore && type.shape.length > rank))
    throw mismatch(view, `operand ${index} must have ${rank}${orMore ? ' or more' : ''} dimensions`);
  return type;
}

/** A number attribute, integral or not. */
export function numberOf(view: OperatorView, name: string, otherwise: number): number {
  const value = view.attributes[name];
  return typeof value === 'number' ? value : typeof value === 'bigint' ? Number(value) : otherwise;
}

export function text(view: OperatorView, name: string, otherwise: string): string {
  const value = view.attributes[name];
  return typeof value === 'string' ? value : otherwise;
}

/** A list of numbers; undefined where the attribute is left out. A single number is a list of one. */
export function integers(view: OperatorView, name: string): readonly number[] | undefined {
  const value = view.attributes[name];
  if (typeof value === 'number') return [value];
  return Array.isArray(value) && value.every((item) => typeof item === 'number') ? value : undefined;
}

/** A list of numbers that the operator requires. */
export function neededIntegers(view: OperatorView, name: string): readonly number[] {
  const value = integers(view, name);
  if (!value) throw mismatch(view, `its ${name} must be a constant`);
  return value;
}

export function tensor(view: OperatorView, name: string): ConstantTensor | undefined {
  const value = view.attributes[name];
  return typeof value === 'object' && 'data' in value ? value : undefined;
}

/** The dtype that an attribute names by ONNX's number. */
export function dtypeAttribute(view: OperatorView, name: string, otherwise: DType): DType {
  const number = numberOf(view, name, 0);
  if (number === 0) return otherwise;
  const dtype = dtypeOfOnnx(number);
  if (!dtype || dtype === 'string') throw mismatch(view, `element type ${dtype ?? number} is not handled`);
  return dtype;
}

/** An axis attribute, counted from the front. */
export function axisOf(view: OperatorView, name: string, rank: number, otherwise: number): number {
  return checkedAxis(view, numberOf(view, name, otherwise), rank);
}

/** A list of axes counted from the front, ascending. */
export function axesFromFront(view: OperatorView, axes: readonly number[], rank: number): readonly number[] {
  return axes.map((axis) => checkedAxis(view, axis, rank)).sort((a, b) => a - b);
}

export function checkedAxis(view: OperatorView, axis: number, rank: number): number {
  const result = axis < 0 ? axis + rank : axis;
  if (result < 0 || result >= Math.max(rank, 1)) throw mismatch(view, `axis ${axis} is outside rank ${rank}`);
  return result;
}

/** The shape that operands broadcast to, by NumPy's rule. */
export function broadcast(view: OperatorView, shapes: readonly (readonly number[])[]): readonly number[] {
  const rank = Math.max(0, ...shapes.map((shape) => shape.length));
  return Array.from({ length: rank }, (_, index) => {
    const sizes = shapes.map((shape) => shape[index - rank + shape.length] ?? 1);
    const size = sizes.find((other) => other !== 1) ?? 1;
    if (sizes.some((other) => other !== 1 && other !== size))
      throw mismatch(view, `sizes ${[...new Set(sizes)].join(' and ')} do not broadcast`);
    return size;
  });
}

/** All results of one type. */
export function repeated(view: OperatorView, type: TensorType): readonly TensorType[] {
  return Array.from({ length: view.outputCount }, () => type);
}

/** Dimension names a0, a1, … of a tensor that an axis-wise rule is written over. */
export function dimensionNames(rank: number, prefix = 'a'): string[] {
  return Array.from({ length: rank }, (_, index) => `${prefix}${index}`);
}
