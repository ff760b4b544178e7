/**
 * @file ONNX Runtime's mixture of experts in one operator (domain com.microsoft). Tokens pass. So do an expert's inner
 * features: every rank computes its shard of each expert, and the sum over them is partial, as in Megatron's MLP. Experts
 * stay whole: top-k routing reads all of their scores.
 */

import type { FactorRule } from '../factor-rule.js';
import { elementCount } from '../graph.js';
import type { OperatorEntry, OperatorView, Work, WrittenOperators } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { entry } from './entry.js';
import { type Experts, expertsForward, expertsGradient, isUnproven, refuseExperts } from './experts-gradient.js';
import { mismatch, numberOf, ofRank, operand, text } from './operands.js';
import { differentiable, OperatorGradient } from './operator-gradient.js';
import { quantisedExperts, quantisedExpertsGradient } from './quantised-experts-gradient.js';

const DOMAIN = 'com.microsoft';
const NOTE = 'Experts and features are not sharded; nor are inner features if a bias is added after their sum.';

export const expertEntries: readonly OperatorEntry[] = [
  differentiable(
    entry({
      op: 'MoE',
      domain: DOMAIN,
      family: 'contraction',
      attributes: { k: 'count', activation_alpha: 'float', activation_beta: 'float' },
      infer: (view) => {
        const type = checkRouter(view);
        const [experts, inner] = [operand(view, 2).shape[0], ofRank(view, 4, 3).shape];
        if (inner[0] !== experts || inner[1] !== type.shape.at(-1))
          throw mismatch(view, 'the weights of its experts do not fit its input');
        return [type];
      },
      rule: (view) => {
        const i = view.inputs[5] ? 'i!' : 'i+';
        const fused = gated(view, i);
        const parts = [`x! ${fused} d!`, `x! ${fused}`, `x! d! ${i}`, 'x! d!', `x! ${i} d!`, `x! ${i}`];
        return bound(view, parts);
      },
      work: (view) => expertWork(view, 4, 1),
      parameterInputs: [2, 3, 4, 5, 6, 7],
      note: NOTE,
    }),
    plainExpertsGradient,
  ),
  differentiable(
    entry({
      op: 'QMoE',
      domain: DOMAIN,
      family: 'contraction',
      precision: 'full',
      attributes: { k: 'count', activation_alpha: 'float', activation_beta: 'float', quant_type: 'string' },
      infer: (view) => [checkRouter(view)],
      rule: (view) => {
        // Only whole bytes can be sharded; scales per block, or packed zero points, would need more than that.
        const plain = numberOf(view, 'block_size', 0) === 0 && view.inputs.slice(11).every((type) => !type);
        const i = plain && !view.inputs[7] ? 'i+' : 'i!';
        const pack = 8 / numberOf(view, 'expert_weight_bits', 4);
        const [fused, inner] = [gated(view, `${i} w!`), `(${i} w!)`];
        if (!plain) return unshardedExperts(view);
        const parts = [
          `x! ${fused} e!`,
          `x! ${fused}`,
          `x! ${fused}`,
          `x! d! ${i}`,
          'x! d!',
          'x! d!',
          `x! ${inner} e!`,
          `x! ${inner}`,
          `x! ${inner}`,
        ];
        return bound(view, parts, { w: pack });
      },
      work: (view) => expertWork(view, 5, 8 / numberOf(view, 'expert_weight_bits', 4)),
      // Scales come from quantising the weights: they are not trained, whether or not the operator is written in plain ones.
      parameterInputs: [4, 7, 10],
      note: `${NOTE} Nor are they if scales are per block.`,
    }),
    quantisedExpertsGradient,
  ),
];

function plainExpertsGradient(write: OperatorGradient): void {
  refuseExperts(write, [6]);
  expertsGradient(write, plainExperts(write));
}

