/**
 * @file Softmax, LogSoftmax, Hardmax. They are expanded if their axis is sharded: ranks then reduce only the largest value and
 * the sum of the exponentials.
 */
import type { Expansion, Operator, OperatorEntry } from '../operator.js';
import { axisFromFront, entry, perElement } from './entry.js';
import { ExpansionWriter, positionsAlong, reducedDimensions, summationType } from './expansion.js';
import { axisOf, dimensionNames, operand } from './operands.js';
import { differentiable, type OperatorGradient, STEPS } from './operator-gradient.js';

/** Writes the result from x − max, its exponentials and their sum. */
type SoftmaxEnd = (
  write: ExpansionWriter,
  shifted: string,
  powers: string,
  sum: string,
  dims: SoftmaxFactors,
) => string;
interface SoftmaxFactors {
  readonly whole: readonly (readonly string[])[];
  readonly reduced: readonly (readonly string[])[];
}

export const softmaxEntries: readonly OperatorEntry[] = [
  differentiable(
    {
      ...softmaxEntry('Softmax', (write, _, powers, sum, { whole }) => write.add('Div', [powers, sum], whole)),
      role: 'softmax',
    },
    softmaxGradient,
  ),
  differentiable(
    softmaxEntry('LogSoftmax', (write, shifted, _, sum, { whole, reduced }) =>
      write.add('Sub', [shifted, write.add('Log', [sum], reduced)], whole),
    ),
    logSoftmaxGradient,
  ),
  differentiable(
    entry({
      op: 'Hardmax',
      family: 'normalisation',
      complete: axisFromFront(-1),
      infer: (operator) => [operand(operator, 0)],
      rule: (operator) => alongAxis(operator, '%'),
      expansion: hardmaxExpansion,
      work: perElement(2),
    }),
    STEPS,
  ),
];

function softmaxEntry(op: string, last: SoftmaxEnd): OperatorEntry {
  return entry({
    op,
    family: 'normalisation',
    complete: axisFromFront(-1),
    infer: (operator) => [operand(operator, 0)],
    rule: (operator) => alongAxis(operator, '%'),
    expansion: (operator) => softmaxExpansion(operator, last),
    work: perElement(12),
  });
}

function alongAxis(operator: Operator, mark: string): string {
  const { shape } = operand(operator, 0);
  const axis = axisOf(operator, 'axis', shape.length, -1);
  const side = dimensionNames(shape.length).map((name, index) => (index === axis ? `${name}${mark}` : name));
  return `${side.join(' ')} -> ${side.join(' ')}`;
}

function softmaxExpansion(operator: Operator, last: SoftmaxEnd): Expansion {
  const write = new ExpansionWriter();
  const { dtype, shape } = operand(operator, 0);
  const axis = axisOf(operator, 'axis', shape.length, -1);
  const whole = dimensionNames(shape.length).map((name) => [name]);
  const reduced = reducedDimensions(whole, [axis]);
  const attributes = { axes: [axis], keepdims: 1 };
  const type = summationType(dtype);
  const input = type === dtype ? 'in0' : write.cast('in0', whole, type);
  const peak = write.add('ReduceMax', [input], reduced, attributes);
  const shifted = write.add('Sub', [input, peak], whole);
  const powers = write.add('Exp', [shifted], whole);
  const sum = write.add('ReduceSum', [powers], reduced, attributes);
  write.cast(last(write, shifted, powers, sum, { whole, reduced }), whole, dtype, 'out0');
  return write.finish();
}

/** One at the first of the largest values, zero elsewhere. */
function hardmaxExpansion(operator: Operator): Expansion {
  const write = new ExpansionWriter();
  const { dtype, shape } = operand(operator, 0);
  const axis = axisOf(operator, 'axis', shape.length, -1);
  const whole = dimensionNames(shape.length).map((name) => [name]);
  const first = write.add('ArgMax', ['in0'], reducedDimensions(whole, [axis]), { axis, keepdims: 1 });
  const chosen = write.add('Equal', [positionsAlong(write, shape, axis, whole[axis] ?? []), first], whole);
  write.cast(chosen, whole, dtype, 'out0');
  return write.finish();
}

/** y (g − Σ g y). */
function softmaxGradient(write: OperatorGradient): void {
  const { at, axis, y, g } = softmaxOperands(write);
  write.become(0, at.mul(y, at.sub(g, at.sum(at.mul(g, y), [axis]))), at.type);
}

/** g − e^y Σ g. */
function logSoftmaxGradient(write: OperatorGradient): void {
  const { at, axis, y, g } = softmaxOperands(write);
  write.become(0, at.sub(g, at.mul(at.of('Exp', y), at.sum(g, [axis]))), at.type);
}

function softmaxOperands(write: OperatorGradient) {
  const { dtype, shape } = operand(write.operator, 0);
  const type = write.sumType;
  return {
    at: write.on(type),
    axis: axisOf(write.operator, 'axis', shape.length, -1),
    y: write.inType('out0', dtype, type),
    g: write.inType('grad0', dtype, type),
  };
}
