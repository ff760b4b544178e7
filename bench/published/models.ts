/**
 * @file Sizes of models that published tables only name, from their published configurations.
 */
import type { ExpertSizes, LatentSizes } from '../../models/language-model.js';

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
}

const NAMED: readonly (readonly [pattern: RegExp, model: NamedModel])[] = [
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
  [
    /gpt.oss.*120b/i,
    {
      layers: 36,
      hidden: 2880,
      heads: 64,
      kvHeads: 8,
      headWidth: 64,
      ffn: 2880,
      vocab: 201088,
      style: 'llama',
      experts: { count: 128, chosen: 4, feedForward: 2880, shared: 0, dense: 0 },
    },
  ],
  [
    /gpt.oss.*20b/i,
    {
      layers: 24,
      hidden: 2880,
      heads: 64,
      kvHeads: 8,
      headWidth: 64,
      ffn: 2880,
      vocab: 201088,
      style: 'llama',
      experts: { count: 32, chosen: 4, feedForward: 2880, shared: 0, dense: 0 },
    },
  ],
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
  [/qwen2.5.*7b/i, { layers: 28, hidden: 3584, heads: 28, kvHeads: 4, ffn: 18944, vocab: 152064, style: 'llama' }],
  [/qwen2.5.*32b/i, { layers: 64, hidden: 5120, heads: 40, kvHeads: 8, ffn: 27648, vocab: 152064, style: 'llama' }],
  [
    /llama.?3.*405b/i,
    { layers: 126, hidden: 16384, heads: 128, kvHeads: 8, ffn: 53248, vocab: 128256, style: 'llama' },
  ],
  [/llama.?3.*70b/i, { layers: 80, hidden: 8192, heads: 64, kvHeads: 8, ffn: 28672, vocab: 128256, style: 'llama' }],
  [/llama.?3.*8b/i, { layers: 32, hidden: 4096, heads: 32, kvHeads: 8, ffn: 14336, vocab: 128256, style: 'llama' }],
];

/** What is known of a name; `hybrid` for models with other layers than a transformer's, or reduced ones. */
export function publishedModel(name: string): NamedModel | 'hybrid' | undefined {
  if (/proxy|vlm|mimo/i.test(name)) return 'hybrid';
  if (/nemotron.?v?3(?!\d)|deepseek.?v4/i.test(name)) return 'hybrid';
  return NAMED.find(([pattern]) => pattern.test(name))?.[1];
}
