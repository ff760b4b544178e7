/**
 * @file Reductions. A sum, a largest or a smallest value over a sharded dimension is a partial result. Means, norms and
 * logarithms of sums are expanded into such a reduction and the operators after it.
 */
import { isFloating } from '../dtype.js';
import { elementCount } from '../graph.js';
import type { Expansion, Operator, OperatorEntry } from '../operator.js';
import { entry, perInputElement } from './entry.js';
import { ExpansionWriter, reducedDimensions, summationType } from './expansion.js';
import { axesFromFront, dimensionNames, integers, numberOf, operand } from './operands.js';
import { withGradients } from './operator-gradient.js';
import { reductionGradients } from './reduction-gradient.js';

/** Writes the expansion's middle: from the operand (in its summation type) to the result before the last cast. */
type ReductionBody = (write: ExpansionWriter, input: string, reduction: ReductionShape) => string;

interface ReductionRow {
  readonly op: string;
  /** Mark of the reduced factors. */
  readonly mark: string;
  readonly linear?: boolean;
  readonly flops: number;
  readonly body?: ReductionBody;
  readonly note?: string;
}

const ROWS: readonly ReductionRow[] = [
  { op: 'ReduceSum', mark: '+', linear: true, flops: 1 },
  { op: 'ReduceL1', mark: '+', flops: 2 },
  { op: 'ReduceSumSquare', mark: '+', flops: 2 },
  { op: 'ReduceMax', mark: '+max', flops: 1 },
  { op: 'ReduceMin', mark: '+min', flops: 1 },
  { op: 'ReduceMean', mark: '%', linear: true, flops: 1, body: mean },
  { op: 'ReduceL2', mark: '%', flops: 2, body: root },
  { op: 'ReduceLogSum', mark: '%', flops: 1, body: logarithm },
  { op: 'ReduceLogSumExp', mark: '%', flops: 10, body: logSumExp },
  {
    op: 'ReduceProd',
    mark: '!',
    flops: 1,
    note: 'Reduced dimensions are not sharded: there is no collective product.',
  },
];

const ENTRIES: readonly OperatorEntry[] = ROWS.map(({ op, mark, linear, flops, body, note }) =>
  entry({
    op,
    family: 'reduction',
    // A maximum or minimum needs no more precision than its operand.
    ...(mark === '+max' || mark === '+min' ? { precision: 'follow' as const } : {}),
    constantInputs: [{ index: 1, attribute: 'axes', form: 'ints' }],
    complete: (operator) => {
      const { noop_with_empty_axes: noop, ...rest } = operator.attributes;
      const { axes } = reductionOf(operator);
      return noop === 1 && axes.length === 0 ? operator.attributes : { keepdims: 1, ...rest, axes };
    },
    infer: (operator) => {
      const { dtype, shape } = operand(operator, 0);
      const { axes, keep } = reductionOf(operator);
      const sizes = shape.map((size, axis) => (axes.includes(axis) ? 1 : size));
      return [{ dtype, shape: keep ? sizes : sizes.filter((_, axis) => !axes.includes(axis)) }];
    },
    rule: (operator) => {
      const { axes, keep, names } = reductionOf(operator);
      // Integer means, norms and logarithms round in ways of their own: only floating-point ones are expanded.
      const own = mark === '%' && !isFloating(operand(operator, 0).dtype) ? '!' : mark;
      const left = names.map((name, axis) => (axes.includes(axis) ? `${name}${own}` : name));
      const right = names.map((name, axis) => (axes.includes(axis) ? '1' : name));
      const kept = keep ? right : right.filter((_, axis) => !axes.includes(axis));
      return `${left.join(' ')} -> ${kept.join(' ')}`;
    },
    linear: (operator) => (linear && (mark === '+' || isFloating(operand(operator, 0).dtype)) ? [[0]] : []),
    work: perInputElement(flops),
    ...(body === mean ? { ratio: meanRatio } : {}),
    ...(body ? { expansion: (operator: Operator) => expansionOf(operator, body) } : {}),
    ...(mark === '%' ? { note: 'Reduced dimensions of integers are not sharded: they round.' } : {}),
    ...(note ? { note } : {}),
  }),
);

