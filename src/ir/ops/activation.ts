/**
 * @file Activations that fused operators name in an attribute, as operators of their own: for expansions.
 */
import type { DimensionFactors } from '../factor-rule.js';
import type { Operator } from '../operator.js';
import type { ExpansionWriter } from './expansion.js';
import { mismatch, operand, text } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import type { Arithmetic } from './operator-writer.js';

/** Attributes that each activation's parameters are, in the order in which fused operators list them. */
const PARAMETERS: Readonly<Record<string, readonly string[]>> = {
  Relu: [],
  Sigmoid: [],
  Tanh: [],
  Softplus: [],
  Softsign: [],
  LeakyRelu: ['alpha'],
  ThresholdedRelu: ['alpha'],
  Elu: ['alpha'],
  HardSigmoid: ['alpha', 'beta'],
  Clip: ['min', 'max'],
};

/** Throws if the operator names an unknown activation; an empty name means that there is no activation. */
export function checkActivation(operator: Operator): void {
  const name = text(operator, 'activation', '');
  if (name !== '' && !Object.hasOwn(PARAMETERS, name))
    throw mismatch(operator, `its activation '${name}' is not known`);
}

/** Writes the activation of `input` as the expansion's first result. */
export function addActivation(
  write: ExpansionWriter,
  operator: Operator,
  input: string,
  dims: readonly DimensionFactors[],
  values: readonly (number | undefined)[],
): void {
  const name = text(operator, 'activation', '') || 'Identity';
  const given = (PARAMETERS[name] ?? []).flatMap((parameter, index) => {
    const value = values[index];
    return value === undefined ? [] : [[parameter, value] as const];
  });
  const { dtype } = operand(operator, 0);
  // Clip's bounds are operands.
  if (name === 'Clip')
    write.add(name, [input, ...given.map(([, value]) => write.scalar(dtype, value))], dims, {}, 'out0');
  else write.add(name, [input], dims, Object.fromEntries(given), 'out0');
}

/**
 * Writes the gradient of the activation's operand from the result and its gradient: the result is enough for all of these
 * activations. At kinks it is zero, as in PyTorch's Relu.
 */
export function activationGradient(write: OperatorGradient, values: readonly (number | undefined)[]): string {
  const name = text(write.operator, 'activation', '');
  if (name === '') return 'grad0';
  const at = write.on(operand(write.operator, 0).dtype);
  const make = GRADIENTS[name];
  if (!make) throw mismatch(write.operator, `its activation '${name}' is not known`);
  return make(at, values);
}

type ResultGradient = (at: Arithmetic, values: readonly (number | undefined)[]) => string;

const above = (at: Arithmetic, limit: number) => at.of('Greater', 'out0', limit);

const GRADIENTS: Readonly<Record<string, ResultGradient>> = {
  Relu: (at) => at.where(above(at, 0), 'grad0', 0),
  ThresholdedRelu: (at) => at.where(at.of('Equal', 'out0', 0), 0, 'grad0'),
  LeakyRelu: (at, [alpha = 0.01]) => at.where(above(at, 0), 'grad0', at.mul('grad0', alpha)),
  Elu: (at, [alpha = 1]) => at.where(above(at, 0), 'grad0', at.mul('grad0', at.add('out0', alpha))),
  Sigmoid: (at) => at.mul('grad0', at.mul('out0', at.sub(1, 'out0'))),
  Tanh: (at) => at.mul('grad0', at.sub(1, at.square('out0'))),
  Softplus: (at) => at.mul('grad0', at.sub(1, at.of('Exp', at.of('Neg', 'out0')))),
  Softsign: (at) => at.mul('grad0', at.square(at.sub(1, at.of('Abs', 'out0')))),
  HardSigmoid: (at, [alpha = 0.2]) => at.where(between(at, 0, 1), at.mul('grad0', alpha), 0),
  Clip: (at, [low = Number.NEGATIVE_INFINITY, high = Number.POSITIVE_INFINITY]) =>
    at.where(between(at, low, high), 'grad0', 0),
};

function between(at: Arithmetic, low: number, high: number): string {
  return at.of('And', above(at, low), at.of('Less', 'out0', high));
}
