/**
 * @file Samples of signals, regions of images, classical machine learning, and further forms of attention.
 */
import { constant } from '../../../../src/ir/ops/constants.js';
import { b, type Case, c, f, i, ml, of, type Sample } from '../sample.js';

const from = (low: number, sample: Sample): Sample => ({ ...sample, low });
const int = (value: number) => constant('int64', [value]);

const SIGNALS: readonly Case[] = [
  c('DFT', [f(2, 8, 1)], { axis: 1 }),
  c('DFT', [f(2, 8, 4, 2)], { axis: -2, dft_length: 6, inverse: 1 }),
  c('DFT', [f(2, 8, 1)], { onesided: 1 }),
  c('STFT', [f(2, 16, 1), null, f(8)], { frame_step: int(4), onesided: 1 }),
  c('STFT', [f(2, 16, 1)], { frame_step: int(4), frame_length: int(8), onesided: 0 }),
  ...['BlackmanWindow', 'HammingWindow', 'HannWindow'].map((op) => c(op, [], { length: int(8) })),
  c('MelWeightMatrix', [], {
    num_mel_bins: int(4),
    dft_length: int(16),
    sample_rate: int(8000),
    lower_edge_hertz: constant('float32', [0]),
    upper_edge_hertz: constant('float32', [4000]),
  }),
  c('ReverseSequence', [f(4, 2, 6), from(1, i(5, 2))], { time_axis: 0, batch_axis: 1 }),
  c('Det', [f(2, 4, 4)]),
];

const REGIONS: readonly Case[] = [
  c('RoiAlign', [f(2, 4, 8, 8), from(0, of('float32', 8, 4, 4)), i(2, 4)], {
    output_height: 2,
    output_width: 2,
    sampling_ratio: 2,
  }),
  c('RoiAlign', [f(2, 4, 8, 8), from(0, of('float32', 8, 4, 4)), i(2, 4)], { mode: 'max', sampling_ratio: 2 }),
  c('MaxRoiPool', [f(2, 4, 8, 8), of('float32', 2, 4, 5)], { pooled_shape: [2, 2] }),
  c('AffineGrid', [f(2, 2, 3)], { size: [2, 4, 4, 6] }),
  c('AffineGrid', [f(2, 3, 4)], { size: [2, 4, 2, 4, 6], align_corners: 1 }),
  c('DeformConv', [f(2, 4, 6, 6), f(8, 4, 2, 2), f(2, 8, 5, 5), f(8), f(2, 4, 5, 5)]),
  c('DeformConv', [f(2, 4, 6, 6), f(8, 4, 2, 2), f(2, 16, 5, 5)], { offset_group: 2 }),
  c('DeformConv', [f(2, 8, 6, 6), f(8, 2, 2, 2), f(2, 8, 5, 5)], { group: 4 }),
  c('DeformConv', [f(2, 8, 6, 6), f(8, 4, 2, 2), f(2, 16, 5, 5), null, f(2, 8, 5, 5)], { group: 2, offset_group: 2 }),
  c('DeformConv', [f(2, 8, 6, 6), f(8, 4, 2, 2), f(2, 32, 5, 5)], { group: 2, offset_group: 4 }),
  c('Col2Im', [f(2, 16, 9)], { image_shape: [4, 4], block_shape: [2, 2] }),
  c('MaxUnpool', [f(4, 1, 2, 2), i(16, 4, 1, 2, 2)].map(spreadPlaces), { kernel_shape: [2, 2], strides: [2, 2] }),
  c('MaxPool', [f(4, 2, 8)], { kernel_shape: [2], strides: [2] }, 2),
  c('CenterCropPad', [f(4, 8, 6)], { shape: [4, 10], axes: [1, 2] }),
  c('GlobalLpPool', [f(2, 4, 6, 2)]),
  c('GlobalLpPool', [f(2, 4, 6)], { p: 3 }),
  c('LpNormalization', [f(4, 6)], { p: 1, axis: 0 }),
];

const CLASSICAL: readonly Case[] = [
  c('TfIdfVectorizer', [i(6, 4, 6)], {
    mode: 'TF',
    min_gram_length: 2,
    max_gram_length: 2,
    max_skip_count: 0,
    ngram_counts: [0, 0],
    ngram_indexes: [0, 1],
    pool_int64s: [1, 2, 3, 4],
  }),
  ml('Binarizer', [f(4, 6)], { threshold: 0 }),
  ml('LabelEncoder', [i(4, 4, 6)], { keys_int64s: [0, 1, 3], values_floats: [0.5, 2, -1], default_float: 7 }),
  ml('LabelEncoder', [of('float32', 3, 4, 6)], { keys_floats: [0, 1], values_int64s: [5, 9], default_int64: -1 }),
  ml('LabelEncoder', [i(4, 4, 6)], {
    keys_tensor: constant('int64', [2, 3], [2]),
    values_tensor: constant('float64', [0.5, 2], [2]),
    default_tensor: constant('float64', [-1], [1]),
  }),
  ml('Scaler', [f(4, 6)], { offset: [0, 1, 2, 3, 4, 5], scale: [1, 2, 3, 4, 5, 6] }),
  ml('Imputer', [f(4, 6)], { imputed_value_floats: [1, 2, 3, 4, 5, 6], replaced_value_float: 0 }),
  ml('Normalizer', [f(4, 6)], { norm: 'L2' }),
  ml('LinearRegressor', [f(4, 2)], { coefficients: [1, 2, 3, 4, 5, 6], intercepts: [1, 2, 3], targets: 3 }),
  ...[
    { coefficients: [1, 2, 3, -4, 5, -6], intercepts: [1, 2, 3], classlabels_ints: [4, 7, 9] },
    { coefficients: [1, -2], intercepts: [0.5], classlabels_ints: [0, 1], post_transform: 'LOGISTIC' },
  ].map((attributes) => ml('LinearClassifier', [f(4, 2)], attributes, 2)),
  ml('ArrayFeatureExtractor', [f(4, 6), i(6, 1, 3)]),
];

const ATTENTION: readonly Case[] = [
  c('Attention', [f(2, 4, 6, 8), f(2, 2, 6, 8), f(2, 2, 6, 8), null, null, null, from(1, i(6, 2))]),
  ...[0, 1, 2, 3].map((mode) =>
    c(
      'Attention',
      [f(2, 4, 6, 8), f(2, 2, 4, 8), f(2, 2, 4, 8), f(6, 4)],
      { qk_matmul_output_mode: mode, softcap: 2 },
      4,
    ),
  ),
  c(
    'Attention',
    [f(2, 6, 32), f(2, 4, 16), f(2, 4, 16), b(2, 1, 6, 6), f(2, 2, 2, 8), f(2, 2, 2, 8)],
    { q_num_heads: 4, kv_num_heads: 2, is_causal: 1 },
    3,
  ),
  c('RotaryEmbedding', [f(2, 4, 6, 8), f(2, 6, 2), f(2, 6, 2)], { rotary_embedding_dim: 4 }),
  c('RotaryEmbedding', [f(2, 6, 32), f(10, 4), f(10, 4), i(10, 2, 6)], { num_heads: 4, interleaved: 1 }),
];

/** Places of one image each: sample n's are in its own sixteen. */
function spreadPlaces(sample: Sample): Sample {
  return sample.dtype === 'int64' ? { ...sample, step: 16 } : sample;
}

export const SIGNAL_CASES: readonly Case[] = [...SIGNALS, ...REGIONS, ...CLASSICAL, ...ATTENTION];
