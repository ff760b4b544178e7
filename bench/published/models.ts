/**
 * @file Sizes of models that published tables only name, from their published configurations.
 */
import type { ExpertSizes, LanguageModelSizes, LatentSizes } from '../../models/language-sizes.js';
import { layersOfLetters } from '../../models/layer-kinds.js';

export interface NamedModel {
  readonly layers: number;
  readonly hidden: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headWidth?: number;
  readonly ffn: number;
  readonly vocab: number;
  readonly style: 'gpt' | 'llama';
  readonly experts?: ExpertSizes;
  readonly latent?: LatentSizes;
  /** Settings of its layers that add to or replace those of a transformer. */
  readonly also?: Partial<LanguageModelSizes>;
  /** Tokens beyond the next that training predicts, each by one more layer of attention and experts. */
  readonly predictions?: number;
}

/** Nemotron 3: Mamba-2, attention and experts in turns, experts of the larger ones in a latent width. */
function nemotron3(
  pattern: string,
  sizes: Pick<NamedModel, 'hidden' | 'heads' | 'ffn' | 'predictions'>,
  experts: Omit<ExpertSizes, 'dense'>,
): NamedModel {
  const kinds = layersOfLetters(pattern) ?? [];
  const heads = sizes.hidden === 2688 ? 64 : (2 * sizes.hidden) / 64;
  return {
    ...{ layers: kinds.length, kvHeads: 2, headWidth: 128, vocab: 131072, style: 'llama', ...sizes },
    experts: { ...experts, dense: 0 },
    also: {
      ...{ pattern: kinds, positions: 'none', gated: false, activation: 'squared-relu' },
      stateSpace: { heads, headWidth: 64, state: 128, groups: 8, kernel: 4, chunk: 128 },
    },
  };
}

/** Nemotron 4: squared ReLU, rotary positions, no bias. */
function nemotron4(layers: number, hidden: number, heads: number): NamedModel {
  return {
    ...{ layers, hidden, heads, kvHeads: 8, ffn: 4 * hidden, vocab: 256000, style: 'llama' },
    also: { gated: false, norm: 'layer' },
  };
}

/** GPT-OSS: attention sinks, windows of 128 in every second layer, experts with biases and a clamp. */
function gptOss(layers: number, count: number): NamedModel {
  return {
    ...{ layers, hidden: 2880, heads: 64, kvHeads: 8, headWidth: 64, ffn: 2880, vocab: 201088, style: 'llama' },
    experts: { count, chosen: 4, feedForward: 2880, shared: 0, dense: 0, bias: true, clamp: 7 },
    also: {
      ...{ bias: true, sinks: true, window: 128 },
      pattern: [
        ['windowed-attention', 'experts'],
        ['attention', 'experts'],
      ],
    },
  };
}

const NANO_PATTERN = 'MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME';
const SUPER_PATTERN = 'MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME';
/** 12 of 108 layers are attention. */
const ULTRA_PATTERN = 'MEMEMEM*E'.repeat(12);
const NANO_EXPERTS = { count: 128, chosen: 6, feedForward: 1856, shared: 3712 };

const LLAMA_4: NamedModel = {
  ...{ layers: 48, hidden: 5120, heads: 40, kvHeads: 8, headWidth: 128, ffn: 16384, vocab: 202048 },
  style: 'llama',
};