/** The operator as plainer ones, every token through every expert; null for a form that no test here checks. */
export function plainExpertsForm(view: OperatorView): WrittenOperators | null {
  const isPlain = view.op === 'MoE';
  if (isUnproven(view, isPlain ? [6] : [8, 14])) return null;
  const asked = { ...view, wanted: view.inputs.map(() => false), given: [false] };
  const write = new OperatorGradient(asked, entryRule(view));
  expertsForward(write, isPlain ? plainExperts(write) : quantisedExperts(write));
  return write.finish();
}

function plainExperts(write: OperatorGradient): Experts {
  const { view } = write;
  const raised = (index: number) => write.inType(`in${index}`, operand(view, index).dtype, write.sumType);
  return {
    first: raised(2),
    second: raised(4),
    inner: operand(view, 4).shape[2] ?? 1,
    weights: [2, 4],
    biases: [3, 5],
    isNormalised: numberOf(view, 'normalize_routing_weights', 0) !== 0,
  };
}

function entryRule(view: OperatorView): FactorRule {
  const own = expertEntries.find(({ op }) => op === view.op);
  if (!own) throw new Error(`${view.op} is not a mixture of experts`);
  return own.rule(view);
}

/** Dimension of the first weights' results: inner features, twice if the gate is in the same weights. */
function gated(view: OperatorView, inner: string): string {
  const fusion = text(view, 'activation_type', 'relu') === 'swiglu' ? numberOf(view, 'swiglu_fusion', 0) : 0;
  if (fusion === 0) return inner.includes(' ') ? `(${inner})` : inner;
  return fusion === 1 ? `(${inner} z!)` : `(z! ${inner})`;
}

function isGated(view: OperatorView): boolean {
  return text(view, 'activation_type', 'relu') === 'swiglu' && numberOf(view, 'swiglu_fusion', 0) !== 0;
}

function bound(view: OperatorView, parts: readonly string[], sizes: Readonly<Record<string, number>> = {}): FactorRule {
  const [tokens, scores] = tokensOf(view);
  const operands = [`${tokens} d!`, `${scores} x!`, ...parts].slice(0, view.inputs.length);
  return bindRule(`${operands.join(', ')} -> ${tokens} d!`, view, { ...sizes, ...(isGated(view) ? { z: 2 } : {}) });
}

/** A rule that shards tokens only: all weights stay whole. */
function unshardedExperts(view: OperatorView): FactorRule {
  const [tokens, scores] = tokensOf(view);
  const rest = view.inputs
    .slice(2)
    .map((type, index) => type?.shape.map((_, axis) => `w${index}_${axis}!`).join(' ') ?? '_');
  // The router's weights go with the tokens.
  if (view.inputs[14]) rest[12] = `${scores} x!`;
  return bindRule(`${[`${tokens} d!`, `${scores} x!`, ...rest].join(', ')} -> ${tokens} d!`, view);
}

function tokensOf(view: OperatorView): readonly [string, string] {
  return operand(view, 0).shape.length === 3 ? ['b s', '(b s)'] : ['t', 't'];
}

function checkRouter(view: OperatorView) {
  const type = ofRank(view, 0, 2, true);
  const scores = ofRank(view, 1, 2).shape;
  if (scores[0] !== elementCount(type.shape.slice(0, -1)) || scores[1] !== ofRank(view, 2, 3).shape[0])
    throw mismatch(view, 'its router does not score every expert for every token');
  const [chosen, experts] = [numberOf(view, 'k', 1), scores[1] ?? 1];
  if (chosen < 1 || chosen > experts) throw mismatch(view, `it chooses k = ${chosen} of ${experts} experts`);
  return type;
}

/** Work of the chosen experts on every token; `second` is the operand with their second weights. */
function expertWork(view: OperatorView, second: number, pack: number): Work {
  const [tokens = 1] = operand(view, 1).shape;
  const [, d = 1, inner = 1] = operand(view, second).shape;
  const matmuls = isGated(view) || view.inputs[second + 2] ? 3 : 2;
  return { flops: 2 * matmuls * tokens * numberOf(view, 'k', 1) * d * inner * pack };
}
