/**
 * @file Attention and rotary embedding as ONNX defines them (opset 23 and 24).
 *
 *     b (h g) s e!, b h t! e, b h t! f -> b (h g) s f
 *
 * h are the key heads and g the query heads that share one: sharding g alone keeps K and V whole, so fewer key heads
 * than ranks are no obstacle. Three-dimensional operands hold heads and features in one dimension, `b s (h g e!)`.
 */

import type { FactorRule } from '../factor-rule.js';
import type { TensorType } from '../graph.js';
import type { Operator, OperatorEntry } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { constant } from './constants.js';
import { entry, moves, perElement } from './entry.js';
import { axisOf, dimensionNames, mismatch, numberOf, ofRank, operand, text } from './operands.js';
import { differentiable, inPlainOperators, type OperatorGradient, withPlainForm } from './operator-gradient.js';
import { type AttentionSizes, plainAttention } from './plain-attention.js';
import { plainRotary } from './plain-rotary.js';
import { rotaryGradient } from './rotary-gradient.js';

export const attentionEntries: readonly OperatorEntry[] = [
  inPlainOperators(
    entry({
      op: 'Attention',
      family: 'attention',
      region: 'Attention',
      infer: (operator) => {
        const { batch, heads, keyHeads, query, past, keys, width, valueWidth, flat } = attentionSizes(operator);
        const { dtype } = operand(operator, 0);
        const total = past + keys;
        const types: readonly TensorType[] = [
          { dtype, shape: flat ? [batch, query, heads * valueWidth] : [batch, heads, query, valueWidth] },
          { dtype, shape: [batch, keyHeads, total, width] },
          { dtype, shape: [batch, keyHeads, total, valueWidth] },
          { dtype, shape: [batch, heads, query, total] },
        ];
        return types.slice(0, operator.outputCount);
      },
      rule: attentionRule,
      // The result is a weighted sum of values: linear in them, if there is no other result and there are no past values.
      linear: (operator) => (operator.outputCount === 1 && !operator.inputs[5] ? [[2]] : []),
      resize: (operator, rule, size) =>
        attentionSizes(operator).flat && rule.factors.has('h')
          ? { ...operator.attributes, q_num_heads: size('h') * size('g'), kv_num_heads: size('h') }
          : operator.attributes,
      work: (operator) => {
        const { batch, heads, query, past, keys, width, valueWidth } = attentionSizes(operator);
        const scores = batch * heads * query * (past + keys);
        return { flops: scores * (2 * width + 2 * valueWidth + 12) };
      },
      note: 'Keys are not sharded; with is_causal neither are queries, because the mask depends on their position.',
    }),
    (write) => plainAttention(write, attentionSizes(write.operator)),
  ),
  withPlainForm(
    differentiable(
      entry({
        op: 'RotaryEmbedding',
        family: 'attention',
        precision: 'follow',
        region: 'RotaryEmbedding',
        infer: (operator) => [ofRank(operator, 0, 3, true)],
        rule: (operator) => {
          const { shape } = operand(operator, 0);
          const heads = numberOf(operator, 'num_heads', 0);
          const tables = operator.inputs[3] ? 'p! f!, p! f!, b s' : 'b s f!, b s f!';
          const data = shape.length === 4 ? 'b h s e!' : 'b s (h e!)';
          return bindRule(
            `${data}, ${tables} -> ${data}`,
            operator,
            shape.length === 3 && heads > 0 ? { h: heads } : {},
          );
        },
        resize: (operator, rule, size) =>
          operand(operator, 0).shape.length === 3 && rule.factors.has('h')
            ? { ...operator.attributes, num_heads: size('h') }
            : operator.attributes,
        work: perElement(3),
        note: 'Features of a head and the position table are not sharded.',
      }),
      (write) =>
        rotaryGradient(write, { cosine: 1, sine: 2, positions: 3, heads: numberOf(write.operator, 'num_heads', 1) }),
    ),
    plainRotary,
  ),
  differentiable(
    entry({
      op: 'TensorScatter',
      family: 'indexing',
      infer: (operator) => [operand(operator, 0)],
      rule: (operator) => {
        const rank = operand(operator, 0).shape.length;
        const axis = axisOf(operator, 'axis', rank, -2);
        const names = dimensionNames(rank);
        const side = (own: string) => names.map((name, index) => (index === axis ? own : name)).join(' ');
        return `${side('t!')}, ${side('u!')}, a0 -> ${side('t!')}`;
      },
      linear: () => [[0, 1]],
      work: moves,
      note: 'The dimension that is written into is not sharded.',
    }),
    cacheGradient,
  ),
];

