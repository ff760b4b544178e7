/**
 * @file Samples of ONNX Runtime's fused operators: attention, normalisations, activations, matmuls.
 */
import { constant } from '../../../../src/ir/ops/constants.js';
import { type Case, c, f, i, ms, of, positive, type Sample, wide } from '../sample.js';

/** int32 operands whose values are all `value`. */
const exactly = (value: number, ...shape: number[]): Sample => ({ shape, dtype: 'int32', low: value, high: value + 1 });
const int32 = (high: number, ...shape: number[]): Sample => of('int32', high, ...shape);
const from = (low: number, sample: Sample): Sample => ({ ...sample, low });
const total = (value: number) => ({ total_sequence_length: constant('int32', [value]) });

const ATTENTION: readonly Case[] = [
  ms('Attention', [f(2, 6, 8), f(8, 48), f(48)], { num_heads: 4 }),
  ms('Attention', [f(2, 6, 8), f(8, 48), f(48), int32(2, 2, 6)], { num_heads: 4, unidirectional: 1 }),
  ms('Attention', [f(2, 6, 8), f(8, 48), f(48), from(2, int32(6, 2))], { num_heads: 4 }),
  ms('Attention', [f(2, 6, 8), f(8, 48), f(48), from(1, int32(2, 4))], { num_heads: 4 }),
  ms('Attention', [f(2, 6, 8), f(8, 48), f(48), int32(2, 2, 6, 6), null, f(1, 4, 6, 6)], { num_heads: 4 }),
  ms('Attention', [f(2, 6, 8), f(8, 40), f(40)], { num_heads: 4, qkv_hidden_sizes: [16, 16, 8] }),
  ms('Attention', [f(2, 2, 8), f(8, 48), f(48), null, f(2, 2, 4, 4, 4)], { num_heads: 4, scale: 0.3 }, 2),
  ms('MultiHeadAttention', [f(2, 6, 16), f(2, 4, 16), f(2, 4, 16)], { num_heads: 4 }),
  ms('MultiHeadAttention', [f(2, 6, 16), f(2, 4, 16), f(2, 4, 32)], { num_heads: 4, scale: 0.3 }),
  ms('MultiHeadAttention', [f(2, 6, 16), f(2, 4, 16), f(2, 4, 16), f(48)], { num_heads: 4 }),
  ms('MultiHeadAttention', [f(2, 6, 16), f(2, 6, 16), f(2, 6, 16)], { num_heads: 4, unidirectional: 1 }),
  ms('MultiHeadAttention', [f(2, 6, 16), f(2, 4, 16), f(2, 4, 16), null, int32(2, 2, 4)], { num_heads: 4 }),
  ms('MultiHeadAttention', [f(2, 6, 16), f(2, 4, 16), f(2, 4, 16), null, from(1, int32(4, 2))], { num_heads: 4 }),
  ms('MultiHeadAttention', [f(2, 6, 16), f(2, 4, 16), f(2, 4, 16), null, null, f(1, 4, 6, 4)], { num_heads: 4 }),
  ms('MultiHeadAttention', [f(2, 6, 16), f(2, 4, 4, 4), f(2, 4, 4, 4)], { num_heads: 4 }),
  ms(
    'MultiHeadAttention',
    [f(2, 2, 16), f(2, 2, 16), f(2, 2, 16), null, null, null, f(2, 4, 4, 4), f(2, 4, 4, 4)],
    { num_heads: 4 },
    4,
  ),
  ms('DecoderMaskedMultiHeadAttention', [f(2, 1, 16), f(2, 4, 6, 4), f(2, 4, 6, 4), int32(2, 2, 6)], { num_heads: 4 }),
  ms(
    'DecoderMaskedMultiHeadAttention',
    [f(2, 1, 16), f(2, 1, 16), f(2, 1, 16), null, null, f(2, 4, 6, 4), f(2, 4, 6, 4), exactly(3, 1)],
    { num_heads: 4, past_present_share_buffer: 1 },
    3,
  ),
  ms(
    'QAttention',
    [
      of('uint8', 9, 2, 6, 8),
      of('uint8', 9, 8, 48),
      f(48),
      positive(),
      positive(),
      null,
      of('uint8', 3),
      of('uint8', 3),
    ],
    { num_heads: 4 },
    1,
    1e-3,
  ),
  ms(
    'GroupQueryAttention',
    [f(2, 4, 64), f(2, 4, 32), f(2, 4, 32), null, null, exactly(3, 2)],
    { num_heads: 8, kv_num_heads: 4, ...total(4) },
    3,
  ),
  ms(
    'GroupQueryAttention',
    [f(2, 1, 128), f(2, 1, 32), f(2, 1, 32), f(2, 2, 6, 16), f(2, 2, 6, 16), exactly(4, 2), null, f(8, 8), f(8, 8)],
    { num_heads: 8, kv_num_heads: 2, do_rotary: 1, ...total(5) },
    3,
  ),
  ms(
    'GroupQueryAttention',
    [f(2, 4, 96), null, null, f(2, 4, 4, 8), f(2, 4, 4, 8), exactly(3, 2)],
    { num_heads: 4, kv_num_heads: 4, local_window_size: 2, ...total(4) },
    3,
  ),
  ms(
    'GroupQueryAttention',
    [f(2, 4, 64), null, null, f(2, 2, 4, 8), f(2, 2, 4, 8), exactly(3, 2)],
    { num_heads: 4, kv_num_heads: 2, ...total(4) },
    3,
  ),
  ms(
    'GroupQueryAttention',
    [f(2, 4, 64), f(2, 4, 32), f(2, 4, 32), null, null, exactly(3, 2), null, null, null, null, f(2, 8, 4, 4), f(8)],
    { num_heads: 8, kv_num_heads: 4, smooth_softmax: 1, softcap: 3, ...total(4) },
    3,
  ),
  ms('RotaryEmbedding', [f(2, 6, 32), i(10, 2, 6), f(10, 4), f(10, 4)]),
  ms('RotaryEmbedding', [f(2, 4, 6, 8), i(10, 2, 6), f(10, 4), f(10, 4)], { interleaved: 1 }),
  ms('RotaryEmbedding', [f(2, 6, 32), i(3, 1), f(10, 2), f(10, 2)], { num_heads: 4, rotary_embedding_dim: 4 }),
  ms('MRotaryEmbedding', [f(2, 6, 32), i(10, 3, 2, 6), f(10, 4), f(10, 4)], { num_heads: 4, mrope_section: [2, 1, 1] }),
  ms(
    'LinearAttention',
    [f(2, 4, 32), f(2, 4, 16), f(2, 4, 16), f(2, 2, 8, 8)],
    { q_num_heads: 4, kv_num_heads: 2, update_rule: 'linear' },
    2,
  ),
  ms(
    'LinearAttention',
    [f(2, 4, 16), f(2, 4, 16), f(2, 4, 32), f(2, 4, 4, 8), f(2, 4, 4), positive(2, 4, 4)],
    { q_num_heads: 4, kv_num_heads: 4, update_rule: 'gated_delta' },
    2,
  ),
  ms(
    'LinearAttention',
    [f(2, 4, 8), f(2, 4, 8), f(2, 4, 32), f(2, 4, 4, 8), f(2, 4, 16)],
    { q_num_heads: 2, kv_num_heads: 4, update_rule: 'gated' },
    2,
  ),
  ms('CausalConvWithState', [f(2, 6, 4), f(4, 1, 3), null, f(2, 2, 4)], { channels_last: 1 }, 2),
  ms('CausalConvWithState', [f(2, 4, 6), f(4, 1, 3), f(4), f(2, 4, 2)], { activation: 'silu' }, 2),
];

