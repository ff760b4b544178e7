/**
 * @file Gradients of lookups and scatters: each is the other's. A row that is looked up twice gets the sum of both gradients, so
 * the gradient of a lookup is a scatter that adds, in float32 for half precision, as in PyTorch's embedding.
 */
import type { DType } from '../dtype.js';
import { elementCount } from '../graph.js';
import { constant } from './constants.js';
import { axisOf, numberOf, operand, result, text } from './operands.js';
import type { GradientBody, OperatorGradient } from './operator-gradient.js';
import type { Arithmetic } from './operator-writer.js';

export const INDEXING_GRADIENTS: Readonly<Record<string, GradientBody>> = {
  Gather: (write) => gatherGradient(write),
  GatherElements: (write) => {
    const { shape } = operand(write.operator, 0);
    const axis = axisOf(write.operator, 'axis', shape.length, 0);
    const { sumType } = write;
    const zeros = zerosOf(write, shape, sumType);
    const rows = write.inType('grad0', operand(write.operator, 0).dtype, sumType);
    const attributes = { axis, reduction: 'add' };
    const sum = write.add('ScatterElements', [zeros, 'in1', rows], attributes);
    write.become(0, sum, sumType);
  },
  GatherND: (write) => (numberOf(write.operator, 'batch_dims', 0) === 0 ? tuplesGradient(write) : batchGradient(write)),
  // Reversing twice is leaving as it is.
  ReverseSequence: (write) => {
    write.add('ReverseSequence', ['grad0', 'in1'], write.operator.attributes, 'd0');
  },
  ScatterElements: (write) => {
    const axis = axisOf(write.operator, 'axis', operand(write.operator, 0).shape.length, 0);
    scatterGradient(write, {
      taken: (name) => write.add('GatherElements', [name, 'in1'], { axis }),
      placed: (data, name, reduction) => write.add('ScatterElements', [data, 'in1', name], { axis, reduction }),
    });
  },
  ScatterND: (write) => {
    const tuples = operand(write.operator, 1).shape;
    const last = tuples.length - 1;
    const single = tuples.at(-1) === 1;
    scatterGradient(write, {
      // A plain lookup may be sharded where the tuples address one dimension.
      taken: (name) =>
        single
          ? write.add('Gather', [name, write.add('Squeeze', ['in1'], { axes: [last] })])
          : write.add('GatherND', [name, 'in1']),
      placed: (data, name, reduction) => write.add('ScatterND', [data, 'in1', name], { reduction }),
    });
  },
};

function zerosOf(write: OperatorGradient, shape: readonly number[], dtype: DType): string {
  return write.add('ConstantOfShape', [], { shape, value: constant(dtype, [0], [1]) });
}

/** int64 indices: scatters take no others. */
function longIndices(write: OperatorGradient): string {
  return write.inType('in1', operand(write.operator, 1).dtype, 'int64');
}

/** The rows' gradients added up in a table of zeros, whose looked-up dimension is moved to the front meanwhile. */
function gatherGradient(write: OperatorGradient): void {
  const { operator, sumType } = write;
  const { dtype, shape } = operand(operator, 0);
  const axis = axisOf(operator, 'axis', shape.length, 0);
  const depth = operand(operator, 1).shape.length;
  const inFront = <T>(list: readonly T[], width: number): readonly T[] => [
    ...list.slice(axis, axis + width),
    ...list.slice(0, axis),
    ...list.slice(axis + width),
  ];
  const rows = write.inType('grad0', dtype, sumType);
  const front = inFront([...result(operator, 0).shape.keys()], depth);
  const updates = axis === 0 || depth === 0 ? rows : write.add('Transpose', [rows], { perm: front });
  const places = write.add('Unsqueeze', [longIndices(write)], { axes: [depth] });
  const zeros = zerosOf(write, inFront(shape, 1), sumType);
  const sum = write.add('ScatterND', [zeros, places, updates], { reduction: 'add' });
  const order = inFront([...shape.keys()], 1);
  const perm = order.map((_, index) => order.indexOf(index));
  write.become(0, axis === 0 ? sum : write.add('Transpose', [sum], { perm }), sumType);
}

function tuplesGradient(write: OperatorGradient): void {
  const { operator, sumType } = write;
  const { dtype, shape } = operand(operator, 0);
  const rows = write.inType('grad0', dtype, sumType);
  const zeros = zerosOf(write, shape, sumType);
  write.become(0, write.add('ScatterND', [zeros, 'in1', rows], { reduction: 'add' }), sumType);
}

/**
 * GatherND inside batches. No scatter has batches and tuples, so a tuple becomes one number, and its rows are added element by
 * element: [batch, rows, rest] ← [batch, places, rest].
 */
