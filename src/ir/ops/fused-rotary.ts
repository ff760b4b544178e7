/**
 * @file ONNX Runtime's own rotary embeddings (domain com.microsoft): heads and samples pass; the table of angles stays
 * whole, since a position may use any row.
 */
import type { FactorRule } from '../factor-rule.js';
import type { Operator, OperatorEntry } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { entry, perElement } from './entry.js';
import { mismatch, numberOf, ofRank, operand } from './operands.js';
import { differentiable } from './operator-gradient.js';
import { rotaryGradient } from './rotary-gradient.js';

export const fusedRotaryEntries: readonly OperatorEntry[] = (['RotaryEmbedding', 'MRotaryEmbedding'] as const).map(
  (op) =>
    differentiable(
      entry({
        op,
        domain: 'com.microsoft',
        family: 'attention',
        precision: 'follow',
        ...(op === 'RotaryEmbedding' ? { region: op } : {}),
        infer: (operator) => {
          const type = ofRank(operator, 0, 3, true);
          if (!Number.isInteger(headsOf(operator)))
            throw mismatch(operator, `its features do not make ${numberOf(operator, 'num_heads', 0)} heads`);
          ofRank(operator, 2, 2);
          return [type];
        },
        rule: rotaryRule,
        resize: (operator, rule, size) =>
          numberOf(operator, 'num_heads', 0) > 0 && rule.factors.has('h')
            ? { ...operator.attributes, num_heads: size('h') }
            : operator.attributes,
        work: perElement(3),
        note: 'Features of a head and the table of angles are not sharded; with one offset for all samples nor are positions.',
      }),
      (write) => rotaryGradient(write, { cosine: 2, sine: 3, positions: 1, heads: headsOf(write.operator) }),
    ),
);

/** Heads, also where the operator does not name them: a head is as wide as two rows of the table. */
function headsOf(operator: Operator): number {
  const { shape } = operand(operator, 0);
  if (shape.length === 4) return shape[1] ?? 1;
  const named = numberOf(operator, 'num_heads', 0);
  return named > 0 ? named : (shape[2] ?? 1) / (2 * (operand(operator, 2).shape[1] ?? 1));
}

function rotaryRule(operator: Operator): FactorRule {
  const flat = operand(operator, 0).shape.length === 3;
  const positions = operand(operator, 1).shape;
  // A packed batch holds samples of unequal length one after another.
  const ragged = numberOf(operator, 'is_packed_batching', 0) !== 0;
  const [b, s] = [ragged ? 'b!' : 'b', ragged || positions.length < 2 ? 's!' : 's'];
  const data = flat ? `${b} ${s} (h e!)` : `${b} h ${s} e!`;
  const places = positions.length === 3 ? `z! ${b} ${s}` : positions.length === 2 ? `${b} ${s}` : '1';
  return bindRule(`${data}, ${places}, p! f!, p! f! -> ${data}`, operator, flat ? { h: headsOf(operator) } : {});
}