const NAMED: readonly (readonly [pattern: RegExp, model: NamedModel])[] = [
  // Lightning is Nano, trained to predict two tokens more.
  [
    /nemotron.?3.?5.?lightning/i,
    nemotron3(NANO_PATTERN, { hidden: 2688, heads: 32, ffn: 1856, predictions: 2 }, NANO_EXPERTS),
  ],
  [/nemotron.?v?3.?nano/i, nemotron3(NANO_PATTERN, { hidden: 2688, heads: 32, ffn: 1856 }, NANO_EXPERTS)],
  [
    /nemotron.?v?3.?super/i,
    nemotron3(
      SUPER_PATTERN,
      { hidden: 4096, heads: 32, ffn: 2688, predictions: 2 },
      { count: 512, chosen: 22, feedForward: 2688, shared: 5376, latent: 1024 },
    ),
  ],
  [
    /nemotron.?v?3.?ultra/i,
    nemotron3(
      ULTRA_PATTERN,
      { hidden: 8192, heads: 64, ffn: 5120, predictions: 2 },
      { count: 512, chosen: 22, feedForward: 5120, shared: 10240, latent: 2048 },
    ),
  ],
  [
    /deepseek.?v3/i,
    {
      layers: 61,
      hidden: 7168,
      heads: 128,
      kvHeads: 128,
      headWidth: 192,
      latent: { query: 1536, keyValue: 512, valueWidth: 128 },
      ffn: 18432,
      vocab: 129280,
      style: 'llama',
      experts: { count: 256, chosen: 8, feedForward: 2048, shared: 2048, dense: 3 },
    },
  ],
  [
    /kimi.?k2/i,
    {
      layers: 61,
      hidden: 7168,
      heads: 64,
      kvHeads: 64,
      headWidth: 192,
      latent: { query: 1536, keyValue: 512, valueWidth: 128 },
      ffn: 18432,
      vocab: 163840,
      style: 'llama',
      experts: { count: 384, chosen: 8, feedForward: 2048, shared: 2048, dense: 1 },
    },
  ],
  [
    /qwen3.*235b/i,
    {
      layers: 94,
      hidden: 4096,
      heads: 64,
      kvHeads: 4,
      headWidth: 128,
      ffn: 12288,
      vocab: 151936,
      style: 'llama',
      experts: { count: 128, chosen: 8, feedForward: 1536, shared: 0, dense: 0 },
    },
  ],
  [
    /qwen3.*30b/i,
    {
      layers: 48,
      hidden: 2048,
      heads: 32,
      kvHeads: 4,
      headWidth: 128,
      ffn: 6144,
      vocab: 151936,
      style: 'llama',
      experts: { count: 128, chosen: 8, feedForward: 768, shared: 0, dense: 0 },
    },
  ],
  [/gpt.oss.*120b/i, gptOss(36, 128)],
  [/gpt.oss.*20b/i, gptOss(24, 32)],
  [
    /mixtral.*8x7b/i,
    {
      layers: 32,
      hidden: 4096,
      heads: 32,
      kvHeads: 8,
      ffn: 14336,
      vocab: 32000,
      style: 'llama',
      experts: { count: 8, chosen: 2, feedForward: 14336, shared: 0, dense: 0 },
    },
  ],
  [
    /mixtral.*8x22b/i,
    {
      layers: 56,
      hidden: 6144,
      heads: 48,
      kvHeads: 8,
      ffn: 16384,
      vocab: 32768,
      style: 'llama',
      experts: { count: 8, chosen: 2, feedForward: 16384, shared: 0, dense: 0 },
    },
  ],
  [
    /deepseek.?v2(?!.*lite)/i,
    {
      layers: 60,
      hidden: 5120,
      heads: 128,
      kvHeads: 128,
      headWidth: 192,
      latent: { query: 1536, keyValue: 512, valueWidth: 128 },
      ffn: 12288,
      vocab: 102400,
      style: 'llama',
      experts: { count: 160, chosen: 6, feedForward: 1536, shared: 3072, dense: 1 },
    },
  ],
  [/llama.?4.*scout/i, { ...LLAMA_4, experts: { count: 16, chosen: 1, feedForward: 8192, shared: 8192, dense: 0 } }],
  // Every second layer is dense.
  [
    /llama.?4.*maverick/i,
    { ...LLAMA_4, experts: { count: 128, chosen: 1, feedForward: 8192, shared: 8192, dense: 24 } },
  ],
  [
    /qwen3.*32b/i,
    {
      ...{ layers: 64, hidden: 5120, heads: 64, kvHeads: 8, headWidth: 128, ffn: 25600, vocab: 151936 },
      style: 'llama',
    },
  ],
  [
    /qwen3.*8b/i,
    {
      ...{ layers: 36, hidden: 4096, heads: 32, kvHeads: 8, headWidth: 128, ffn: 12288, vocab: 151936 },
      style: 'llama',
    },
  ],
  [/qwen2.5.*72b/i, { layers: 80, hidden: 8192, heads: 64, kvHeads: 8, ffn: 29568, vocab: 152064, style: 'llama' }],
  [/qwen2.5.*7b/i, { layers: 28, hidden: 3584, heads: 28, kvHeads: 4, ffn: 18944, vocab: 152064, style: 'llama' }],
  [/qwen2.5.*32b/i, { layers: 64, hidden: 5120, heads: 40, kvHeads: 8, ffn: 27648, vocab: 152064, style: 'llama' }],
  [
    /llama.?3.*405b/i,
    { layers: 126, hidden: 16384, heads: 128, kvHeads: 8, ffn: 53248, vocab: 128256, style: 'llama' },
  ],
  [/llama.?3.*70b/i, { layers: 80, hidden: 8192, heads: 64, kvHeads: 8, ffn: 28672, vocab: 128256, style: 'llama' }],
  [/llama.?3.*8b/i, { layers: 32, hidden: 4096, heads: 32, kvHeads: 8, ffn: 14336, vocab: 128256, style: 'llama' }],
  [/llama.?3\.2.*3b/i, { layers: 28, hidden: 3072, heads: 24, kvHeads: 8, ffn: 8192, vocab: 128256, style: 'llama' }],
  [/llama.?3\.2.*1b/i, { layers: 16, hidden: 2048, heads: 32, kvHeads: 8, ffn: 8192, vocab: 128256, style: 'llama' }],
  [/llama.?2.*70b/i, { layers: 80, hidden: 8192, heads: 64, kvHeads: 8, ffn: 28672, vocab: 32000, style: 'llama' }],
  [/llama.*65b/i, { layers: 80, hidden: 8192, heads: 64, kvHeads: 64, ffn: 22016, vocab: 32000, style: 'llama' }],
  [/llama.*13b/i, { layers: 40, hidden: 5120, heads: 40, kvHeads: 40, ffn: 13824, vocab: 32000, style: 'llama' }],
  [/llama.*7b/i, { layers: 32, hidden: 4096, heads: 32, kvHeads: 32, ffn: 11008, vocab: 32000, style: 'llama' }],
  [/tiny.?llama/i, { layers: 22, hidden: 2048, heads: 32, kvHeads: 4, ffn: 5632, vocab: 32000, style: 'llama' }],
  [/\byi\b.*34b/i, { layers: 60, hidden: 7168, heads: 56, kvHeads: 8, ffn: 20480, vocab: 64000, style: 'llama' }],
  [/internlm.?7b/i, { layers: 32, hidden: 4096, heads: 32, kvHeads: 32, ffn: 11008, vocab: 103168, style: 'llama' }],
  [
    /grok.?1/i,
    {
      ...{ layers: 64, hidden: 6144, heads: 48, kvHeads: 8, headWidth: 128, ffn: 32768, vocab: 131072, style: 'llama' },
      experts: { count: 8, chosen: 2, feedForward: 32768, shared: 0, dense: 0 },
    },
  ],
  [/nemotron.?4.*15b|nemotron.?15b/i, nemotron4(32, 6144, 48)],
  [/nemotron.?4.*340b|nemotron.?340b/i, nemotron4(96, 18432, 96)],
  [/neox.?20b/i, { layers: 44, hidden: 6144, heads: 64, kvHeads: 64, ffn: 24576, vocab: 50432, style: 'gpt' }],
  [/mistral.*7b/i, { layers: 32, hidden: 4096, heads: 32, kvHeads: 8, ffn: 14336, vocab: 32000, style: 'llama' }],
  [/gpt.?3.*175b/i, { layers: 96, hidden: 12288, heads: 96, kvHeads: 96, ffn: 49152, vocab: 51200, style: 'gpt' }],
  [/bloom.*176b/i, { layers: 70, hidden: 14336, heads: 112, kvHeads: 112, ffn: 57344, vocab: 250880, style: 'gpt' }],
  [/opt.*175b/i, { layers: 96, hidden: 12288, heads: 96, kvHeads: 96, ffn: 49152, vocab: 50272, style: 'gpt' }],
  [
    /mt.?nlg|turing.*530b/i,
    { layers: 105, hidden: 20480, heads: 128, kvHeads: 128, ffn: 81920, vocab: 51200, style: 'gpt' },
  ],
];

/** The model of this name; a string states why its layers cannot be generated. */
export function publishedModel(name: string): NamedModel | string | undefined {
  return (
    NOT_GENERATED.find(([pattern]) => pattern.test(name))?.[1] ?? NAMED.find(([pattern]) => pattern.test(name))?.[1]
  );
}

const NOT_GENERATED: readonly (readonly [pattern: RegExp, why: string])[] = [
  [/proxy|no_load_optim/i, 'a reduced model whose layers are not public'],
  [/vlm|mimo/i, 'layers for images, which are not described'],
  [/deepseek.?v4/i, 'layers that are not generated: compressed sparse attention'],
  [/qwen3.?next/i, 'layers that are not generated: linear attention'],
  [/nemotron.?h\b/i, 'layers that are not generated: a state-space model that is not described'],
];
