/**
 * @file Transformers over tokens at any size: GPT, Llama, BERT and mixtures of experts are settings of one graph. Attention
 * and rotary positions are ONNX's own operators, so that no mask is written out and a sequence may be as long as it likes.
 */
import type { Graph } from '../src/ir/graph.js';
import { dropout, floats, GraphBuilder } from './builder.js';
import { embedding, joinHeads, linear, repeatHeads, splitHeads } from './transformer.js';

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
  readonly positions: 'learned' | 'rotary';
  /** Whether a gate multiplies the feed-forward block's inner width (SwiGLU). */
  readonly gated: boolean;
  readonly bias: boolean;
  readonly causal: boolean;
  /** The head reads the transposed embedding table. */
  readonly tied: boolean;
  /** Norms before each part (GPT-2 and later) or after its sum (BERT). */
  readonly normFirst: boolean;
  /** Share that training drops; 0 leaves the operators out. */
  readonly dropout: number;
  readonly experts?: ExpertSizes;
  readonly latent?: LatentSizes;
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
}

/** What a family settles, whatever its sizes. */
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

/** ids [batch, sequence] int64 → logits [batch, sequence, vocabulary]. */
export function languageModel(
  name: string,
  sizes: LanguageModelSizes,
  seed: number,
  values: 'random' | 'absent' = 'random',
): Graph {
  const { batch, sequence, hidden, vocabulary, positions, tied } = sizes;
  const builder = new GraphBuilder(name, seed, values);
  const ids = builder.input('ids', 'int64', [batch, sequence]);
  const table = builder.within('embed', () => builder.parameter('weight', [vocabulary, hidden], { deviation: 0.2 }));
  let state = builder.within('embed', () => embedding(builder, ids, table));
  if (positions === 'learned') {
    state = builder.within('position', () =>
      builder.operator('Add', [state, builder.parameter('weight', [1, sequence, hidden], { deviation: 0.1 })]),
    );
  }
  const angles = positions === 'rotary' ? builder.within('rotary', () => rotaryTables(builder, sizes)) : null;
  state = dropped(builder, state, sizes);
  if (!sizes.normFirst) state = normalised(builder, 'norm', state, sizes);
  for (let layer = 0; layer < sizes.layers; layer++) {
    state = builder.within(`layers.${layer}`, () => block(builder, state, sizes, angles, layer));
  }
  if (sizes.normFirst) state = normalised(builder, 'norm', state, sizes);
  const logits = tied
    ? builder.within('head', () =>
        builder.operator('MatMul', [state, builder.operator('Transpose', [table], { perm: [1, 0] })]),
      )
    : linear(builder, 'head', state, vocabulary);
  builder.output('logits', logits);
  return builder.build();
}

/** Cosine and sine of every position's angles, as RotaryEmbedding takes them: [batch, sequence, head width / 2]. */
interface RotaryTables {
  readonly cosine: string;
  readonly sine: string;
}

function rotaryTables(builder: GraphBuilder, { batch, sequence, headWidth }: LanguageModelSizes): RotaryTables {
  const half = Math.floor(headWidth / 2);
  const table = (name: string, of: (angle: number) => number) => {
    const values = () =>
      Array.from({ length: sequence * half }, (_, index) =>
        of(Math.floor(index / half) / 10000 ** ((index % half) / half)),
      );
    const rows = builder.table(name, [1, sequence, half], values);
    return builder.operator('Expand', [rows], { shape: [batch, sequence, half] });
  };
  return { cosine: table('cosine', Math.cos), sine: table('sine', Math.sin) };
}

function block(
  builder: GraphBuilder,
  input: string,
  sizes: LanguageModelSizes,
  angles: RotaryTables | null,
  layer: number,
): string {
  const { normFirst, experts } = sizes;
  const part = (state: string, norm: string, body: (input: string) => string): string => {
    const inner = body(normFirst ? normalised(builder, norm, state, sizes) : state);
    const sum = builder.operator('Add', [state, dropped(builder, inner, sizes)]);
    return normFirst ? sum : normalised(builder, norm, sum, sizes);
  };
  const attended = part(input, 'attention_norm', (state) =>
    builder.within('attention', () => selfAttention(builder, state, sizes, angles)),
  );
  return part(attended, 'feed_forward_norm', (state) =>
    experts && layer >= experts.dense
      ? builder.within('experts', () => expertBlock(builder, state, sizes, experts))
      : builder.within('feed_forward', () => feedForward(builder, state, sizes, sizes.feedForward)),
  );
}