const NORMALISATIONS: readonly Case[] = [
  ms('SkipLayerNormalization', [wide(2, 4, 6), wide(2, 4, 6), f(6), f(6)], { epsilon: 1e-5 }),
  ms('SkipLayerNormalization', [wide(2, 4, 6), wide(1, 4, 6), f(6), f(6), f(6)]),
  ms('SkipLayerNormalization', [wide(2, 4, 6), wide(4, 6), f(6)], {}, 4),
  ms('SkipSimplifiedLayerNormalization', [wide(2, 4, 6), wide(2, 4, 6), f(6)]),
  ms('SkipSimplifiedLayerNormalization', [wide(4, 6), wide(4, 6), f(6), f(6)], { epsilon: 1e-5 }, 4),
  c('SimplifiedLayerNormalization', [wide(2, 4, 6), f(6)], { epsilon: 1e-5, axis: -1, stash_type: 1 }),
  c('SimplifiedLayerNormalization', [wide(2, 4, 6), f(6)], { epsilon: 1e-3, axis: 2 }, 2),
  ms('GatedRMSNorm', [f(2, 4, 8), f(4), f(2, 4, 8)]),
  ms('EmbedLayerNormalization', [i(8, 2, 4), i(2, 2, 4), f(8, 6), f(4, 6), f(2, 6), f(6), f(6)].map(small), {
    mask_index_type: 0,
  }),
  ms('EmbedLayerNormalization', [i(8, 2, 4), null, f(8, 6), f(6, 6), null, f(6), f(6), i(2, 2, 4)].map(small), {}, 3),
  ms(
    'EmbedLayerNormalization',
    [i(8, 2, 4), i(2, 2, 4), f(8, 6), f(4, 6), f(2, 6), f(6), f(6), null, i(4, 1, 4)].map(small),
    { epsilon: 1e-5, mask_index_type: 0 },
  ),
  ms(
    'QEmbedLayerNormalization',
    [
      ...[int32(8, 2, 4), int32(2, 2, 4), of('uint8', 9, 8, 6), of('uint8', 9, 4, 6), of('uint8', 9, 2, 6)],
      ...[of('uint8', 9, 6), of('uint8', 9, 6), null],
      ...[positive(), positive(), positive(), positive(), positive()],
      ...[of('uint8', 3), of('uint8', 3), of('uint8', 3), of('uint8', 3), of('uint8', 3)],
    ],
    {},
    2,
  ),
  ms('BiasGelu', [f(2, 4, 6), f(6)]),
  ms('FastGelu', [f(2, 4, 6), f(6)]),
  ms('FastGelu', [f(4, 6)]),
  ms('Gelu', [f(4, 6)]),
  ms('QuickGelu', [f(4, 6)], { alpha: 1 }),
  ms('MurmurHash3', [i(100, 4, 6)], { seed: 3 }),
  ms('MurmurHash3', [f(4, 6)], { positive: 0 }),
  ms('GatedAdd', [f(2, 4, 6), f(2, 4, 6), f(2, 4, 1)]),
];

