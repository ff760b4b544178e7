/**
 * @file ONNX Runtime's own rotary embeddings (domain com.microsoft): heads and samples pass; the table of angles stays
 * whole, since a position may use any row.
 */
import type { FactorRule } from '../factor-rule.js';
import type { OperatorEntry, OperatorView } from '../operator.js';
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
        ...(op === 'RotaryEmbedding' ? { block: op } : {}),
        infer: (view) => {
          const type = ofRank(view, 0, 3, true);
          if (!Number.isInteger(headsOf(view)))
            throw mismatch(view, `its features do not make ${numberOf(view, 'num_heads', 0)} heads`);
          ofRank(view, 2, 2);
          return [type];
        },
        rule: rotaryRule,
        resize: (view, rule, size) =>
          numberOf(view, 'num_heads', 0) > 0 && rule.factors.has('h')
            ? { ...view.attributes, num_heads: size('h') }
            : view.attributes,
        work: perElement(3),
        note: 'Features of a head and the table of angles are not sharded; with one offset for all samples nor are positions.',
      }),
      (write) => rotaryGradient(write, { cosine: 2, sine: 3, positions: 1, heads: headsOf(write.view) }),
    ),
);

/** Heads, also where the operator does not name them: a head is as wide as two rows of the table. */
function headsOf(view: OperatorView): number {
  const { shape } = operand(view, 0);
  if (shape.length === 4) return shape[1] ?? 1;
  const named = numberOf(view, 'num_heads', 0);
  return named > 0 ? named : (shape[2] ?? 1) / (2 * (operand(view, 2).shape[1] ?? 1));
}

function rotaryRule(view: OperatorView): FactorRule {
  const flat = operand(view, 0).shape.length === 3;
  const positions = operand(view, 1).shape;
  // A packed batch holds samples of unequal length one after another.
  const ragged = numberOf(view, 'is_packed_batching', 0) !== 0;
  const [b, s] = [ragged ? 'b!' : 'b', ragged || positions.length < 2 ? 's!' : 's'];
  const data = flat ? `${b} ${s} (h e!)` : `${b} h ${s} e!`;
  const places = positions.length === 3 ? `z! ${b} ${s}` : positions.length === 2 ? `${b} ${s}` : '1';
  return bindRule(`${data}, ${places}, p! f!, p! f! -> ${data}`, view, flat ? { h: headsOf(view) } : {});
}