function selfAttention(
  builder: GraphBuilder,
  input: string,
  sizes: LanguageModelSizes,
  angles: RotaryTables | null,
): string {
  const { heads, keyHeads, headWidth, hidden, bias, causal } = sizes;
  const widths = [heads, keyHeads, keyHeads].map((count) => count * headWidth);
  // One fused projection for parts that are equal: all three, or keys and values.
  const fused = (name: string, parts: readonly number[]) => {
    const joined = linear(
      builder,
      name,
      input,
      parts.reduce((sum, width) => sum + width, 0),
      { bias },
    );
    return builder.operators('Split', [joined], { axis: 2, split: parts }, parts.length);
  };
  const [query = '', key = '', value = ''] = sizes.latent
    ? latentProjections(builder, input, sizes, sizes.latent)
    : heads === keyHeads
      ? fused('qkv', widths)
      : [linear(builder, 'query', input, widths[0] ?? 0, { bias }), ...fused('key_value', widths.slice(1))];
  const turned = (states: string, count: number) =>
    angles
      ? builder.operator('RotaryEmbedding', [states, angles.cosine, angles.sine], {
          num_heads: count,
          interleaved: 0,
          rotary_embedding_dim: 0,
        })
      : states;
  const attended =
    sizes.dropout > 0
      ? attentionInParts(builder, [turned(query, heads), turned(key, keyHeads), value], sizes)
      : builder.operator('Attention', [turned(query, heads), turned(key, keyHeads), value], {
          q_num_heads: heads,
          kv_num_heads: keyHeads,
          is_causal: causal ? 1 : 0,
        });
  return linear(builder, 'output', attended, hidden, { bias });
}

/** Products, mask and softmax one by one, with dropout on the probabilities, as before fused kernels. */
function attentionInParts(
  builder: GraphBuilder,
  [query = '', key = '', value = '']: readonly string[],
  sizes: LanguageModelSizes,
): string {
  const { heads, keyHeads, headWidth, sequence, causal } = sizes;
  const apart = (states: string, count: number) =>
    repeatHeads(builder, splitHeads(builder, states, count), heads / count);
  const turned = builder.operator('Transpose', [apart(key, keyHeads)], { perm: [0, 1, 3, 2] });
  const scores = builder.operator('MatMul', [apart(query, heads), turned]);
  const scaled = builder.operator('Mul', [scores, builder.constant('scale', floats([1 / Math.sqrt(headWidth)]))]);
  const masked = causal
    ? builder.operator('Add', [scaled, builder.operator('Trilu', [ahead(builder, sequence)], { upper: 1, k: 1 })])
    : scaled;
  const shares = dropped(builder, builder.operator('Softmax', [masked], { axis: -1 }), sizes);
  return joinHeads(builder, builder.operator('MatMul', [shares, apart(value, keyHeads)]));
}

/** What scores of later keys are lowered by, for Trilu to keep above the diagonal; made by an operator, whatever the length. */
function ahead(builder: GraphBuilder, sequence: number): string {
  return builder.operator('ConstantOfShape', [], { shape: [sequence, sequence], value: floats([-1e9], [1]) });
}

function latentProjections(
  builder: GraphBuilder,
  input: string,
  { heads, headWidth }: LanguageModelSizes,
  { query, keyValue, valueWidth }: LatentSizes,
): readonly string[] {
  const narrow = (name: string, width: number, out: number) =>
    linear(builder, `${name}_up`, linear(builder, `${name}_down`, input, width), out);
  const both = narrow('key_value', keyValue, heads * (headWidth + valueWidth));
  const parts = [heads * headWidth, heads * valueWidth];
  const split = builder.operators('Split', [both], { axis: 2, split: parts }, 2);
  return [narrow('query', query, heads * headWidth), ...split];
}