function batchGradient(write: OperatorGradient): void {
  const { operator, sumType } = write;
  const { dtype, shape } = operand(operator, 0);
  const tuples = operand(operator, 1).shape;
  const batch = numberOf(operator, 'batch_dims', 0);
  const end = batch + (tuples.at(-1) ?? 0);
  const sizes = { batch: shape.slice(0, batch), rows: elementCount(shape.slice(batch, end)) };
  const rest = elementCount(shape.slice(end));
  const places = elementCount(tuples.slice(batch, -1));
  const flat = flatTuples(write, shape.slice(batch, end));
  const numbers = write.add('Reshape', [flat], { shape: [...sizes.batch, places, 1] });
  const whole = [...sizes.batch, places, rest];
  const everywhere = rest === 1 ? numbers : write.add('Expand', [numbers], { shape: whole });
  const updates = write.add('Reshape', [write.inType('grad0', dtype, sumType)], { shape: whole });
  const zeros = zerosOf(write, [...sizes.batch, sizes.rows, rest], sumType);
  const sum = write.add('ScatterElements', [zeros, everywhere, updates], { axis: batch, reduction: 'add' });
  write.become(0, write.add('Reshape', [sum], { shape }), sumType);
}

/** The row that each tuple addresses, among those of the dimensions of these sizes. */
function flatTuples(write: OperatorGradient, sizes: readonly number[]): string {
  const last = operand(write.operator, 1).shape.length - 1;
  const on = write.on('int64');
  const index = longIndices(write);
  const along = (values: readonly number[]) => write.tensor(constant('int64', values, [values.length]));
  const counted = on.where(on.of('Less', index, 0), on.add(index, along(sizes)), index);
  const strides = sizes.map((_, axis) => elementCount(sizes.slice(axis + 1)));
  const scaled = on.mul(counted, along(strides));
  return write.add('ReduceSum', [scaled], { axes: [last], keepdims: 0 });
}

/** A scatter in both directions: `taken` reads the places of the updates, `placed` writes updates into data. */
interface ScatterWays {
  readonly taken: (name: string) => string;
  readonly placed: (data: string, updates: string, reduction: string) => string;
}

function scatterGradient(write: OperatorGradient, ways: ScatterWays): void {
  const { dtype } = operand(write.operator, 0);
  const reduction = text(write.operator, 'reduction', 'none');
  (REDUCTIONS[reduction] ?? replacing)(write, ways, write.on(dtype));
}

type ScatterReduction = (write: OperatorGradient, ways: ScatterWays, at: Arithmetic) => void;

/** Overwritten data has a zero gradient. If two updates write to one place, each gets its gradient, as in PyTorch. */
const replacing: ScatterReduction = (write, { taken, placed }, { type }) => {
  if (write.wants(2)) write.become(2, taken('grad0'), type);
  if (!write.wants(0)) return;
  const zeros = zerosOf(write, operand(write.operator, 2).shape, type);
  write.become(0, placed('grad0', zeros, 'none'), type);
};

const adding: ScatterReduction = (write, { taken }, { type }) => {
  if (write.wants(2)) write.become(2, taken('grad0'), type);
  if (write.wants(0)) write.become(0, 'grad0', type);
};

/** PyTorch's rule for scatter_reduce: all elements that equal the extreme share its gradient. */
const extreme: ScatterReduction = (write, { taken, placed }, at) => {
  const own = at.count(at.of('Equal', 'in0', 'out0'));
  const theirs = at.count(at.of('Equal', 'in2', taken('out0')));
  const share = at.div('grad0', placed(own, theirs, 'add'));
  if (write.wants(0)) write.become(0, at.mul(share, own), at.type);
  if (write.wants(2)) write.become(2, at.mul(taken(share), theirs), at.type);
};

/**
 * A factor's derivative is the product of the others: of all but the zeros in that place, where it is the only zero or there is
 * none, divided by itself where it is not zero.
 */
const multiplying: ScatterReduction = (write, { taken, placed }, at) => {
  const [ownZero, theirZero] = [at.of('Equal', 'in0', 0), at.of('Equal', 'in2', 0)];
  const zeros = placed(at.count(ownZero), at.count(theirZero), 'add');
  const [own, theirs] = [at.where(ownZero, 1, 'in0'), at.where(theirZero, 1, 'in2')];
  const product = at.mul('grad0', placed(own, theirs, 'mul'));
  const derivative = (seen: (name: string) => string, isZero: string, factor: string) => {
    const others = at.sub(seen(zeros), at.count(isZero));
    return at.where(at.of('Equal', others, 0), at.div(seen(product), factor), 0);
  };
  if (write.wants(0))
    write.become(
      0,
      derivative((name) => name, ownZero, own),
      at.type,
    );
  if (write.wants(2)) write.become(2, derivative(taken, theirZero, theirs), at.type);
};

const REDUCTIONS: Readonly<Record<string, ScatterReduction>> = {
  none: replacing,
  add: adding,
  max: extreme,
  min: extreme,
  mul: multiplying,
};
