/**
 * @file Shared parts of the expansions of normalisations: the operand in the type that sums are formed in, means, deviations.
 */

import { type DType, dtypeOfOnnx } from '../dtype.js';
import type { TensorFactors } from '../factor-rule.js';
import { elementCount } from '../graph.js';
import type { Operator } from '../operator.js';
import { ExpansionWriter, reducedDimensions, summationType } from './expansion.js';
import { numberOf, operand } from './operands.js';

/** The shared start of these expansions. */
export interface ExpansionStart {
  readonly write: ExpansionWriter;
  readonly type: DType;
  readonly whole: TensorFactors;
  readonly reduced: TensorFactors;
  readonly axes: readonly number[];
  readonly input: string;
}

/**
 * An expansion over dimensions of these names that takes means over `axes`. `sumIn`: the type of sums, where it is not the
 * usual one. `viewed` makes another form of the operand first.
 */
export function start(
  operator: Operator,
  names: readonly string[],
  axes: readonly number[],
  sumIn?: DType,
  viewed: (write: ExpansionWriter) => string = () => 'in0',
): ExpansionStart {
  const write = new ExpansionWriter();
  const { dtype } = operand(operator, 0);
  const type = sumIn ?? summationType(dtype);
  const whole = names.map((name) => [name]);
  const first = viewed(write);
  const input = type === dtype ? first : write.cast(first, whole, type);
  return { write, type, whole, reduced: reducedDimensions(whole, axes), axes, input };
}

/** Mean over the axes: the sum, then a scale by the whole count. */
export function meanOf(operator: Operator, at: ExpansionStart, input: string, output?: string): string {
  const { shape } = operand(operator, 0);
  const count = elementCount(at.axes.map((axis) => shape[axis] ?? 1));
  const sum = at.write.add('ReduceSum', [input], at.reduced, { axes: at.axes, keepdims: 1 });
  return at.write.add('Mul', [sum, at.write.scalar(at.type, 1 / count)], at.reduced, {}, output);
}

/** sqrt(mean(x²) + epsilon). */
export function spread(operator: Operator, at: ExpansionStart, centred: string): string {
  const variance = meanOf(operator, at, at.write.add('Mul', [centred, centred], at.whole));
  const epsilon = at.write.scalar(at.type, numberOf(operator, 'epsilon', 1e-5));
  return at.write.add('Sqrt', [at.write.add('Add', [variance, epsilon], at.reduced)], at.reduced);
}

/** Whether a result is used; all count as used while types are not known yet. */
export function isResultUsed(operator: Operator, index: number): boolean {
  return index < operator.outputCount && (operator.outputs.length === 0 || operator.outputs[index] !== null);
}

/** The type of a normalisation's statistics: `stash_type`, but never coarser than the operand. */
export function stashType(operator: Operator): DType {
  const stash = dtypeOfOnnx(numberOf(operator, 'stash_type', 1)) ?? 'float32';
  return operand(operator, 0).dtype === 'float64' ? 'float64' : stash;
}