/** The cache's gradient is zero where it is overwritten; the update's is the gradient at its places. Circular caches wrap. */
function cacheGradient(write: OperatorGradient): void {
  const { operator } = write;
  const [cache, update] = [operand(operator, 0), operand(operator, 1)];
  const rank = cache.shape.length;
  const axis = axisOf(operator, 'axis', rank, -2);
  if (write.wants(0)) {
    const value = constant(cache.dtype, [0], [1]);
    const zeros = write.add('ConstantOfShape', [], { shape: update.shape, value });
    const places = operator.inputs[2] ? ['in2'] : [];
    write.add('TensorScatter', ['grad0', zeros, ...places], operator.attributes, 'd0');
  }
  if (!write.wants(1)) return;
  let index = write.positions(update.shape, axis);
  // A range has no dimensions in front of its own.
  if (operator.inputs[2]) {
    const beside = update.shape.flatMap((_, other) => (other === 0 ? [] : [other]));
    const start = write.add('Unsqueeze', ['in2'], { axes: beside });
    index = write.add('Add', [start, index]);
    if (text(operator, 'mode', 'linear') === 'circular')
      index = write.add('Mod', [index, write.scalar('int64', cache.shape[axis] ?? 1)]);
  }
  const spread = write.add('Expand', [index], { shape: update.shape });
  write.add('GatherElements', ['grad0', spread], { axis }, 'd1');
}

function attentionSizes(operator: Operator): AttentionSizes {
  const [q, k, v] = [ofRank(operator, 0, 3, true), ofRank(operator, 1, 3, true), ofRank(operator, 2, 3, true)];
  const flat = q.shape.length === 3;
  const past = operator.inputs[4]?.shape[2] ?? 0;
  if (!flat) {
    const [batch = 1, heads = 1, query = 1, width = 1] = q.shape;
    const [, keyHeads = 1, keys = 1] = k.shape;
    if (heads % keyHeads !== 0 || k.shape[3] !== width || v.shape[2] !== keys)
      throw mismatch(operator, 'queries, keys and values do not match');
    return { batch, heads, keyHeads, query, past, keys, width, valueWidth: v.shape[3] ?? 1, flat };
  }
  const [heads, keyHeads] = [numberOf(operator, 'q_num_heads', 0), numberOf(operator, 'kv_num_heads', 0)];
  const [batch = 1, query = 1, hidden = 1] = q.shape;
  const [, keys = 1, keyHidden = 1] = k.shape;
  if (heads < 1 || keyHeads < 1)
    throw mismatch(operator, 'q_num_heads and kv_num_heads are needed with three dimensions');
  if (heads % keyHeads !== 0 || hidden % heads !== 0 || keyHidden / keyHeads !== hidden / heads)
    throw mismatch(operator, 'queries, keys and values do not match');
  const valueWidth = (v.shape[2] ?? 1) / keyHeads;
  return { batch, heads, keyHeads, query, past, keys, width: hidden / heads, valueWidth, flat };
}

function attentionRule(operator: Operator): FactorRule {
  const { heads, keyHeads, flat, past } = attentionSizes(operator);
  const s = numberOf(operator, 'is_causal', 0) ? 's!' : 's';
  // Keys of this call and of the past are joined along the keys' dimension; mask and results see the joined one.
  const joined = past > 0 || operator.inputs[4] ? 'u!' : 't!';
  const query = flat ? `b ${s} (h g e!)` : `b (h g) ${s} e!`;
  const [key, value] = flat ? ['b t! (h e!)', 'b t! (h f)'] : ['b h t! e!', 'b h t! f'];
  const result = flat ? `b ${s} (h g f)` : `b (h g) ${s} f`;
  const cached = ['b h p! e!', 'b h p! f'];
  const present = [`b h ${joined} e!`, `b h ${joined} f`];
  const rank = operator.inputs[3]?.shape.length ?? 0;
  const mask = ['b', '(h g)', s, maskKeys(operator, joined)].slice(4 - Math.max(rank, 2)).join(' ');
  const inputs = [query, key, value, rank ? mask : '_', ...cached, 'b'];
  const outputs = [result, ...present, `b (h g) ${s} ${joined}`];
  return bindRule(`${inputs.join(', ')} -> ${outputs.join(', ')}`, operator, { h: keyHeads, g: heads / keyHeads });
}

/** The mask's last dimension may be shorter than the keys: the rest is then masked out. */
function maskKeys(operator: Operator, joined: string): string {
  const { past, keys } = attentionSizes(operator);
  const last = operator.inputs[3]?.shape.at(-1);
  return last === past + keys || last === 1 ? joined : 'm!';
}
