/**
 * @file Sample attentions and rotary embeddings whose gradients are checked.
 */
import { CASES } from '../../ops/cases.js';
import { b, type Case, c, f, h, i, ms } from '../../ops/sample.js';
import { needEntry } from '../../ops/simulate.js';
import type { GradientOptions } from '../sample-gradient.js';

const OPERATORS = ['Attention', 'RotaryEmbedding', 'MRotaryEmbedding', 'MultiHeadAttention'];

const OWN: readonly Case[] = [
  c('Attention', [f(2, 6, 16), f(2, 6, 16), f(2, 6, 16)], { q_num_heads: 4, kv_num_heads: 4, is_causal: 1 }),
  c('Attention', [f(1, 2, 6, 4), f(1, 2, 6, 4), f(1, 2, 6, 4), f(2, 6, 6)], { is_causal: 1 }),
  c('Attention', [f(2, 4, 2, 8), f(2, 2, 4, 8), f(2, 2, 4, 8), b(2, 1, 2, 4)]),
  c('Attention', [f(2, 4, 6, 8), f(2, 2, 4, 8), f(2, 2, 4, 6)], { softcap: 1.5 }),
  c(
    'Attention',
    [f(2, 4, 2, 8), f(2, 4, 4, 8), f(2, 4, 4, 8), null, f(2, 4, 2, 8), f(2, 4, 2, 8)],
    { is_causal: 1 },
    3,
  ),
  { ...c('Attention', [h(2, 4, 6, 8), h(2, 2, 4, 8), h(2, 2, 4, 8)]), tolerance: 1e-2 },
  c('RotaryEmbedding', [f(2, 4, 6, 8), f(2, 6, 2), f(2, 6, 2)], { rotary_embedding_dim: 4 }),
  ms('MRotaryEmbedding', [f(2, 4, 16), i(8, 3, 2, 4), f(8, 2), f(8, 2)], { num_heads: 4, mrope_section: [1, 1, 0] }),
  c('RotaryEmbedding', [f(2, 6, 32), f(10, 4), f(10, 4), i(10, 2, 6)], { num_heads: 4, interleaved: 1 }),
];

const samples = [...CASES.filter(({ op }) => OPERATORS.includes(op)), ...OWN].filter(
  ({ op, domain }) => needEntry(op, domain).gradient !== undefined,
);

// Angles are trained seldom; where positions lie in sections they cannot be.
export const attentionSamples: readonly (readonly [Case, GradientOptions])[] = samples.map((sample) => [
  sample,
  sample.op === 'MRotaryEmbedding' ? { wanted: [true] } : {},
]);
