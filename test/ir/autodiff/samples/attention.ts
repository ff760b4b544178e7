/**
 * @file Sample attentions and rotary embeddings whose gradients are checked.
 */

import { isDifferentiable } from '../../../../src/ir/operator.js';
import { constant } from '../../../../src/ir/ops/constants.js';
import { CASES } from '../../ops/cases.js';
import type { Values } from '../../ops/one-node.js';
import { b, type Case, c, f, h, i, ms, of, positive, type Sample } from '../../ops/sample.js';
import { needEntry } from '../../ops/simulate.js';
import { firstSeed } from '../first-seed.js';
import type { GradientOptions } from '../sample-gradient.js';

const OPERATORS = [
  'Attention',
  'RotaryEmbedding',
  'MRotaryEmbedding',
  'MultiHeadAttention',
  'DecoderMaskedMultiHeadAttention',
  'LinearAttention',
];

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

const exactly = (value: number, count: number): Sample => ({
  shape: [count],
  dtype: 'int32',
  low: value,
  high: value + 1,
});
/** Positions · heads are 3 · 2 or 3 · 4. */
const LINEAR: readonly Case[] = [
  ms(
    'LinearAttention',
    [f(1, 3, 8), f(1, 3, 8), f(1, 3, 12), f(1, 4, 4, 3), null, positive(1, 3, 1)],
    { q_num_heads: 2, kv_num_heads: 4, update_rule: 'delta', scale: 0.7 },
    2,
  ),
  ms(
    'LinearAttention',
    [f(2, 3, 16), f(2, 3, 8), f(2, 3, 6), null, f(2, 3, 8), f(2, 3, 2)],
    { q_num_heads: 4, kv_num_heads: 2 },
    2,
  ),
];

const lengths = (high: number): Sample => exactly(high, 2);
const GROUPED: readonly (readonly [Case, GradientOptions])[] = [
  // Sequences of several lengths.
  [
    grouped([f(4, 4, 32), f(4, 4, 16), f(4, 4, 16), null, null, { ...of('int32', 4, 4), low: 1 }], {
      num_heads: 4,
      kv_num_heads: 2,
    }),
    {},
  ],
  [grouped([f(2, 4, 32), f(2, 4, 16), f(2, 4, 16), null, null, lengths(3)], { num_heads: 4, kv_num_heads: 2 }), {}],
  [
    grouped([f(2, 4, 48), null, null, null, null, lengths(3)], { num_heads: 2, kv_num_heads: 2, local_window_size: 2 }),
    {},
  ],
  [grouped([f(2, 4, 64), null, null, null, null, lengths(3)], { num_heads: 4, kv_num_heads: 2, scale: 0.3 }), {}],
  [
    grouped([f(2, 4, 64), f(2, 4, 32), f(2, 4, 32), null, null, lengths(3), null, f(8, 8), f(8, 8)], {
      num_heads: 4,
      kv_num_heads: 2,
      do_rotary: 1,
    }),
    { wanted: [true, true, true] },
  ],
  [
    grouped([f(2, 4, 64), f(2, 4, 64), f(2, 4, 64), null, null, lengths(3), null, f(8, 8), f(8, 8)], {
      num_heads: 2,
      kv_num_heads: 2,
      do_rotary: 1,
      rotary_interleaved: 1,
    }),
    { wanted: [true, true, true] },
  ],
  [
    grouped(
      [f(2, 4, 64), f(2, 4, 32), f(2, 4, 32), null, null, lengths(3), null, null, null, null, f(2, 8, 4, 4), f(8)],
      {
        num_heads: 8,
        kv_num_heads: 4,
        softcap: 3,
      },
    ),
    {},
  ],
  [
    grouped([f(2, 4, 32), f(2, 4, 16), f(2, 4, 16), null, null, lengths(3)], {
      num_heads: 4,
      kv_num_heads: 2,
      smooth_softmax: 1,
    }),
    {},
  ],
  // A cache that is continued: by a token, of several lengths; by some, with room behind them; as long as they need.
  [
    grouped(
      [f(2, 1, 48), null, null, f(2, 2, 6, 8), f(2, 2, 6, 8), { ...of('int32', 5, 2), low: 2 }],
      { num_heads: 2, kv_num_heads: 2, local_window_size: 3 },
      5,
    ),
    {},
  ],
  [
    grouped(
      [f(1, 2, 64), f(1, 2, 32), f(1, 2, 32), f(1, 2, 8, 16), f(1, 2, 8, 16), exactly(4, 1), null, f(8, 8), f(8, 8)],
      { num_heads: 4, kv_num_heads: 2, do_rotary: 1 },
      5,
    ),
    { wanted: [true, true, true, true, true] },
  ],
  [
    grouped(
      [
        ...[f(1, 2, 32), f(1, 2, 16), f(1, 2, 16), f(1, 2, 3, 8), f(1, 2, 3, 8), exactly(4, 1), null, null, null, null],
        ...[f(1, 4, 2, 5), f(4)],
      ],
      { num_heads: 4, kv_num_heads: 2, softcap: 2 },
      5,
    ),
    {},
  ],
  // Whole sequences into a buffer; from a position of their own; a token at a position of its own.
  [
    grouped(
      [f(2, 4, 64), f(2, 4, 32), f(2, 4, 32), f(2, 2, 6, 16), f(2, 2, 6, 16), lengths(3), null, f(8, 8), f(8, 8)],
      { num_heads: 4, kv_num_heads: 2, do_rotary: 1 },
    ),
    { wanted: [true, true, true, true, true] },
  ],
  [
    grouped([f(1, 4, 64), f(1, 4, 32), f(1, 4, 32), null, null, exactly(3, 1), null, f(8, 8), f(8, 8), i(4, 1, 4)], {
      num_heads: 4,
      kv_num_heads: 2,
      do_rotary: 1,
    }),
    { wanted: [true, true, true] },
  ],
  [
    grouped(
      [
        ...[f(2, 1, 64), f(2, 1, 32), f(2, 1, 32), f(2, 2, 4, 16), f(2, 2, 4, 16), lengths(4)],
        ...[null, f(8, 8), f(8, 8), i(8, 2, 1)],
      ],
      { num_heads: 4, kv_num_heads: 2, do_rotary: 1 },
      5,
    ),
    {},
  ],
];

