/**
 * @file ONNX Runtime's fused attention, as its optimisers and model builders write it (domain com.microsoft). Heads are
 * sharded and `num_heads` is resized; projections that are fused with it, or whose results are packed in one tensor, are
 * sharded inside each of their three parts:
 *
 *     Attention   b s! d!, d! (p! h e!), (p! h e!) -> b s! (h e!)          p: queries, keys, values
 */

import type { FactorRule } from '../factor-rule.js';
import type { Attributes, TensorType } from '../graph.js';
import type { Operator, OperatorEntry, Work } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { entry } from './entry.js';
import { integers, mismatch, numberOf, ofRank, operand } from './operands.js';
import { differentiable, inPlainOperators } from './operator-gradient.js';
import { type MultiHeadSizes, plainMultiHead, type SeparatePlaces } from './plain-multi-head.js';
import { plainProjectedAttention } from './plain-projected-attention.js';

const DOMAIN = 'com.microsoft';
const NOTE =
  'Keys and the features of a head are not sharded; nor are heads if one tensor packs queries and smaller keys and values.';

export const fusedAttentionEntries: readonly OperatorEntry[] = [
  { ...projectedEntry('Attention', { bias: 2, mask: 3, past: 4, scores: 5, dtype: 0 }), region: 'Attention' },
  differentiable(
    projectedEntry('QAttention', { bias: 2, mask: 5, past: 8, scores: null, dtype: 2 }),
    'its input and weights are whole numbers',
  ),
  inPlainOperators(
    entry({
      op: 'MultiHeadAttention',
      domain: DOMAIN,
      family: 'attention',
      region: 'Attention',
      attributes: { num_heads: 'count' },
      infer: (operator) => resultsOf(operator, sizesOf(operator, MULTI_HEAD)).slice(0, operator.outputCount),
      rule: (operator) => multiHeadRule(operator, MULTI_HEAD),
      resize: resizeHeads,
      work: (operator) => attentionWork(sizesOf(operator, MULTI_HEAD)),
      note: `${NOTE} With unidirectional, neither are queries.`,
    }),
    (write) => plainMultiHead(write, sizesOf(write.operator, MULTI_HEAD), MULTI_HEAD),
  ),
  inPlainOperators(
    entry({
      op: 'DecoderMaskedMultiHeadAttention',
      domain: DOMAIN,
      family: 'attention',
      attributes: { num_heads: 'count' },
      infer: (operator) => resultsOf(operator, sizesOf(operator, DECODER)).slice(0, operator.outputCount),
      rule: (operator) => multiHeadRule(operator, DECODER),
      resize: resizeHeads,
      work: (operator) => attentionWork(sizesOf(operator, DECODER)),
      note: NOTE,
    }),
    (write) => plainMultiHead(write, sizesOf(write.operator, DECODER), DECODER),
  ),
];

/** Places of a projected attention's operands; `dtype` is the operand whose dtype the result has. */
interface Projected {
  readonly bias: number;
  readonly mask: number;
  readonly past: number;
  readonly scores: number | null;
  readonly dtype: number;
}

