/**
 * @file The GPT family: learned positions, layer normalisation, one fused projection for query, key and value, GELU, a
 * head that shares the embedding table.
 */
import type { Graph } from '../src/ir/graph.js';
import { dropout, GraphBuilder } from './builder.js';
import { attention, causalMask, embedding, joinHeads, linear, splitHeads } from './transformer.js';

export interface GptSizes {
  readonly batch: number;
  readonly sequence: number;
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
  readonly vocabulary: number;
  /** Dropout ratio in training, for embeddings, attention weights and the results of blocks; 0 by default. */
  readonly dropout?: number;
}

/**
 * ids [batch, sequence] int64 → logits [batch, sequence, vocabulary].
 * @param values of parameters; planning needs none
 */
export function gpt(name: string, sizes: GptSizes, seed: number, values: 'random' | 'absent' = 'random'): Graph {
  const { batch, sequence, width, vocabulary } = sizes;
  const builder = new GraphBuilder(name, seed, values);
  const ids = builder.input('ids', 'int64', [batch, sequence]);
  const mask = causalMask(builder, sequence);
  const table = builder.within('wte', () => builder.parameter('weight', [vocabulary, width], { deviation: 0.2 }));
  const tokens = builder.within('wte', () => embedding(builder, ids, table));
  const positions = builder.within('wpe', () => builder.parameter('weight', [1, sequence, width], { deviation: 0.1 }));
  let hidden = dropped(builder, builder.operator('Add', [tokens, positions]), sizes);
  for (let layer = 0; layer < sizes.layers; layer++) {
    hidden = builder.within(`h.${layer}`, () => block(builder, hidden, sizes, mask));
  }
  const normed = layerNorm(builder, 'ln_f', hidden);
  const head = builder.within('lm_head', () => builder.operator('Transpose', [table], { perm: [1, 0] }));
  builder.output(
    'logits',
    builder.within('lm_head', () => builder.operator('MatMul', [normed, head])),
  );
  return builder.build();
}

function dropped(builder: GraphBuilder, input: string, { dropout: ratio = 0 }: GptSizes): string {
  return ratio === 0 ? input : dropout(builder, input, ratio);
}

function block(builder: GraphBuilder, input: string, sizes: GptSizes, mask: string): string {
  const { width, heads } = sizes;
  const normed = layerNorm(builder, 'ln_1', input);
  const attended = builder.within('attn', () => {
    const fused = linear(builder, 'c_attn', normed, 3 * width, { bias: true });
    const part = (index: number): string => {
      const cut = { starts: [index * width], ends: [(index + 1) * width], axes: [2], steps: [1] };
      return splitHeads(builder, builder.operator('Slice', [fused], cut), heads);
    };
    const [query, key, value] = [part(0), part(1), part(2)];
    const weighted = attention(builder, query, key, value, mask, (weights) => dropped(builder, weights, sizes));
    return dropped(builder, linear(builder, 'c_proj', joinHeads(builder, weighted), width, { bias: true }), sizes);
  });
  const middle = builder.operator('Add', [input, attended]);
  const fed = layerNorm(builder, 'ln_2', middle);
  return builder.within('mlp', () => {
    const wide = builder.operator('Gelu', [linear(builder, 'c_fc', fed, 4 * width, { bias: true })], {
      approximate: 'tanh',
    });
    const fedBack = linear(builder, 'c_proj', wide, width, { bias: true });
    return builder.operator('Add', [middle, dropped(builder, fedBack, sizes)]);
  });
}

function layerNorm(builder: GraphBuilder, name: string, input: string): string {
  return builder.within(name, () => {
    const width = builder.shapeOf(input).at(-1) ?? 1;
    const scale = builder.parameter('weight', [width], { mean: 1, deviation: 0.02 });
    const shift = builder.parameter('bias', [width], { deviation: 0.02 });
    return builder.operator('LayerNormalization', [input, scale, shift], { axis: -1, epsilon: 1e-5 });
  });
}
