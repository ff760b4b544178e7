/**
 * @file ONNX Runtime's mixture of experts in one operator (domain com.microsoft). Tokens pass. So do an expert's inner
 * features: every rank computes its shard of each expert, and the sum over them is partial, as in Megatron's MLP. Experts
 * stay whole: top-k routing reads all of their scores.
 */

import type { FactorRule } from '../factor-rule.js';
import { elementCount } from '../graph.js';
import type { Operator, OperatorEntry, Work, WrittenOperators } from '../operator.js';
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
      infer: (operator) => {
        const type = checkRouter(operator);
        const [experts, inner] = [operand(operator, 2).shape[0], ofRank(operator, 4, 3).shape];
        if (inner[0] !== experts || inner[1] !== type.shape.at(-1))
          throw mismatch(operator, 'the weights of its experts do not fit its input');
        return [type];
      },
      rule: (operator) => {
        const i = operator.inputs[5] ? 'i!' : 'i+';
        const fused = gated(operator, i);
        const parts = [`x! ${fused} d!`, `x! ${fused}`, `x! d! ${i}`, 'x! d!', `x! ${i} d!`, `x! ${i}`];
        return bound(operator, parts);
      },
      work: (operator) => expertWork(operator, 4, 1),
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
      infer: (operator) => [checkRouter(operator)],
      rule: (operator) => {
        // Only whole bytes can be sharded; scales per block, or packed zero points, would need more than that.
        const plain = numberOf(operator, 'block_size', 0) === 0 && operator.inputs.slice(11).every((type) => !type);
        const i = plain && !operator.inputs[7] ? 'i+' : 'i!';
        const pack = 8 / numberOf(operator, 'expert_weight_bits', 4);
        const [fused, inner] = [gated(operator, `${i} w!`), `(${i} w!)`];
        if (!plain) return unshardedExperts(operator);
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
        return bound(operator, parts, { w: pack });
      },
      work: (operator) => expertWork(operator, 5, 8 / numberOf(operator, 'expert_weight_bits', 4)),
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
export function plainExpertsForm(operator: Operator): WrittenOperators | null {
  const isPlain = operator.op === 'MoE';
  if (isUnproven(operator, isPlain ? [6] : [8, 14])) return null;
  const asked = { ...operator, wanted: operator.inputs.map(() => false), given: [false] };
  const write = new OperatorGradient(asked, entryRule(operator));
  expertsForward(write, isPlain ? plainExperts(write) : quantisedExperts(write));
  return write.finish();
}

function plainExperts(write: OperatorGradient): Experts {
  const { operator } = write;
  const raised = (index: number) => write.inType(`in${index}`, operand(operator, index).dtype, write.sumType);
  return {
    first: raised(2),
    second: raised(4),
    inner: operand(operator, 4).shape[2] ?? 1,
    weights: [2, 4],
    biases: [3, 5],
    isNormalised: numberOf(operator, 'normalize_routing_weights', 0) !== 0,
  };
}

function entryRule(operator: Operator): FactorRule {
  const own = expertEntries.find(({ op }) => op === operator.op);
  if (!own) throw new Error(`${operator.op} is not a mixture of experts`);
  return own.rule(operator);
}

/** Dimension of the first weights' results: inner features, twice if the gate is in the same weights. */
function gated(operator: Operator, inner: string): string {
  const fusion = text(operator, 'activation_type', 'relu') === 'swiglu' ? numberOf(operator, 'swiglu_fusion', 0) : 0;
  if (fusion === 0) return inner.includes(' ') ? `(${inner})` : inner;
  return fusion === 1 ? `(${inner} z!)` : `(z! ${inner})`;
}

function isGated(operator: Operator): boolean {
  return text(operator, 'activation_type', 'relu') === 'swiglu' && numberOf(operator, 'swiglu_fusion', 0) !== 0;
}

function bound(operator: Operator, parts: readonly string[], sizes: Readonly<Record<string, number>> = {}): FactorRule {
  const [tokens, scores] = tokensOf(operator);
  const operands = [`${tokens} d!`, `${scores} x!`, ...parts].slice(0, operator.inputs.length);
  return bindRule(`${operands.join(', ')} -> ${tokens} d!`, operator, {
    ...sizes,
    ...(isGated(operator) ? { z: 2 } : {}),
  });
}

/** A rule that shards tokens only: all weights stay whole. */
function unshardedExperts(operator: Operator): FactorRule {
  const [tokens, scores] = tokensOf(operator);
  const rest = operator.inputs
    .slice(2)
    .map((type, index) => type?.shape.map((_, axis) => `w${index}_${axis}!`).join(' ') ?? '_');
  // The router's weights go with the tokens.
  if (operator.inputs[14]) rest[12] = `${scores} x!`;
  return bindRule(`${[`${tokens} d!`, `${scores} x!`, ...rest].join(', ')} -> ${tokens} d!`, operator);
}

function tokensOf(operator: Operator): readonly [string, string] {
  return operand(operator, 0).shape.length === 3 ? ['b s', '(b s)'] : ['t', 't'];
}

function checkRouter(operator: Operator) {
  const type = ofRank(operator, 0, 2, true);
  const scores = ofRank(operator, 1, 2).shape;
  if (scores[0] !== elementCount(type.shape.slice(0, -1)) || scores[1] !== ofRank(operator, 2, 3).shape[0])
    throw mismatch(operator, 'its router does not score every expert for every token');
  const [chosen, experts] = [numberOf(operator, 'k', 1), scores[1] ?? 1];
  if (chosen < 1 || chosen > experts) throw mismatch(operator, `it chooses k = ${chosen} of ${experts} experts`);
  return type;
}

/** Work of the chosen experts on every token; `second` is the operand with their second weights. */
function expertWork(operator: Operator, second: number, pack: number): Work {
  const [tokens = 1] = operand(operator, 1).shape;
  const [, d = 1, inner = 1] = operand(operator, second).shape;
  const matmuls = isGated(operator) || operator.inputs[second + 2] ? 3 : 2;
  return { flops: 2 * matmuls * tokens * numberOf(operator, 'k', 1) * d * inner * pack };
}
