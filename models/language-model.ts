/**
 * @file Transformers over tokens at any size: GPT, Llama, BERT and mixtures of experts are settings of one graph. Attention
 * and rotary positions are ONNX's own operators, so that no mask is stored and a sequence may have any length.
 */
import type { Graph } from '../src/ir/graph.js';
import { constant } from '../src/ir/ops/constants.js';
import { dropout, floats, GraphBuilder } from './builder.js';
import { expertBlock, feedForward } from './feed-forward.js';
import type { LanguageModelSizes, LatentSizes, LayerKind, LayerPart } from './language-sizes.js';
import { layerKinds } from './layer-kinds.js';
import { stateSpace } from './state-space.js';
import { embedding, joinHeads, linear, repeatHeads, splitHeads } from './transformer.js';

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
  for (const [layer, kind] of layerKinds(sizes).entries()) {
    state = builder.within(`layers.${layer}`, () => block(builder, state, sizes, angles, kind));
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
  kind: LayerKind,
): string {
  return kind.reduce((state, part) => {
    const norm = `${NORMS[part]}_norm`;
    const inner = mixed(
      builder,
      sizes.normFirst ? normalised(builder, norm, state, sizes) : state,
      sizes,
      angles,
      part,
    );
    const sum = builder.operator('Add', [state, dropped(builder, inner, sizes)]);
    return sizes.normFirst ? sum : normalised(builder, norm, sum, sizes);
  }, input);
}

/** Names of norms, by the part that they belong to. */
const NORMS: Readonly<Record<LayerPart, string>> = {
  attention: 'attention',
  'windowed-attention': 'attention',
  'state-space': 'state_space',
  'feed-forward': 'feed_forward',
  experts: 'feed_forward',
};

/** The result of a part for its normalised input. @throws Error if the sizes that it needs are not given */
function mixed(
  builder: GraphBuilder,
  state: string,
  sizes: LanguageModelSizes,
  angles: RotaryTables | null,
  part: LayerPart,
): string {
  const { experts, stateSpace: scanned } = sizes;
  if (part === 'attention' || part === 'windowed-attention') {
    const window = part === 'attention' ? null : (sizes.window ?? null);
    return builder.within('attention', () => selfAttention(builder, state, sizes, angles, window));
  }
  if (part === 'feed-forward')
    return builder.within('feed_forward', () => feedForward(builder, state, sizes, sizes.feedForward));
  if (part === 'experts' && experts)
    return builder.within('experts', () => expertBlock(builder, state, sizes, experts));
  if (part === 'state-space' && scanned)
    return builder.within('state_space', () => stateSpace(builder, state, scanned));
  throw new Error(`a layer of ${part} without its sizes`);
}

function selfAttention(
  builder: GraphBuilder,
  input: string,
  sizes: LanguageModelSizes,
  angles: RotaryTables | null,
  window: number | null,
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
    sizes.window !== undefined || sizes.sinks
      ? attentionOverWindow(builder, [turned(query, heads), turned(key, keyHeads), value], sizes, window)
      : sizes.dropout > 0
        ? attentionInParts(builder, [turned(query, heads), turned(key, keyHeads), value], sizes)
        : builder.operator('Attention', [turned(query, heads), turned(key, keyHeads), value], {
            q_num_heads: heads,
            kv_num_heads: keyHeads,
            is_causal: causal ? 1 : 0,
          });
  return linear(builder, 'output', attended, hidden, { bias });
}

/**
 * Causal attention as ONNX Runtime's own operator, which supports windows and sinks; `window` null attends to all positions
 * before.
 */
function attentionOverWindow(
  builder: GraphBuilder,
  [query = '', key = '', value = '']: readonly string[],
  { batch, sequence, heads, keyHeads, sinks }: LanguageModelSizes,
  window: number | null,
): string {
  const last = builder.constant('last_position', constant('int32', [sequence - 1], [1]));
  const lengths = builder.operator('Expand', [last], { shape: [batch] });
  const sink = sinks ? builder.parameter('sinks', [heads], { deviation: 0.5 }) : null;
  const inputs = [query, key, value, null, null, lengths, null, null, null, null, null, sink];
  const attributes = {
    num_heads: heads,
    kv_num_heads: keyHeads,
    local_window_size: window ?? -1,
    total_sequence_length: constant('int32', [sequence], []),
  };
  const [attended = ''] = builder.operators(
    'GroupQueryAttention',
    sinks ? inputs : inputs.slice(0, 6),
    attributes,
    3,
    'com.microsoft',
  );
  return attended;
}

/** Matmuls, mask and softmax as separate operators, with dropout on the probabilities, as before fused kernels. */
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

/** The causal mask before Trilu, which keeps its part above the diagonal (later keys); an operator makes it for any length. */
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

function normalised(builder: GraphBuilder, name: string, input: string, { norm }: LanguageModelSizes): string {
  return builder.within(name, () => {
    const width = builder.shapeOf(input).at(-1) ?? 1;
    const scale = builder.parameter('weight', [width], { mean: 1, deviation: 0.02 });
    if (norm === 'rms') return builder.operator('RMSNormalization', [input, scale], { axis: -1, epsilon: 1e-5 });
    const shift = builder.parameter('bias', [width], { deviation: 0.02 });
    return builder.operator('LayerNormalization', [input, scale, shift], { axis: -1, epsilon: 1e-5 });
  });
}

/** Dropout if the ratio is not 0, as exporters write it for evaluation: training makes it active. */
function dropped(builder: GraphBuilder, input: string, { dropout: ratio }: LanguageModelSizes): string {
  return ratio === 0 ? input : dropout(builder, input, ratio);
}