/** Attention that projects its input itself: input, weights of queries, keys and values side by side. */
function projectedEntry(op: string, places: Projected): OperatorEntry {
  const sizes = (operator: Operator) => {
    const [x, w] = [ofRank(operator, 0, 3), ofRank(operator, 1, 2)];
    const [batch = 1, query = 1, width = 1] = x.shape;
    const [rows = 1, columns = 1] = w.shape;
    const parts = integers(operator, 'qkv_hidden_sizes') ?? [columns / 3, columns / 3, columns / 3];
    const heads = numberOf(operator, 'num_heads', 0);
    const [hidden = 0, keyHidden = 0, valueHidden = 0] = parts;
    const fits =
      parts.length === 3 &&
      rows === width &&
      hidden + keyHidden + valueHidden === columns &&
      parts.every((size) => size > 0 && size % heads === 0);
    if (!fits || hidden !== keyHidden) throw mismatch(operator, `its weights do not make ${heads} heads`);
    const past = operator.inputs[places.past]?.shape[3] ?? 0;
    const total = numberOf(operator, 'past_present_share_buffer', 0) ? past : past + query;
    return { batch, query, width, heads, head: hidden / heads, valueHead: valueHidden / heads, total };
  };
  const own = entry({
    op,
    domain: DOMAIN,
    family: 'attention',
    attributes: { num_heads: 'count' },
    infer: (operator) => {
      const { batch, query, heads, head, valueHead, total } = sizes(operator);
      const { dtype } = operand(operator, places.dtype);
      return [
        { dtype, shape: [batch, query, heads * valueHead] },
        { dtype, shape: [2, batch, heads, total, head] },
      ].slice(0, operator.outputCount);
    },
    rule: (operator) => {
      const { batch, heads, head, valueHead } = sizes(operator);
      const equal = head === valueHead;
      const [h, e] = [equal ? 'h' : 'h!', equal ? 'e!' : 'f!'];
      const joined = equal ? '(p! h e!)' : 'w!';
      const { text: mask, whole } = maskOf(operator, places.mask, batch, 's!');
      const inputs = operator.inputs.map((type) => ownDimensions(type));
      inputs[0] = 'b s! d!';
      inputs[1] = `d! ${joined}`;
      inputs[places.bias] = joined;
      inputs[places.mask] = mask;
      inputs[places.past] = `z! b ${h} u! ${e}`;
      if (places.scores !== null) inputs[places.scores] = `b ${h} s! t!`;
      // Scales and zero points of the quantised form: one, or one per column of the weights.
      if (op === 'QAttention') for (const index of [3, 4, 6, 7]) inputs[index] = perColumn(operator, index, joined);
      const text = `${inputs.join(', ')} -> b s! (${h} ${e}), z! b ${h} v! ${e}`;
      const rule = bindRule(text, operator, { h: heads, ...(equal ? { p: 3 } : {}) });
      return whole ? withUnsharded(rule, 'b') : rule;
    },
    resize: (operator, rule, size) => {
      const parts = integers(operator, 'qkv_hidden_sizes');
      const heads = numberOf(operator, 'num_heads', 1);
      const local = resizeHeads(operator, rule, size);
      return parts ? { ...local, qkv_hidden_sizes: parts.map((part) => (part / heads) * size('h')) } : local;
    },
    work: (operator) => {
      const { batch, query, width, heads, head, valueHead, total } = sizes(operator);
      const projection = 2 * batch * query * width * heads * (2 * head + valueHead);
      const scores = batch * heads * query * total;
      return { flops: projection + scores * (2 * head + 2 * valueHead + 12) };
    },
    parameterInputs: [1, 2],
    note: `Positions and input features are not sharded. ${NOTE}`,
  });
  return inPlainOperators(own, (write) => plainProjectedAttention(write, sizes(write.operator)));
}

const MULTI_HEAD: SeparatePlaces = { bias: 3, mask: 4, scores: 5, past: 6, pastLength: 8, indirection: 9 };
const DECODER: SeparatePlaces = { bias: 10, mask: 3, scores: 4, past: 5, pastLength: 7, indirection: 9 };

function sizesOf(operator: Operator, places: SeparatePlaces): MultiHeadSizes {
  const query = ofRank(operator, 0, 3, true);
  const heads = numberOf(operator, 'num_heads', 0);
  const [key, value] = [operator.inputs[1] ?? null, operator.inputs[2] ?? null];
  const past = operator.inputs[places.past]?.shape[2] ?? 0;
  const shared =
    numberOf(operator, 'past_present_share_buffer', 0) !== 0 || Boolean(operator.inputs[places.pastLength]);
  const sizes = (head: number, keys: number, valueHead: number, packing: MultiHeadSizes['packing']): MultiHeadSizes => {
    if (!Number.isInteger(head) || !Number.isInteger(valueHead))
      throw mismatch(operator, `queries, keys and values do not make ${heads} heads`);
    const [batch = 1, rows = 1] = query.shape;
    return { batch, heads, query: rows, keys, total: shared ? past : past + keys, head, valueHead, packing };
  };
  const [, rows = 1, width = 1] = query.shape;
  if (query.shape.length === 5) {
    const [, , own = 1, three = 1, head = 1] = query.shape;
    if (own !== heads || three !== 3 || key)
      throw mismatch(operator, `packed queries, keys and values must be [batch, positions, ${heads}, 3, features]`);
    return sizes(head, rows, head, 'all');
  }
  if (!key) {
    if (query.shape.length !== 3) throw mismatch(operator, 'keys are missing');
    return sizes(width / 3 / heads, rows, width / 3 / heads, 'all');
  }
  const head = width / heads;
  if (key.shape.length === 5) return sizes(head, key.shape[1] ?? 1, head, 'keys');
  if (!value) throw mismatch(operator, 'values are missing');
  const perHead = key.shape.length === 4;
  return sizes(
    head,
    key.shape[perHead ? 2 : 1] ?? 1,
    perHead ? (value.shape[3] ?? 1) : (value.shape[2] ?? 1) / heads,
    'none',
  );
}

function resultsOf(operator: Operator, sizes: MultiHeadSizes): readonly TensorType[] {
  const { batch, heads, query, total, head, valueHead } = sizes;
  const { dtype } = operand(operator, 0);
  return [
    { dtype, shape: [batch, query, heads * valueHead] },
    { dtype, shape: [batch, heads, total, head] },
    { dtype, shape: [batch, heads, total, valueHead] },
    { dtype, shape: [batch, heads, query, total] },
  ];
}

