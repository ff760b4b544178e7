/**
 * @file ONNX Runtime's fused elementwise operators (domain com.microsoft): an activation, with the bias before it.
 */
import type { OperatorEntry } from '../operator.js';
import { biasGelu, erfGeluDerivative, quickGelu, tanhGeluDerivative } from './activation-gradient.js';
import { gatedAdd } from './elementwise-gradient.js';
import { entry, linearIn, perElement } from './entry.js';
import { broadcast, mismatch, numberOf, ofRank, operand } from './operands.js';
import { INTEGER_RESULT, withGradients } from './operator-gradient.js';

const DOMAIN = 'com.microsoft';

const ENTRIES: readonly OperatorEntry[] = [
  ...['BiasGelu', 'FastGelu'].map((op) =>
    entry({
      op,
      domain: DOMAIN,
      family: 'elementwise',
      region: 'Gelu',
      infer: (operator) => {
        const type = operand(operator, 0);
        if (operator.inputs[1] && ofRank(operator, 1, 1).shape[0] !== type.shape.at(-1))
          throw mismatch(operator, 'its bias does not fit the last dimension');
        return [type];
      },
      rule: '*a d, d -> *a d',
      work: perElement(13),
      parameterInputs: [1],
    }),
  ),
  entry({
    op: 'Gelu',
    domain: DOMAIN,
    family: 'elementwise',
    region: 'Gelu',
    infer: (operator) => [operand(operator, 0)],
    rule: '*a -> *a',
    work: perElement(12),
  }),
  entry({
    op: 'QuickGelu',
    domain: DOMAIN,
    family: 'elementwise',
    infer: (operator) => [operand(operator, 0)],
    rule: '*a -> *a',
    work: perElement(10),
  }),
  entry({
    op: 'GatedAdd',
    domain: DOMAIN,
    family: 'elementwise',
    infer: (operator) => {
      const type = operand(operator, 0);
      if (
        broadcast(
          operator,
          operator.inputs.map((item) => item?.shape ?? []),
        ).join() !== type.shape.join()
      )
        throw mismatch(operator, 'its operands must have the shape of the first');
      return [type];
    },
    rule: '*a d, *a d, *a 1 -> *a d',
    linear: linearIn([0, 1]),
    work: perElement(2),
  }),
  entry({
    op: 'MurmurHash3',
    domain: DOMAIN,
    family: 'elementwise',
    attributes: { seed: 'int' },
    infer: (operator) => {
      const isPositive = numberOf(operator, 'positive', 1) !== 0;
      return [{ ...operand(operator, 0), dtype: isPositive ? 'uint32' : 'int32' }];
    },
    rule: '*a -> *a',
    work: perElement(20),
  }),
];

export const fusedElementwiseEntries: readonly OperatorEntry[] = withGradients(ENTRIES, {
  BiasGelu: biasGelu(erfGeluDerivative),
  FastGelu: biasGelu(tanhGeluDerivative),
  Gelu: biasGelu(erfGeluDerivative),
  QuickGelu: quickGelu(1.702),
  GatedAdd: gatedAdd,
  MurmurHash3: INTEGER_RESULT,
});
