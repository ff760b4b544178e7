/**
 * @file Operators whose results depend on the order along one axis. That axis stays whole, all others pass; only the
 * place of the largest value is found by reductions.
 */

import { isFloating } from '../dtype.js';
import { type Attributes, elementCount, type TensorType } from '../graph.js';
import type { Expansion, Operator, OperatorEntry } from '../operator.js';
import { constant } from './constants.js';
import { axisFromFront, entry, perInputElement } from './entry.js';
import { ExpansionWriter, positionsAlong, reducedDimensions } from './expansion.js';
import { axisOf, dimensionNames, integers, mismatch, numberOf, operand } from './operands.js';
import { INTEGER_RESULT, type OperatorGradient, withGradients } from './operator-gradient.js';

const entries: readonly OperatorEntry[] = [
  entry({
    op: 'TopK',
    family: 'sort',
    constantInputs: [{ index: 1, attribute: 'k', form: 'ints' }],
    complete: axisFromFront(-1),
    infer: (operator) => {
      const { dtype, shape } = operand(operator, 0);
      const axis = axisOf(operator, 'axis', shape.length, -1);
      const k = integers(operator, 'k')?.[0];
      if (k === undefined) throw mismatch(operator, 'k must be a constant');
      if (k > (shape[axis] ?? 1)) throw mismatch(operator, `k = ${k} of ${shape[axis]} elements`);
      const sizes = shape.map((size, index) => (index === axis ? k : size));
      return [
        { dtype, shape: sizes },
        { dtype: 'int64' as const, shape: sizes },
      ].slice(0, operator.outputCount);
    },
    rule: (operator) => {
      const side = (own: string) => alongAxis(operator, -1, own).join(' ');
      return `${side('v!')} -> ${side('k!')}, ${side('k!')}`;
    },
    work: (operator) => {
      const { shape } = operand(operator, 0);
      const length = shape[axisOf(operator, 'axis', shape.length, -1)] ?? 1;
      return { flops: elementCount(shape) * Math.ceil(Math.log2(length + 1)) };
    },
    note: 'The axis is not sharded: its largest values may be anywhere.',
  }),
  ...['ArgMax', 'ArgMin'].map((op) =>
    entry({
      op,
      family: 'reduction',
      precision: 'follow',
      complete: axisFromFront(0),
      infer: (operator) => {
        const { shape } = operand(operator, 0);
        const axis = axisOf(operator, 'axis', shape.length, 0);
        const keep = numberOf(operator, 'keepdims', 1) !== 0;
        const type: TensorType = {
          dtype: 'int64',
          shape: keep
            ? shape.map((size, index) => (index === axis ? 1 : size))
            : shape.filter((_, index) => index !== axis),
        };
        return [type];
      },
      rule: (operator) => {
        const axis = axisOf(operator, 'axis', operand(operator, 0).shape.length, 0);
        const names = alongAxis(operator, 0, '1');
        const kept = numberOf(operator, 'keepdims', 1) ? names : names.filter((_, index) => index !== axis);
        return `${alongAxis(operator, 0, 'v%').join(' ')} -> ${kept.join(' ')}`;
      },
      expansion: (operator) => placeExpansion(operator, op === 'ArgMax' ? 'ReduceMax' : 'ReduceMin'),
      work: perInputElement(1),
    }),
  ),
  ...(
    [
      // State-space layers written out sum the logarithms of decays over positions, for each head.
      { op: 'CumSum', linear: [[0]], carriesState: isDecay },
      { op: 'CumProd', linear: [], since: 26 },
    ] as const
  ).map(({ op, linear, ...more }) =>
    entry({
      op,
      family: 'sort',
      precision: 'full',
      constantInputs: [{ index: 1, attribute: 'axis', form: 'int' }],
      complete: axisFromFront(0),
      infer: (operator) => [operand(operator, 0)],
      rule: (operator) => {
        const side = alongAxis(operator, 0, 'v!').join(' ');
        return `${side} -> ${side}`;
      },
      linear: () => linear,
      work: perInputElement(1),
      note: 'The axis is not sharded: each value needs all previous ones.',
      ...more,
    }),
  ),
];

