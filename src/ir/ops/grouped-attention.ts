/**
 * @file GroupQueryAttention, the attention of ONNX Runtime's language models: grouped heads, a key-value cache, rotary
 * embedding inside.
 *
 *     b s! (h g e!), b s! (h e!), b s! (h e!), b h p! e!, b h p! e!, b -> b s! (h g e!), b h t! e!, b h t! e!
 *
 * h are the key heads and g the query heads that share one, as in ONNX's Attention.
 */
import type { FactorRule } from '../factor-rule.js';
import type { TensorType } from '../graph.js';
import type { Operator, OperatorEntry } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { numbersOf } from './constants.js';
import { entry } from './entry.js';
import { mismatch, numberOf, ofRank, operand, tensor } from './operands.js';
import { inPlainOperators } from './operator-gradient.js';
import { type GroupedSizes, plainGroupedAttention } from './plain-grouped-attention.js';

export const groupedAttentionEntries: readonly OperatorEntry[] = [
  inPlainOperators(
    entry({
      op: 'GroupQueryAttention',
      domain: 'com.microsoft',
      family: 'attention',
      region: 'Attention',
      attributes: { num_heads: 'count', kv_num_heads: 'count' },
      constantInputs: [{ index: 6, attribute: 'total_sequence_length', form: 'tensor' }],
      infer: (operator) => {
        const { batch, query, heads, keyHeads, head, cached } = groupedSizes(operator);
        const { dtype } = operand(operator, 0);
        const cache = operator.inputs[3]?.dtype ?? dtype;
        const types: readonly TensorType[] = [
          { dtype, shape: [batch, query, heads * head] },
          { dtype: cache, shape: [batch, keyHeads, cached, operator.inputs[3]?.shape[3] ?? head] },
          { dtype: cache, shape: [batch, keyHeads, cached, operator.inputs[4]?.shape[3] ?? head] },
          { dtype, shape: [batch, heads, query, totalLength(operator)] },
        ];
        return types.slice(0, operator.outputCount);
      },
      rule: groupedRule,
      resize: (operator, rule, size) =>
        rule.factors.has('g')
          ? { ...operator.attributes, num_heads: size('h') * size('g'), kv_num_heads: size('h') }
          : operator.attributes,
      work: (operator) => {
        const { batch, query, heads, head } = groupedSizes(operator);
        return { flops: batch * heads * query * totalLength(operator) * (4 * head + 12) };
      },
      // Sinks.
      parameterInputs: [11],
      note:
        'Positions (causal) and the features of a head are not sharded; nor are heads if queries and ' +
        'fewer keys and values are in one tensor, or the cache is scaled per channel.',
    }),
    (write) => plainGroupedAttention(write, groupedSizes(write.operator), totalLength(write.operator)),
  ),
];

function groupedSizes(operator: Operator): GroupedSizes {
  const [batch = 1, query = 1, width = 1] = ofRank(operator, 0, 3).shape;
  const [heads, keyHeads] = [numberOf(operator, 'num_heads', 0), numberOf(operator, 'kv_num_heads', 0)];
  const key = operator.inputs[1];
  const head = width / (key ? heads : heads + 2 * keyHeads);
  const fits = heads % keyHeads === 0 && Number.isInteger(head) && (!key || key.shape[2] === keyHeads * head);
  if (!fits) throw mismatch(operator, `queries, keys and values do not make ${heads} and ${keyHeads} heads`);
  const past = operator.inputs[3]?.shape[2] ?? 0;
  // A cache of one window keeps its length.
  const window = numberOf(operator, 'sliding_window_cache', 0) !== 0;
  return { batch, query, heads, keyHeads, head, cached: window ? past : Math.max(past, totalLength(operator)) };
}

/** Positions that are attended to: a constant, since results have as many. */
function totalLength(operator: Operator): number {
  const held = tensor(operator, 'total_sequence_length');
  const total = held ? numbersOf(held)[0] : undefined;
  if (total === undefined) throw mismatch(operator, 'its total_sequence_length must be a constant');
  return total;
}

function groupedRule(operator: Operator): FactorRule {
  const { heads, keyHeads } = groupedSizes(operator);
  const packed = !operator.inputs[1];
  const scaled = [12, 13].some(
    (index) => (operator.inputs[index]?.shape.length ?? 0) > 0 && operator.inputs[index]?.shape[0] !== 1,
  );
  const mark = (packed && heads !== keyHeads) || scaled ? '!' : '';
  const [h, g] = [`h${mark}`, `g${mark}`];
  const query = !packed ? `b s! (${h} ${g} e!)` : mark === '' ? 'b s! (q! h e!)' : 'b s! w!';
  const cache = `b ${h} p! c!`;
  const scale = (index: number) =>
    operator.inputs[index]?.shape.map((size) => (size === 1 ? '1' : 'x!')).join(' ') ?? '_';
  const inputs = [
    query,
    `b s! (${h} e!)`,
    `b s! (${h} e!)`,
    cache,
    cache,
    'b',
    '_',
    'm! r!',
    'm! r!',
    'b s!',
    `b (${h} ${g}) s! t!`,
    `(${h} ${g})`,
    scale(12),
    scale(13),
    'e!',
    'e!',
  ];
  const results = [`b s! (${h} ${g} e!)`, `b ${h} t! c!`, `b ${h} t! c!`, `b (${h} ${g}) s! k!`];
  const sizes = { h: keyHeads, g: heads / keyHeads, ...(packed && mark === '' ? { q: 3 } : {}) };
  return bindRule(`${inputs.slice(0, operator.inputs.length).join(', ')} -> ${results.join(', ')}`, operator, sizes);
}
