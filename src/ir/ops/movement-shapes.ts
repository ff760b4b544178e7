/**
 * @file The attributes of operators that move elements, resolved for their shapes: the order of a Transpose, the ranges of a
 * Slice, the parts of a Split, the borders of a Pad. Rules and gradients both use them.
 */
import type { OperatorView } from '../operator.js';
import { axisOf, checkedAxis, integers, mismatch, neededIntegers, numberOf, operand } from './operands.js';

/** Transpose's order: dimension i of the result is dimension `order[i]` of the operand. */
export function permutation(view: OperatorView): readonly number[] {
  const rank = operand(view, 0).shape.length;
  const order = integers(view, 'perm') ?? Array.from({ length: rank }, (_, index) => rank - 1 - index);
  const complete =
    order.length === rank && Array.from({ length: rank }, (_, axis) => axis).every((axis) => order.includes(axis));
  if (!complete) throw mismatch(view, `perm [${order.join(', ')}] is not an order of ${rank} axes`);
  return order;
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
export function cuts(view: OperatorView): readonly SlicedAxis[] {
  const { shape } = operand(view, 0);
  const starts = neededIntegers(view, 'starts');
  const ends = neededIntegers(view, 'ends');
  const axes = integers(view, 'axes') ?? starts.map((_, index) => index);
  const steps = integers(view, 'steps') ?? starts.map(() => 1);
  return axes.map((given, index) => {
    const axis = checkedAxis(view, given, shape.length);
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
export function splitSizes(view: OperatorView): readonly number[] {
  const given = integers(view, 'split');
  if (given) return given;
  const { shape } = operand(view, 0);
  const total = shape[axisOf(view, 'axis', shape.length, 0)] ?? 1;
  const count = numberOf(view, 'num_outputs', view.outputCount);
  if (count !== view.outputCount) throw mismatch(view, `it has ${view.outputCount} results, not ${count}`);
  const part = Math.ceil(total / count);
  return Array.from({ length: count }, (_, index) => Math.max(0, Math.min(part, total - index * part)));
}

/** Elements that a Pad adds before and after, per dimension; a negative number crops. */
export function padding(view: OperatorView): readonly (readonly [number, number])[] {
  const { shape } = operand(view, 0);
  const pads = neededIntegers(view, 'pads');
  const axes =
    integers(view, 'axes')?.map((axis) => checkedAxis(view, axis, shape.length)) ?? shape.map((_, axis) => axis);
  if (pads.length !== 2 * axes.length) throw mismatch(view, `pads has ${pads.length} values`);
  return shape.map((_, axis) => {
    const index = axes.indexOf(axis);
    return index < 0 ? [0, 0] : [pads[index] ?? 0, pads[index + axes.length] ?? 0];
  });
}