function multiHeadRule(operator: Operator, places: SeparatePlaces): FactorRule {
  const { batch, heads, head, valueHead, packing } = sizesOf(operator, places);
  const bias = operator.inputs[places.bias];
  // One tensor with queries, keys and values inside each head has no kernel on the CPU: no test here checks a sharded one.
  const inside = [operator.inputs[0], operator.inputs[1]].some((type) => type?.shape.length === 5);
  const uneven = (head !== valueHead && Boolean(bias)) || inside;
  const h = uneven ? 'h!' : 'h';
  // Kernels want caches, and values held per head, to be as wide as keys; a bias holds the features of both.
  const own = packing === 'none' && !bias && !operator.inputs[places.past] && operator.inputs[1]?.shape.length === 3;
  const f = own ? 'f' : packing === 'none' && !bias ? 'f!' : 'e!';
  const value = uneven ? 'f!' : f;
  const s = packing === 'all' || numberOf(operator, 'unidirectional', 0) !== 0 ? 's!' : 's';
  const { text: mask, whole } = maskOf(operator, places.mask, batch, s);
  const inputs = operator.inputs.map((type) => ownDimensions(type));
  const packed = operand(operator, 0).shape.length === 5 ? `b s! ${h} p! e!` : `b s! (p! ${h} e!)`;
  inputs[0] = packing === 'all' ? packed : `b ${s} (${h} e!)`;
  const keyRank = operator.inputs[1]?.shape.length ?? 0;
  if (packing === 'keys') inputs[1] = `b k! ${h} q! e!`;
  if (packing === 'none') {
    inputs[1] = keyRank === 4 ? `b ${h} k! e!` : `b k! (${h} e!)`;
    inputs[2] = keyRank === 4 ? `b ${h} k! ${value}` : `b k! (${h} ${value})`;
  }
  inputs[places.bias] = uneven ? 'w!' : `(r! ${h} e!)`;
  inputs[places.mask] = mask;
  inputs[places.scores] = `b ${h} ${s} t!`;
  inputs[places.past] = `b ${h} u! e!`;
  inputs[places.past + 1] = `b ${h} u! ${value}`;
  const results = [`b ${s} (${h} ${value})`, `b ${h} v! e!`, `b ${h} v! ${value}`, `b ${h} ${s} v!`];
  const fixed = { h: heads, ...(packing === 'all' ? { p: 3 } : {}), ...(bias && !uneven ? { r: 3 } : {}) };
  const rule = bindRule(`${inputs.join(', ')} -> ${results.join(', ')}`, operator, fixed);
  // Beams refer to other samples.
  return whole || operator.inputs[places.indirection] ? withUnsharded(rule, 'b') : rule;
}

/** The rule text of a mask, in any of its forms. `whole`: it holds places in the whole batch, which then cannot be sharded. */
function maskOf(operator: Operator, index: number, batch: number, s: string): { text: string; whole: boolean } {
  const shape = operator.inputs[index]?.shape;
  if (!shape) return { text: '_', whole: false };
  const [first = 1] = shape;
  if (shape.length === 1 && first === batch) return { text: 'b', whole: false };
  // Ends of all samples, then their starts.
  if (shape.length === 1 && first === 2 * batch) return { text: '(y! b)', whole: false };
  if (shape.length === 1) return { text: 'm!', whole: true };
  return { text: ['b m!', `b ${s} m!`, 'b 1 m! n!'][shape.length - 2] ?? 'b', whole: false };
}

/** The rule with one factor kept whole. */
function withUnsharded(rule: FactorRule, name: string): FactorRule {
  const factor = rule.factors.get(name);
  if (!factor) return rule;
  return { ...rule, factors: new Map([...rule.factors, [name, { ...factor, kind: 'whole' }]]) };
}

/** Dimensions of an operand that are independent of all others. */
function ownDimensions(type: TensorType | null): string {
  return type ? type.shape.map((size) => (size === 1 ? '1' : 'x!')).join(' ') : '_';
}

function perColumn(operator: Operator, index: number, columns: string): string {
  const shape = operator.inputs[index]?.shape;
  if (!shape) return '_';
  if (shape.length === 0) return '';
  return shape[0] === 1 ? '1' : columns;
}

function resizeHeads(operator: Operator, rule: FactorRule, size: (factor: string) => number): Attributes {
  return rule.factors.has('h') ? { ...operator.attributes, num_heads: size('h') } : operator.attributes;
}

function attentionWork({ batch, heads, query, total, head, valueHead }: MultiHeadSizes): Work {
  return { flops: batch * heads * query * total * (2 * head + 2 * valueHead + 12) };
}
