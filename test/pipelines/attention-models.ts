/**
 * @file Small language models by how their attention is written: ONNX's operator, ONNX Runtime's GroupQueryAttention with rotary
 * tables, windows and sinks, and an encoder whose padded positions a decoder attends to.
 */
import { floats, GraphBuilder } from '../../models/builder.js';
import { attention, causalMask, embedding, joinHeads, linear, splitHeads } from '../../models/transformer.js';
import type { Graph } from '../../src/ir/graph.js';
import { constant } from '../../src/ir/ops/constants.js';

const [BATCH, WIDTH, HEADS, VOCABULARY] = [8, 16, 4, 32];

type Attend = (builder: GraphBuilder, state: string, layer: number) => string;

/** A table of tokens and positions, layers that attend and mix, a head. */
function decoder(name: string, seed: number, sequence: number, attend: Attend): Graph {
  const builder = new GraphBuilder(name, seed);
  const ids = builder.input('ids', 'int64', [BATCH, sequence]);
  const table = builder.parameter('wte.weight', [VOCABULARY, WIDTH], { deviation: 0.5 });
  let state = embedding(builder, ids, table);
  for (const layer of [0, 1])
    state = builder.within(`layers.${layer}`, () => {
      const attended = linear(builder, 'o', attend(builder, state, layer), WIDTH);
      return mixed(builder, builder.operator('Add', [state, attended]));
    });
  builder.output('logits', linear(builder, 'head', state, VOCABULARY, { bias: true }));
  return builder.build();
}

function mixed(builder: GraphBuilder, state: string): string {
  const wide = builder.operator('Tanh', [linear(builder, 'mlp', state, WIDTH, { bias: true })]);
  return builder.operator('Add', [state, wide]);
}

/** Queries, keys and values, of so many heads each. */
function projected(builder: GraphBuilder, state: string, heads: readonly number[], width: number): readonly string[] {
  return ['q', 'k', 'v'].map((name, index) => linear(builder, name, state, (heads[index] ?? 1) * width));
}

/** ONNX's Attention: causal, query heads that share keys; the second layer has a soft cap and another scale. */
export function attentionOperators(): Graph {
  return decoder('attention-operators', 21, 8, (builder, state, layer) =>
    builder.operator('Attention', projected(builder, state, [HEADS, 2, 2], WIDTH / HEADS), {
      ...{ q_num_heads: HEADS, kv_num_heads: 2, is_causal: 1 },
      ...(layer === 1 ? { softcap: 3, scale: 0.4 } : {}),
    }),
  );
}

/**
 * ONNX Runtime's GroupQueryAttention, as its builders write language models: rotated inside; the first layer has a window and
 * trained sinks, the second a sink of zero and rotates neighbours.
 */
export function groupedOperators(): Graph {
  const [sequence, head] = [8, 16];
  const angles = Array.from(
    { length: 2 * sequence * (head / 2) },
    (_, at) => Math.floor(at / (head / 2)) / 100 ** ((at % (head / 2)) / (head / 2)),
  );
  return decoder('grouped-operators', 22, sequence, (builder, state, layer) => {
    const shape = [2 * sequence, head / 2];
    const tables = [Math.cos, Math.sin].map((of) => builder.constant(of.name, floats(angles.map(of), shape)));
    const last = builder.constant('last_position', constant('int32', [sequence - 1], [1]));
    const lengths = builder.operator('Expand', [last], { shape: [BATCH] });
    const sink = layer === 0 ? builder.parameter('sinks', [HEADS], { deviation: 1 }) : null;
    const operands = [...projected(builder, state, [HEADS, 2, 2], head), null, null, lengths, null];
    const own = layer === 0 ? { local_window_size: 3 } : { smooth_softmax: 1, rotary_interleaved: 1 };
    const total = constant('int32', [sequence], []);
    const attributes = { num_heads: HEADS, kv_num_heads: 2, do_rotary: 1, total_sequence_length: total, ...own };
    const inputs = [...operands, ...tables, ...(sink ? [null, null, sink] : [])];
    return builder.operators('GroupQueryAttention', inputs, attributes, 3, 'com.microsoft')[0] as string;
  });
}

/** An encoder of 12 positions, of which a mask hides those that are padding, and a causal decoder of 8 that attends to it. */
export function crossAttention(): Graph {
  const builder = new GraphBuilder('cross-attention', 23);
  const [long, short] = [12, 8];
  const source = builder.input('source', 'int64', [BATCH, long]);
  const kept = builder.input('kept', 'int64', [BATCH, long]);
  const target = builder.input('target', 'int64', [BATCH, short]);
  const table = builder.parameter('table.weight', [VOCABULARY, WIDTH], { deviation: 0.5 });
  // The first position is kept, whatever the mask says: no row is left without a key.
  const first = builder.constant(
    'first',
    constant(
      'bool',
      Array.from({ length: long }, (_, at) => Number(at === 0)),
      [1, long],
    ),
  );
  const shown = builder.operator('Or', [builder.operator('Cast', [kept], { to: 9 }), first]);
  const parts = [builder.constant('shown', floats([0], [])), builder.constant('hidden', floats([-1e9], []))];
  const rows = builder.operator('Unsqueeze', [shown], { axes: [1, 2] });
  const padding = builder.operator('Where', [rows, ...parts]);
  const causal = causalMask(builder, short);
  const attending = (name: string, state: string, memory: string, mask: string) =>
    builder.within(name, () => {
      const heads = (of: string, from: string) => splitHeads(builder, linear(builder, of, from, WIDTH), HEADS);
      const made = attention(builder, heads('q', state), heads('k', memory), heads('v', memory), mask);
      return mixed(builder, builder.operator('Add', [state, linear(builder, 'o', joinHeads(builder, made), WIDTH)]));
    });
  let memory = embedding(builder, source, table);
  for (const layer of [0, 1]) memory = attending(`encoder.${layer}`, memory, memory, padding);
  let state = embedding(builder, target, table);
  for (const layer of [0, 1]) {
    state = attending(`decoder.${layer}.own`, state, state, causal);
    state = attending(`decoder.${layer}.cross`, state, memory, padding);
  }
  builder.output('logits', linear(builder, 'head', state, VOCABULARY));
  return builder.build();
}