const ends: Sample = { shape: [2], dtype: 'int32', low: 2, high: 6 };
const FUSED: readonly Case[] = [
  ms('Attention', [f(2, 5, 6), f(6, 24), f(24), ends], { num_heads: 2 }),
  ms('Attention', [f(2, 8, 6), f(6, 24), f(24), of('int32', 2, 2, 8)], { num_heads: 4 }),
  // Ends and starts; and what packed samples have, of which the ends count.
  ms('Attention', [f(2, 5, 6), f(6, 24), f(24), { ...of('int32', 6, 4), low: 4, step: -1 }], { num_heads: 2 }),
  ms('Attention', [f(2, 4, 6), f(6, 24), f(24), { ...of('int32', 5, 8), low: 2 }], { num_heads: 2 }),
  ms('MultiHeadAttention', [f(2, 4, 16), f(2, 5, 16), f(2, 5, 12), f(44)], { num_heads: 2 }),
  ms('MultiHeadAttention', [f(2, 3, 16), f(2, 2, 6, 8), f(2, 2, 6, 8), f(48)], { num_heads: 2 }),
  ms('MultiHeadAttention', [f(2, 4, 16), f(2, 5, 16), f(2, 5, 16), null, { ...of('int32', 6, 8), low: 2 }], {
    num_heads: 2,
  }),
];
const none = (count: number): readonly null[] => Array.from({ length: count }, () => null);
const buffer = (own: number, heads: number, ...more: (Sample | null)[]) => [
  ...[f(2, 1, own), f(2, 1, own), f(2, 1, own), ...more.slice(0, 2)],
  ...[f(2, heads, 6, own / heads), f(2, heads, 6, own / heads), exactly(3, 1), ...more.slice(2)],
];
const DECODER: readonly Case[] = [
  ms('DecoderMaskedMultiHeadAttention', [f(2, 1, 16), f(2, 2, 5, 8), f(2, 2, 5, 8), ...none(7), f(48)], {
    num_heads: 2,
    scale: 0.4,
  }),
  ms('DecoderMaskedMultiHeadAttention', buffer(16, 2, null, null), { num_heads: 2, past_present_share_buffer: 1 }, 3),
  ms(
    'DecoderMaskedMultiHeadAttention',
    buffer(16, 4, of('int32', 2, 2, 4), f(2, 4, 1, 4), null, null, f(48)),
    { num_heads: 4, past_present_share_buffer: 1 },
    3,
  ),
];
/** Whether a mask per key leaves one to every query. */
const hasKeys = (mask: Values | null | undefined) =>
  !mask || mask.data.every((_, at) => mask.data.some((value, other) => value !== 0 && sameRow(mask, at, other)));
const sameRow = ({ shape }: Values, at: number, other: number) =>
  Math.floor(at / (shape[1] ?? 1)) === Math.floor(other / (shape[1] ?? 1));

const CAUSAL: readonly Case[] = [
  ms('Attention', [f(2, 6, 8), f(8, 48), f(48), ends], { num_heads: 4, unidirectional: 1 }),
  ms('Attention', [f(2, 2, 8), f(8, 48), f(48), null, f(2, 2, 4, 4, 4)], { num_heads: 4, unidirectional: 1 }, 2),
];

/** Over whole sequences of four positions, by default. */
function grouped(inputs: readonly (Sample | null)[], attributes: Case['attributes'], total = 4): Case {
  return ms('GroupQueryAttention', inputs, { ...attributes, total_sequence_length: constant('int32', [total]) }, 3);
}

/**
 * A query whose keys are all masked has scores near -10000, which float32 holds to 1e-3:
 * nothing is to be learnt from differences of those; CAUSAL and FUSED have both kinds of masks with a key for every query.
 */
const isLeftOut = ({ op, domain, inputs, attributes }: Case) =>
  domain !== '' && op === 'Attention' && (inputs[3]?.shape[0] === 4 || attributes['unidirectional'] === 1);

const samples = [...CASES.filter(({ op }) => OPERATORS.includes(op)), ...OWN, ...LINEAR].filter(
  (sample) => isDifferentiable(needEntry(sample.op, sample.domain)) && !isLeftOut(sample),
);

// Angles are trained seldom; where positions are in sections they cannot be.
export const attentionSamples: readonly (readonly [Case, GradientOptions])[] = [
  ...samples.map((sample) => [sample, sample.op === 'MRotaryEmbedding' ? { wanted: [true] } : {}] as const),
  ...[...CAUSAL, ...FUSED].map((sample) => [sample, {}] as const),
  ...DECODER.map((sample) => [sample, { seed: firstSeed(sample, ([, , , mask]) => hasKeys(mask)) }] as const),
  ...GROUPED,
];