/** Lookups of this family are by int32. */
function small(sample: Sample | null): Sample | null {
  return sample?.dtype === 'int64' ? { ...sample, dtype: 'int32' } : sample;
}

const PRODUCTS: readonly Case[] = [
  ms('FusedMatMul', [f(4, 6), f(6, 8)], { alpha: 2 }),
  ms('FusedMatMul', [f(2, 6, 4), f(2, 8, 6)], { transA: 1, transB: 1, alpha: 0.5 }),
  ms('FusedMatMul', [f(4, 2, 6), f(6, 2, 8)], { transBatchA: 1, transBatchB: 1 }),
  ms('TransposeMatMul', [f(2, 4, 6), f(8, 6)], { transB: 1 }),
  ms('FusedGemm', [f(4, 6), f(8, 6), f(8)], { transB: 1, activation: 'LeakyRelu', activation_alpha: 0.5 }),
  ms('FusedGemm', [f(4, 6), f(6, 8)], { alpha: 0.5, activation: 'Relu' }),
  ms('FusedConv', [f(2, 4, 6, 6), f(8, 4, 3, 3), f(8)], { pads: [1, 1, 1, 1], activation: 'Relu' }),
  ms('FusedConv', [f(2, 8, 6, 6), f(8, 2, 1, 1), f(8), f(2, 8, 6, 6)], { group: 4, activation: 'Relu' }),
  ms('FusedConv', [f(2, 4, 6, 6), f(8, 4, 1, 1)], { activation: 'Clip', activation_params: [-0.5, 1] }),
  ms('MoE', [f(4, 6), f(4, 4), f(4, 8, 6), null, f(4, 6, 8)], { k: 2, activation_type: 'relu' }),
  ms('MoE', [f(2, 4, 6), f(8, 4), f(4, 8, 6), f(4, 8), f(4, 6, 8), f(4, 6)], {
    k: 2,
    activation_type: 'silu',
    normalize_routing_weights: 1,
  }),
  ms('MoE', [f(4, 6), f(4, 4), f(4, 16, 6), f(4, 16), f(4, 6, 8)], {
    k: 2,
    activation_type: 'swiglu',
    swiglu_fusion: 1,
  }),
  ms(
    'QMoE',
    [
      f(4, 32),
      f(4, 4),
      of('uint8', 255, 4, 16, 16),
      positive(4, 16),
      null,
      of('uint8', 255, 4, 32, 8),
      positive(4, 32),
    ],
    { k: 2, activation_type: 'silu', expert_weight_bits: 4 },
    1,
    1e-3,
  ),
];

export const FUSED_CASES: readonly Case[] = [...ATTENTION, ...NORMALISATIONS, ...PRODUCTS];