function feedForward(builder: GraphBuilder, input: string, { hidden, gated, bias }: LanguageModelSizes, width: number) {
  const wide = linear(builder, 'up', input, gated ? 2 * width : width, { bias });
  const inner = gated ? gate(builder, wide, width) : builder.operator('Gelu', [wide], { approximate: 'tanh' });
  return linear(builder, 'down', inner, hidden, { bias });
}

/** SwiGLU of a projection that holds gate and value side by side: x · sigmoid(x) · y. */
function gate(builder: GraphBuilder, wide: string, width: number): string {
  const axis = builder.shapeOf(wide).length - 1;
  const [open = '', value = ''] = builder.operators('Split', [wide], { axis, split: [width, width] }, 2);
  return builder.operator('Mul', [builder.operator('Swish', [open], { alpha: 1 }), value]);
}

/**
 * Each expert takes the tokens that score highest with it, tokens · chosen / count of them (Zhou et al. 2022, expert choice):
 * shapes are static and the load is even, which is what balanced routing of `chosen` experts per token costs too.
 */
function expertBlock(builder: GraphBuilder, input: string, sizes: LanguageModelSizes, experts: ExpertSizes): string {
  const { hidden, gated } = sizes;
  const { count, chosen, feedForward: width, shared } = experts;
  const [batch = 1, sequence = 1] = builder.shapeOf(input);
  const tokens = batch * sequence;
  const taken = Math.max(1, Math.floor((tokens * chosen) / count));
  const flat = builder.operator('Reshape', [input], { shape: [tokens, hidden], allowzero: 0 });
  const scores = builder.operator('Softmax', [linear(builder, 'router', flat, count)], { axis: -1 });
  const perExpert = builder.operator('Transpose', [scores], { perm: [1, 0] });
  const [weight = '', places = ''] = builder.operators(
    'TopK',
    [perExpert],
    { k: [taken], axis: -1, largest: 1, sorted: 1 },
    2,
  );
  const rows = builder.operator('Gather', [flat, places], { axis: 0 });
  const product = (name: string, states: string, from: number, to: number) =>
    builder.within(name, () =>
      builder.operator('MatMul', [
        states,
        builder.parameter('weight', [count, from, to], { deviation: 1 / Math.sqrt(from) }),
      ]),
    );
  const wide = product('up', rows, hidden, gated ? 2 * width : width);
  const inner = gated ? gate(builder, wide, width) : builder.operator('Gelu', [wide], { approximate: 'tanh' });
  const down = product('down', inner, width, hidden);
  const scaled = builder.operator('Mul', [down, builder.operator('Unsqueeze', [weight], { axes: [2] })]);
  const nothing = builder.operator('Mul', [flat, builder.constant('zero', floats([0]))]);
  const indices = builder.operator('Unsqueeze', [places], { axes: [2] });
  const summed = builder.operator('ScatterND', [nothing, indices, scaled], { reduction: 'add' });
  const routed = builder.operator('Reshape', [summed], { shape: [batch, sequence, hidden], allowzero: 0 });
  if (shared === 0) return routed;
  const always = builder.within('shared', () => feedForward(builder, input, sizes, shared));
  return builder.operator('Add', [routed, always]);
}

function normalised(builder: GraphBuilder, name: string, input: string, { norm }: LanguageModelSizes): string {
  return builder.within(name, () => {
    const width = builder.shapeOf(input).at(-1) ?? 1;
    const scale = builder.parameter('weight', [width], { mean: 1, deviation: 0.02 });
    if (norm === 'rms') return builder.operator('RMSNormalization', [input, scale], { axis: -1, epsilon: 1e-5 });
    const shift = builder.parameter('bias', [width], { deviation: 0.02 });
    return builder.operator('LayerNormalization', [input, scale, shift], { axis: -1, epsilon: 1e-5 });
  });
}

/** Dropout where it is asked for, as exporters write it for evaluation: training makes it draw. */
function dropped(builder: GraphBuilder, input: string, { dropout: ratio }: LanguageModelSizes): string {
  return ratio === 0 ? input : dropout(builder, input, ratio);
}
