/**
 * @file Activations that fused operators name in an attribute, as operators of their own: for expansions.
 */
import type { DimensionFactors } from '../factor-rule.js';
import type { OperatorView } from '../operator.js';
import type { ExpansionWriter } from './expansion.js';
import { mismatch, operand, text } from './operands.js';

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

/** Throws where the activation that the operator names is none of those known; an empty name is none at all. */
export function checkActivation(view: OperatorView): void {
  const name = text(view, 'activation', '');
  if (name !== '' && !Object.hasOwn(PARAMETERS, name)) throw mismatch(view, `its activation '${name}' is not known`);
}

/** Writes the activation of `input` as the expansion's first result. */
export function addActivation(
  write: ExpansionWriter,
  view: OperatorView,
  input: string,
  dims: readonly DimensionFactors[],
  values: readonly (number | undefined)[],
): void {
  const name = text(view, 'activation', '') || 'Identity';
  const given = (PARAMETERS[name] ?? []).flatMap((parameter, index) => {
    const value = values[index];
    return value === undefined ? [] : [[parameter, value] as const];
  });
  const { dtype } = operand(view, 0);
  // Clip's bounds are operands.
  if (name === 'Clip')
    write.add(name, [input, ...given.map(([, value]) => write.scalar(dtype, value))], dims, {}, 'out0');
  else write.add(name, [input], dims, Object.fromEntries(given), 'out0');
}
