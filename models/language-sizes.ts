/**
 * @file Sizes of a language model, and the settings that a family fixes at any size.
 */
import type { StateSpaceSizes } from './state-space.js';

/** One part of a layer: its norm, its computation, and the residual sum. */
export type LayerPart = 'attention' | 'windowed-attention' | 'state-space' | 'feed-forward' | 'experts';

/** The parts of a layer, one after the other. */
export type LayerKind = readonly LayerPart[];

export interface LanguageModelSizes {
  readonly batch: number;
  readonly sequence: number;
  readonly layers: number;
  readonly hidden: number;
  readonly heads: number;
  /** Key and value heads; divides `heads`. */
  readonly keyHeads: number;
  /** Width of one head; hidden / heads in most models. */
  readonly headWidth: number;
  readonly feedForward: number;
  readonly vocabulary: number;
  readonly norm: 'layer' | 'rms';
  readonly positions: 'learned' | 'rotary' | 'none';
  /** Whether a gate multiplies the feed-forward block's inner width (SwiGLU). */
  readonly gated: boolean;
  /** Activation function between the two matmuls of a block without a gate; GELU if left out. */
  readonly activation?: 'squared-relu';
  readonly bias: boolean;
  readonly causal: boolean;
  /** The head reads the transposed embedding table. */
  readonly tied: boolean;
  /** Norms before each part (GPT-2 and later) or after its sum (BERT). */
  readonly normFirst: boolean;
  /** Positions that windowed attention sees, its own among them. */
  readonly window?: number;
  /** A learned score per head that softmax includes beside those of the keys, without a value of its own (attention sinks). */
  readonly sinks?: boolean;
  /** Dropout ratio in training; 0 leaves the operators out. */
  readonly dropout: number;
  readonly experts?: ExpertSizes;
  readonly latent?: LatentSizes;
  /** Kinds of layers in turns; where left out all are attention and a feed-forward block. */
  readonly pattern?: readonly LayerKind[];
  readonly stateSpace?: StateSpaceSizes;
}

/** Attention whose queries, and keys with values, come from narrow latent states (DeepSeek 2024). */
export interface LatentSizes {
  readonly query: number;
  readonly keyValue: number;
  readonly valueWidth: number;
}

export interface ExpertSizes {
  readonly count: number;
  /** Experts per token. */
  readonly chosen: number;
  readonly feedForward: number;
  /** Inner width of experts that see every token; 0 for none. */
  readonly shared: number;
  /** First layers that have a plain feed-forward block. */
  readonly dense: number;
  /** Width that tokens are projected to before experts, and back from after them; the model's if left out. */
  readonly latent?: number;
  /** Whether the router's scores and the experts' matmuls have biases. */
  readonly bias?: boolean;
  /** Largest gate of gated experts, which are then sigmoid(1.702 x) x · (y + 1), with y no further from 0 (GPT-OSS). */
  readonly clamp?: number;
}

/** Settings that a family fixes at any size. */
export type LanguageModelStyle = Pick<
  LanguageModelSizes,
  'norm' | 'positions' | 'gated' | 'bias' | 'causal' | 'tied' | 'normFirst'
>;

export const GPT_STYLE: LanguageModelStyle = {
  norm: 'layer',
  positions: 'learned',
  gated: false,
  bias: true,
  causal: true,
  tied: true,
  normFirst: true,
};

export const LLAMA_STYLE: LanguageModelStyle = {
  ...GPT_STYLE,
  norm: 'rms',
  positions: 'rotary',
  gated: true,
  bias: false,
  tied: false,
};
