/**
 * @file The attributes of operators that move elements, resolved for their shapes: the order of a Transpose, the ranges of a
 * Slice, the parts of a Split, the borders of a Pad. Rules and gradients both use them.
 */
import type { Operator } from '../operator.js';
import { axisOf, checkedAxis, integers, mismatch, neededIntegers, numberOf, operand } from './operands.js';

/** Transpose's order: dimension i of the result is dimension `order[i]` of the operand. */
export function permutation(operator: Operator): readonly number[] {
  const rank = operand(operator, 0).shape.length;
  const order = integers(operator, 'perm') ?? Array.from({ length: rank }, (_, index) => rank - 1 - index);
  const complete =
    order.length === rank && Array.from({ length: rank }, (_, axis) => axis).every((axis) => order.includes(axis));
  if (!complete) throw mismatch(operator, `perm [${order.join(', ')}] is not an order of ${rank} axes`);
  return order;
}

/**
 * The pads of all dimensions where one has borders. Pads of named axes are not written: ONNX Runtime's transpose optimizer reads
 * them as those of all dimensions.
 */
export function padsOn(rank: number, axis: number, before: number, after: number): readonly number[] {
  return Array.from({ length: 2 * rank }, (_, at) => (at === axis ? before : at === rank + axis ? after : 0));
}

/** The range that Slice takes of one of its axes. */
export interface SlicedAxis {
  readonly axis: number;
  /** First position taken, the bound of the last, the distance to the next (negative: backwards), and how many are taken. */
  readonly start: number;
  readonly end: number;
  readonly step: number;
  readonly size: number;
  /** Whether it leaves the dimension unchanged. */
  readonly whole: boolean;
  /** The number of the part taken, if the dimension consists of equal parts (fused q, k, v) and it takes one; else null. */
  readonly part: number | null;
}

/** A Slice's ranges, one per axis that it names. */
export function cuts(operator: Operator): readonly SlicedAxis[] {
  const { shape } = operand(operator, 0);
  const starts = neededIntegers(operator, 'starts');
  const ends = neededIntegers(operator, 'ends');
  const axes = integers(operator, 'axes') ?? starts.map((_, index) => index);
  const steps = integers(operator, 'steps') ?? starts.map(() => 1);
  return axes.map((given, index) => {
    const axis = checkedAxis(operator, given, shape.length);
    const dimension = shape[axis] ?? 1;
    const step = steps[index] ?? 1;
    const place = (value: number, low: number, high: number) =>
      Math.min(Math.max(value < 0 ? value + dimension : value, low), high);
    const start = step > 0 ? place(starts[index] ?? 0, 0, dimension) : place(starts[index] ?? 0, 0, dimension - 1);
    const end = step > 0 ? place(ends[index] ?? 0, 0, dimension) : place(ends[index] ?? 0, -1, dimension - 1);
    const size = Math.max(0, Math.ceil((end - start) / step));
    const isPart = step === 1 && size > 1 && size < dimension && dimension % size === 0 && start % size === 0;
    const whole = step === 1 && size === dimension;
    return { axis, start, end, step, size, whole, part: isPart ? start / size : null };
  });
}

/** Sizes of a Split's parts. */
export function splitSizes(operator: Operator): readonly number[] {
  const given = integers(operator, 'split');
  if (given) return given;
  const { shape } = operand(operator, 0);
  const total = shape[axisOf(operator, 'axis', shape.length, 0)] ?? 1;
  const count = numberOf(operator, 'num_outputs', operator.outputCount);
  if (count !== operator.outputCount) throw mismatch(operator, `it has ${operator.outputCount} results, not ${count}`);
  const part = Math.ceil(total / count);
  return Array.from({ length: count }, (_, index) => Math.max(0, Math.min(part, total - index * part)));
}

/** Elements that a Pad adds before and after, per dimension; a negative number crops. */
export function padding(operator: Operator): readonly (readonly [number, number])[] {
  const { shape } = operand(operator, 0);
  const pads = neededIntegers(operator, 'pads');
  const axes =
    integers(operator, 'axes')?.map((axis) => checkedAxis(operator, axis, shape.length)) ??
    shape.map((_, axis) => axis);
  if (pads.length !== 2 * axes.length) throw mismatch(operator, `pads has ${pads.length} values`);
  return shape.map((_, axis) => {
    const index = axes.indexOf(axis);
    return index < 0 ? [0, 0] : [pads[index] ?? 0, pads[index + axes.length] ?? 0];
  });
}
