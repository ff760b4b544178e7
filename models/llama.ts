/**
 * @file The Llama family: RMS normalisation, rotary positions, grouped query heads, SwiGLU, an untied head.
 */
import type { Graph } from '../src/ir/graph.js';
import { floats, GraphBuilder } from './builder.js';
import { attention, causalMask, embedding, joinHeads, linear, repeatHeads, splitHeads } from './transformer.js';

export interface LlamaSizes {
  readonly batch: number;
  readonly sequence: number;
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
  /** Key and value heads; divides `heads`. */
  readonly keyHeads: number;
  readonly feedForward: number;
  readonly vocabulary: number;
}

/**
 * ids [batch, sequence] int64 → logits [batch, sequence, vocabulary].
 * @param values of parameters; planning needs none
 */
export function llama(name: string, sizes: LlamaSizes, seed: number, values: 'random' | 'absent' = 'random'): Graph {
  const builder = new GraphBuilder(name, seed, values);
  const ids = builder.input('ids', 'int64', [sizes.batch, sizes.sequence]);
  const logits = builder.within('model', () => {
    const rotary = rotaryTables(builder, sizes);
    const mask = causalMask(builder, sizes.sequence);
    const table = builder.within('embed_tokens', () =>
      builder.parameter('weight', [sizes.vocabulary, sizes.width], { deviation: 0.5 }),
    );
    let hidden = builder.within('embed_tokens', () => embedding(builder, ids, table));
    for (let layer = 0; layer < sizes.layers; layer++) {
      hidden = builder.within(`layers.${layer}`, () => block(builder, hidden, sizes, rotary, mask));
    }
    return rmsNorm(builder, 'norm', hidden);
  });
  builder.output('logits', linear(builder, 'lm_head', logits, sizes.vocabulary));
  return builder.build();
}

/** Cosine and sine of every position's angles: [1, 1, sequence, head size]. */
interface RotaryTables {
  readonly cosine: string;
  readonly sine: string;
}

function block(builder: GraphBuilder, input: string, sizes: LlamaSizes, rotary: RotaryTables, mask: string): string {
  const normed = rmsNorm(builder, 'input_layernorm', input);
  const attended = builder.within('self_attn', () => selfAttention(builder, normed, sizes, rotary, mask));
  const middle = builder.operator('Add', [input, attended]);
  const fed = builder.within('mlp', () => swiGlu(builder, middle, sizes));
  return builder.operator('Add', [middle, fed]);
}

function selfAttention(
  builder: GraphBuilder,
  input: string,
  { width, heads, keyHeads }: LlamaSizes,
  rotary: RotaryTables,
  mask: string,
): string {
  const keyWidth = (width / heads) * keyHeads;
  const query = rotate(builder, splitHeads(builder, linear(builder, 'q_proj', input, width), heads), rotary);
  const key = rotate(builder, splitHeads(builder, linear(builder, 'k_proj', input, keyWidth), keyHeads), rotary);
  const value = splitHeads(builder, linear(builder, 'v_proj', input, keyWidth), keyHeads);
  const group = heads / keyHeads;
  const attended = attention(
    builder,
    query,
    repeatHeads(builder, key, group),
    repeatHeads(builder, value, group),
    mask,
  );
  return linear(builder, 'o_proj', joinHeads(builder, attended), width);
}

function swiGlu(builder: GraphBuilder, input: string, { width, feedForward }: LlamaSizes): string {
  const normed = rmsNorm(builder, 'post_attention_layernorm', input);
  const gate = linear(builder, 'gate_proj', normed, feedForward);
  const up = linear(builder, 'up_proj', normed, feedForward);
  const open = builder.operator('Mul', [gate, builder.operator('Sigmoid', [gate])]);
  return linear(builder, 'down_proj', builder.operator('Mul', [open, up]), width);
}

/** x / √(mean(x²) + ε) · weight, spelled out as exporters do. */
function rmsNorm(builder: GraphBuilder, name: string, input: string): string {
  return builder.within(name, () => {
    const width = builder.shapeOf(input).at(-1) ?? 1;
    const square = builder.operator('Pow', [input, builder.constant('two', floats([2]))]);
    const mean = builder.operator('ReduceMean', [square], { axes: [-1], keepdims: 1 });
    const shifted = builder.operator('Add', [mean, builder.constant('epsilon', floats([1e-5]))]);
    const inverse = builder.operator('Reciprocal', [builder.operator('Sqrt', [shifted])]);
    const scaled = builder.operator('Mul', [input, inverse]);
    return builder.operator('Mul', [scaled, builder.parameter('weight', [width], { mean: 1, deviation: 0.02 })]);
  });
}

/** x · cos + (−second half, first half) · sin. */
function rotate(builder: GraphBuilder, input: string, { cosine, sine }: RotaryTables): string {
  const size = builder.shapeOf(input).at(-1) ?? 2;
  const half = size / 2;
  const first = builder.operator('Slice', [input], { starts: [0], ends: [half], axes: [3], steps: [1] });
  const second = builder.operator('Slice', [input], { starts: [half], ends: [size], axes: [3], steps: [1] });
  const turned = builder.operator('Concat', [builder.operator('Neg', [second]), first], { axis: 3 });
  return builder.operator('Add', [builder.operator('Mul', [input, cosine]), builder.operator('Mul', [turned, sine])]);
}

function rotaryTables(builder: GraphBuilder, { sequence, width, heads }: LlamaSizes): RotaryTables {
  const size = width / heads;
  const half = size / 2;
  const angles = Array.from({ length: sequence }, (_, position) =>
    Array.from({ length: size }, (_, index) => position / 10000 ** ((index % half) / half)),
  ).flat();
  const shape = [1, 1, sequence, size];
  return {
    cosine: builder.constant('rotary_cosine', floats(angles.map(Math.cos), shape)),
    sine: builder.constant('rotary_sine', floats(angles.map(Math.sin), shape)),
  };
}