/** Numbers that add up from position to position, for each head. */
function isDecay(operator: Operator): boolean {
  const { dtype, shape } = operand(operator, 0);
  return isFloating(dtype) && shape.length > 2;
}

export const sortingEntries = withGradients(entries, {
  TopK: (write) => largestGradient(write),
  ArgMax: INTEGER_RESULT,
  ArgMin: INTEGER_RESULT,
  // An element is in all sums after it: those are summed from the other end.
  CumSum: (write) => {
    write.add('CumSum', ['grad0'], backwards(write), 'd0');
  },
  CumProd: (write) => productsGradient(write),
});

/** Dimension names with `own` in the axis's place. */
function alongAxis(operator: Operator, otherwise: number, own: string): readonly string[] {
  const rank = operand(operator, 0).shape.length;
  const axis = axisOf(operator, 'axis', rank, otherwise);
  return dimensionNames(rank).map((name, index) => (index === axis ? own : name));
}

/** The extreme value of all shards, then the first (or last) place that holds it: both are plain reductions. */
function placeExpansion(operator: Operator, extreme: 'ReduceMax' | 'ReduceMin'): Expansion {
  const write = new ExpansionWriter();
  const { shape } = operand(operator, 0);
  const axis = axisOf(operator, 'axis', shape.length, 0);
  const whole = alongAxis(operator, 0, 'v').map((name) => [name]);
  const wide = reducedDimensions(whole, [axis]);
  const keep = numberOf(operator, 'keepdims', 1) !== 0;
  const last = numberOf(operator, 'select_last_index', 0) !== 0;
  const best = write.add(extreme, ['in0'], wide, { axes: [axis], keepdims: 1 });
  const here = write.add('Equal', ['in0', best], whole);
  const elsewhere = write.scalar('int64', last ? 0 : Math.max(0, (shape[axis] ?? 1) - 1));
  const places = write.add('Where', [here, positionsAlong(write, shape, axis, ['v']), elsewhere], whole);
  const result = keep ? wide : wide.filter((_, index) => index !== axis);
  const attributes = { axes: [axis], keepdims: keep ? 1 : 0 };
  write.add(last ? 'ReduceMax' : 'ReduceMin', [places], result, attributes, 'out0');
  return write.finish();
}

/** The attributes of a cumulative operator that runs from the other end. */
function backwards({ operator }: OperatorGradient): Attributes {
  return { ...operator.attributes, reverse: 1 - numberOf(operator, 'reverse', 0) };
}

/** The values' gradients at the places they were taken from. */
function largestGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  let places = 'out1';
  if (!operator.outputs[1]) {
    write.addAll('TopK', ['in0'], ['values', 'places'], operator.attributes);
    places = 'places';
  }
  const zeros = write.add('ConstantOfShape', [], { shape, value: constant(dtype, [0], [1]) });
  const axis = axisOf(operator, 'axis', shape.length, -1);
  write.add('ScatterElements', [zeros, places, 'grad0'], { axis }, 'd0');
}

/**
 * Σ grad · out over the products that an element is in, divided by the element. Products from the first zero on are zero; that
 * one's gradient comes from the products with it left out, and that of all elements after it is zero.
 */
function productsGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype } = operand(operator, 0);
  const on = write.on(dtype);
  const sums = (name: string) => write.add('CumSum', [name], backwards(write));
  const isZero = on.of('Equal', 'in0', 0);
  const along = { ...operator.attributes, exclusive: 0 };
  const zeros = write.add('CumSum', [on.count(isZero)], along);
  const isFirst = on.of('And', isZero, on.of('Equal', zeros, 1));
  const without = write.add('CumProd', [on.where(isFirst, 1, 'in0')], operator.attributes);
  const before = on.div(sums(on.mul('grad0', 'out0')), on.where(isZero, 1, 'in0'));
  const first = on.where(isFirst, sums(on.mul('grad0', without)), 0);
  write.become(0, on.where(on.of('Equal', zeros, 0), before, first), dtype);
}