export const reductionEntries: readonly OperatorEntry[] = withGradients(ENTRIES, reductionGradients(reductionOf));

/** A reduction's axes, counted from the front, and the names of its operand's and result's dimensions. */
export interface ReductionShape {
  readonly operator: Operator;
  readonly axes: readonly number[];
  readonly keep: boolean;
  readonly names: readonly string[];
  readonly whole: readonly (readonly string[])[];
  readonly reduced: readonly (readonly string[])[];
  readonly attributes: { readonly axes: readonly number[]; readonly keepdims: number };
}

function reductionOf(operator: Operator): ReductionShape {
  const { shape } = operand(operator, 0);
  const given = integers(operator, 'axes');
  const none = !given || given.length === 0;
  const all = none && numberOf(operator, 'noop_with_empty_axes', 0) === 0;
  const axes = all ? shape.map((_, axis) => axis) : axesFromFront(operator, given ?? [], shape.length);
  const keep = numberOf(operator, 'keepdims', 1) !== 0;
  const names = dimensionNames(shape.length);
  const whole = names.map((name) => [name]);
  const kept = reducedDimensions(whole, axes);
  return {
    operator,
    axes,
    keep,
    names,
    whole,
    reduced: keep ? kept : kept.filter((_, axis) => !axes.includes(axis)),
    attributes: { axes, keepdims: keep ? 1 : 0 },
  };
}

function expansionOf(operator: Operator, body: ReductionBody): Expansion {
  const write = new ExpansionWriter();
  const reduction = reductionOf(operator);
  const { dtype } = operand(operator, 0);
  const sum = summationType(dtype);
  const input = sum === dtype ? 'in0' : write.cast('in0', reduction.whole, sum);
  write.cast(body(write, input, reduction), reduction.reduced, dtype, 'out0');
  return write.finish();
}

function mean(write: ExpansionWriter, input: string, { operator, axes, reduced, attributes }: ReductionShape): string {
  const { dtype, shape } = operand(operator, 0);
  const count = elementCount(axes.map((axis) => shape[axis] ?? 1));
  const sum = write.add('ReduceSum', [input], reduced, attributes);
  return write.add('Mul', [sum, write.scalar(summationType(dtype), 1 / count)], reduced);
}

/** The mean of everything: its sum over its count. */
function meanRatio(operator: Operator): Expansion | null {
  const { axes, reduced, attributes, whole } = reductionOf(operator);
  const { dtype, shape } = operand(operator, 0);
  if (axes.length !== shape.length || !isFloating(dtype)) return null;
  const write = new ExpansionWriter();
  const sum = summationType(dtype);
  const input = sum === dtype ? 'in0' : write.cast('in0', whole, sum);
  write.add('ReduceSum', [input], reduced, attributes, 'numerator');
  write.add('Identity', [write.scalar(sum, elementCount(shape))], [], {}, 'denominator');
  return write.finish();
}

function root(write: ExpansionWriter, input: string, { reduced, attributes }: ReductionShape): string {
  return write.add('Sqrt', [write.add('ReduceSumSquare', [input], reduced, attributes)], reduced);
}

function logarithm(write: ExpansionWriter, input: string, { reduced, attributes }: ReductionShape): string {
  return write.add('Log', [write.add('ReduceSum', [input], reduced, attributes)], reduced);
}

/** max + log(sum(exp(x − max))): no exponential overflows. */
function logSumExp(write: ExpansionWriter, input: string, reduction: ReductionShape): string {
  const { whole, reduced, axes, keep, attributes } = reduction;
  const wide = reducedDimensions(whole, axes);
  const peak = write.add('ReduceMax', [input], wide, { axes, keepdims: 1 });
  const powers = write.add('Exp', [write.add('Sub', [input, peak], whole)], whole);
  const log = write.add('Log', [write.add('ReduceSum', [powers], reduced, attributes)], reduced);
  const offset = keep ? peak : write.add('Squeeze', [peak], reduced, { axes });
  return write.add('Add', [log, offset], reduced);
}
