/**
 * @file Attributes written out in full, so that rules and `resize` see one form: axes counted from the front, reshape
 * targets without -1 and 0, slices with all of starts, ends, axes and steps inside the dimension.
 */
import { AutoparError } from '../error.js';
import { type Attributes, type AttributeValue, elementCount } from '../graph.js';
import type { OperatorView } from '../operator.js';

type AttributeCompletion = (view: OperatorView, shape: readonly number[]) => Attributes;

/** The operator's attributes in full; types of its operands must be in `view`. */
export function completeAttributes(view: OperatorView): Attributes {
  const completion = view.domain === '' && Object.hasOwn(COMPLETIONS, view.op) ? COMPLETIONS[view.op] : undefined;
  const first = view.inputs[0];
  return completion && first ? completion(view, first.shape) : view.attributes;
}

const positiveAxis =
  (otherwise?: number): AttributeCompletion =>
  (view, shape) => {
    const axis = view.attributes['axis'] ?? otherwise;
    return typeof axis === 'number' ? { ...view.attributes, axis: fromFront(axis, shape.length) } : view.attributes;
  };

const reduction: AttributeCompletion = (view, shape) => {
  const { noop_with_empty_axes: noop, axes, ...rest } = view.attributes;
  const given = numbers(axes);
  if (given.length === 0 && noop === 1) return view.attributes;
  const all =
    given.length === 0
      ? shape.map((_, axis) => axis)
      : given.map((axis) => fromFront(axis, shape.length)).sort((a, b) => a - b);
  return { keepdims: 1, ...rest, axes: all };
};

const COMPLETIONS: Readonly<Record<string, AttributeCompletion>> = {
  Reshape: (view, shape) => {
    const { allowzero, ...rest } = view.attributes;
    const target = numbers(view.attributes['shape']).map((size, axis) =>
      size === 0 && allowzero !== 1 ? (shape[axis] ?? 0) : size,
    );
    const rest1 = elementCount(target.filter((size) => size !== -1));
    const total = elementCount(shape);
    const open = target.filter((size) => size === -1).length;
    const filled = target.map((size) => (size === -1 && rest1 > 0 ? total / rest1 : size));
    if (open > 1 || elementCount(filled) !== total || filled.some((size) => !Number.isInteger(size) || size < 0)) {
      throw new AutoparError(
        'shape-mismatch',
        'input',
        `Reshape ${view.name}: [${shape.join(', ')}] does not reshape to [${numbers(view.attributes['shape']).join(', ')}]`,
        { node: view.name },
        'The model is inconsistent there, or --dim binds sizes that do not match.',
      );
    }
    return filled.includes(0) ? { ...rest, allowzero: 1, shape: filled } : { ...rest, shape: filled };
  },
  Expand: (view, shape) => {
    const given = numbers(view.attributes['shape']);
    const rank = Math.max(given.length, shape.length);
    const sizes = Array.from({ length: rank }, (_, axis) => {
      const own = shape[axis - rank + shape.length] ?? 1;
      const wanted = given[axis - rank + given.length] ?? 1;
      return wanted === 1 ? own : wanted;
    });
    return { ...view.attributes, shape: sizes };
  },
  Slice: (view, shape) => {
    const starts = numbers(view.attributes['starts']);
    const ends = numbers(view.attributes['ends']);
    const axes = list(
      view.attributes['axes'],
      starts.map((_, index) => index),
    ).map((axis) => fromFront(axis, shape.length));
    const steps = list(
      view.attributes['steps'],
      starts.map(() => 1),
    );
    const place = (value: number, axis: number, index: number, end: boolean): number => {
      const size = shape[axis] ?? 1;
      const forward = (steps[index] ?? 1) > 0;
      const placed = Math.min(Math.max(value < 0 ? value + size : value, forward ? 0 : -1), forward ? size : size - 1);
      // Counting down, an end before the first element can only be written from the back.
      return end && placed === -1 ? -size - 1 : Math.max(placed, end ? placed : 0);
    };
    return {
      ...view.attributes,
      starts: axes.map((axis, index) => place(starts[index] ?? 0, axis, index, false)),
      ends: axes.map((axis, index) => place(ends[index] ?? 0, axis, index, true)),
      axes,
      steps,
    };
  },
  Squeeze: (view, shape) => {
    const ones = shape.flatMap((size, axis) => (size === 1 ? [axis] : []));
    const given = view.attributes['axes'] === undefined ? ones : numbers(view.attributes['axes']);
    return { ...view.attributes, axes: given.map((axis) => fromFront(axis, shape.length)).sort((a, b) => a - b) };
  },
  Unsqueeze: (view, shape) => {
    const axes = numbers(view.attributes['axes']);
    return {
      ...view.attributes,
      axes: axes.map((axis) => fromFront(axis, shape.length + axes.length)).sort((a, b) => a - b),
    };
  },
  Split: (view, shape) => {
    const { num_outputs: _, ...rest } = view.attributes;
    const axis = fromFront(typeof rest['axis'] === 'number' ? rest['axis'] : 0, shape.length);
    const total = shape[axis] ?? 1;
    const part = Math.ceil(total / view.outputCount);
    const equal = Array.from({ length: view.outputCount }, (_unused, index) =>
      Math.max(0, Math.min(part, total - index * part)),
    );
    return { ...rest, axis, split: list(rest['split'], equal) };
  },
  Pad: (view, shape) => {
    const { axes, ...rest } = view.attributes;
    const pads = numbers(view.attributes['pads']);
    if (axes === undefined) return view.attributes;
    const places = numbers(axes).map((axis) => fromFront(axis, shape.length));
    const side = (offset: number): readonly number[] =>
      shape.map((_, axis) => (places.includes(axis) ? (pads[places.indexOf(axis) + offset] ?? 0) : 0));
    return { ...rest, pads: [...side(0), ...side(places.length)] };
  },
  Transpose: (view, shape) => ({ perm: shape.map((_, axis) => shape.length - 1 - axis), ...view.attributes }),
  Concat: positiveAxis(),
  Gather: positiveAxis(0),
  GatherElements: positiveAxis(0),
  ScatterElements: positiveAxis(0),
  Softmax: positiveAxis(-1),
  LogSoftmax: positiveAxis(-1),
  Hardmax: positiveAxis(-1),
  ArgMax: positiveAxis(0),
  ArgMin: positiveAxis(0),
  TopK: positiveAxis(-1),
  LayerNormalization: positiveAxis(-1),
  RMSNormalization: positiveAxis(-1),
  CumSum: positiveAxis(),
  ReduceSum: reduction,
  ReduceMean: reduction,
  ReduceMax: reduction,
  ReduceMin: reduction,
  ReduceProd: reduction,
  ReduceL1: reduction,
  ReduceL2: reduction,
  ReduceLogSum: reduction,
  ReduceLogSumExp: reduction,
  ReduceSumSquare: reduction,
};

function fromFront(axis: number, rank: number): number {
  return axis < 0 ? axis + rank : axis;
}

function numbers(value: AttributeValue | undefined): readonly number[] {
  if (typeof value === 'number') return [value];
  return Array.isArray(value) && value.every((item) => typeof item === 'number') ? value : [];
}

function list(value: AttributeValue | undefined, otherwise: readonly number[]): readonly number[] {
  return value === undefined ? otherwise : numbers(value);
}
