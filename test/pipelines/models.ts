/**
 * @file Small models whose stages hang together in every way there is: skips over several stages, an encoder that all layers of a
 * decoder read, a table that several layers share, one product after the other with one weight, residual branches, a recurrence,
 * results that have nothing in common.
 */
import { writeFileSync } from 'node:fs';
import { dropout as dropped, GraphBuilder } from '../../models/builder.js';
import { cnn } from '../../models/cnn.js';
import { generatedModel } from '../../models/families.js';
import { gpt } from '../../models/gpt.js';
import { llama } from '../../models/llama.js';
import { mlp } from '../../models/mlp.js';
import { embedding, linear } from '../../models/transformer.js';
import type { Graph } from '../../src/ir/graph.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { routedExperts, SMALL } from './expert-models.js';

const BATCH = 8;
const WIDTH = 16;

/** Name → a graph with weights, of a batch of 8. */
export const MODELS = {
  mlp: () => mlp('mlp', { batch: BATCH, widths: [32, 64, 64, 48, 16] }, 3),
  gpt: () => gpt('gpt', { batch: BATCH, sequence: 8, layers: 4, width: 16, heads: 4, vocabulary: 32 }, 2),
  llama: () =>
    llama(
      'llama',
      { batch: BATCH, sequence: 8, layers: 4, width: 16, heads: 4, keyHeads: 2, feedForward: 32, vocabulary: 32 },
      1,
    ),
  'soft-experts': softExperts,
  'routed-experts': () => routedExperts('einsum'),
  'batched-experts': () => routedExperts('batched'),
  'operator-experts': () => routedExperts('operator'),
  'capacity-experts': () => routedExperts('capacity'),
  'skewed-experts': () => routedExperts('einsum', { ...SMALL, bias: 50, chosen: 1 }),
  moe: () =>
    generatedModel('moe:layers=2,seq=8,hidden=16,heads=4,kv_heads=4,ffn=32,vocab=32,experts=4,topk=2').build(BATCH),
  cnn: () => cnn('cnn', { batch: BATCH, channels: 3, size: 16, widths: [8, 16], classes: 10 }, 4),
  'batch-norm': batchNorm,
  skips,
  dropout,
  'encoder-decoder': encoderDecoder,
  'shared-layer': sharedLayer,
  'same-weight-twice': sameWeightTwice,
  recurrent,
  unrelated,
  lookup,
} as const satisfies Readonly<Record<string, () => Graph>>;

export type ModelName = keyof typeof MODELS;

/** Writes a model as ONNX. */
export function writeModel(name: ModelName, file: string): void {
  writeFileSync(file, writeOnnx(MODELS[name]()));
}

/** As in a U-Net: each level on the way up reads what the same level made on the way down. */
function skips(): Graph {
  const builder = new GraphBuilder('skips', 6);
  let state = builder.input('x', 'float32', [BATCH, WIDTH]);
  const down = [0, 1, 2].map((level) => {
    state = dense(builder, `down.${level}`, state, WIDTH);
    return state;
  });
  state = dense(builder, 'middle', state, WIDTH);
  for (const [level, across] of [...down.entries()].reverse())
    state = dense(builder, `up.${level}`, builder.operator('Concat', [state, across], { axis: 1 }), WIDTH);
  builder.output('y', linear(builder, 'head', state, WIDTH, { bias: true }));
  return builder.build();
}

/** As in T5: every layer of the decoder attends to the encoder's output; both read one table, which is the head too. */
function encoderDecoder(): Graph {
  const builder = new GraphBuilder('encoder-decoder', 7);
  const source = builder.input('source', 'int64', [BATCH, 6]);
  const target = builder.input('target', 'int64', [BATCH, 4]);
  const table = builder.parameter('shared.weight', [32, WIDTH]);
  let memory = embedding(builder, source, table);
  for (const layer of [0, 1]) memory = attentionLayer(builder, `encoder.${layer}`, memory, memory);
  let state = embedding(builder, target, table);
  for (const layer of [0, 1, 2]) state = attentionLayer(builder, `decoder.${layer}`, state, memory);
  const head = builder.operator('Transpose', [table], { perm: [1, 0] });
  builder.output('logits', builder.operator('MatMul', [state, head]));
  return builder.build();
}

/** Layers that drop elements between two products, and the sum of their branches. */
function dropout(): Graph {
  const builder = new GraphBuilder('dropout', 12);
  let state = builder.input('x', 'float32', [BATCH, WIDTH]);
  for (const layer of [0, 1, 2, 3])
    state = builder.within(`layers.${layer}`, () => {
      const inner = builder.operator('Relu', [linear(builder, 'up', state, 2 * WIDTH, { bias: true })]);
      const kept = dropped(builder, inner, 0.25);
      return builder.operator('Add', [state, linear(builder, 'down', kept, WIDTH, { bias: true })]);
    });
  builder.output('y', linear(builder, 'head', state, WIDTH, { bias: true }));
  return builder.build();
}

/** One layer in three places, between others. */
function sharedLayer(): Graph {
  const builder = new GraphBuilder('shared-layer', 8);
  let state = builder.input('x', 'float32', [BATCH, WIDTH]);
  const weight = builder.parameter('shared.weight', [WIDTH, WIDTH]);
  for (const layer of [0, 1, 2]) {
    state = dense(builder, `layers.${layer}`, state, WIDTH);
    state = builder.within(`shared.${layer}`, () =>
      builder.operator('Tanh', [builder.operator('MatMul', [state, weight])]),
    );
  }
  builder.output('y', linear(builder, 'head', state, WIDTH, { bias: true }));
  return builder.build();
}

/** x · w · w, nothing between. */
function sameWeightTwice(): Graph {
  const builder = new GraphBuilder('same-weight-twice', 9);
  const input = builder.input('x', 'float32', [BATCH, WIDTH]);
  const weight = builder.parameter('weight', [WIDTH, WIDTH]);
  const once = builder.operator('MatMul', [input, weight]);
  const twice = builder.operator('MatMul', [once, weight]);
  builder.output('y', builder.operator('MatMul', [twice, weight]));
  return builder.build();
}

/** Residual blocks with running statistics. */
function batchNorm(): Graph {
  const builder = new GraphBuilder('batch-norm', 5);
  let state = builder.input('image', 'float32', [BATCH, 4, 8, 8]);
  for (const block of [0, 1, 2])
    state = builder.within(`blocks.${block}`, () => {
      const kernel = builder.parameter('conv.weight', [4, 4, 3, 3]);
      const spread = builder.operator('Conv', [state, kernel], {
        kernel_shape: [3, 3],
        pads: [1, 1, 1, 1],
        strides: [1, 1],
        dilations: [1, 1],
        group: 1,
      });
      const vectors = ['weight', 'bias', 'running_mean', 'running_var'].map((name) =>
        builder.parameter(`bn.${name}`, [4], {
          mean: name === 'weight' || name === 'running_var' ? 1 : 0,
          deviation: 0.1,
        }),
      );
      const normal = builder.operator('BatchNormalization', [spread, ...vectors], {
        epsilon: 1e-5,
        momentum: 0.9,
        training_mode: 0,
      });
      return builder.operator('Add', [state, builder.operator('Relu', [normal])]);
    });
  const flat = builder.operator('Flatten', [builder.operator('GlobalAveragePool', [state])], { axis: 1 });
  builder.output('logits', linear(builder, 'head', flat, 10, { bias: true }));
  return builder.build();
}

/** Rows and columns of a table beside which the rest is small. */
export const LOOKUP_TABLE = [500, 12] as const;

/** A large table, two of whose rows a sample reads, in front of a layer. */
function lookup(): Graph {
  const builder = new GraphBuilder('lookup', 12);
  const ids = builder.input('ids', 'int64', [BATCH, 2]);
  const table = builder.parameter('table.weight', LOOKUP_TABLE);
  const rows = builder.operator('Flatten', [embedding(builder, ids, table)], { axis: 1 });
  builder.output('y', linear(builder, 'head', rows, WIDTH, { bias: true }));
  return builder.build();
}

/** A GRU between two layers. */
function recurrent(): Graph {
  const builder = new GraphBuilder('recurrent', 10);
  const [steps, hidden] = [5, 8];
  const input = builder.input('x', 'float32', [BATCH, steps, WIDTH]);
  const state = linear(builder, 'before', input, hidden, { bias: true });
  const first = builder.operator('Transpose', [state], { perm: [1, 0, 2] });
  const weights = builder.within('gru', () => [
    builder.parameter('weight', [1, 3 * hidden, hidden]),
    builder.parameter('recurrence', [1, 3 * hidden, hidden]),
  ]);
  const [, last = ''] = builder.operators(
    'GRU',
    [first, ...weights],
    { hidden_size: hidden, direction: 'forward', linear_before_reset: 0 },
    2,
  );
  const flat = builder.operator('Squeeze', [last], { axes: [0] });
  builder.output('y', linear(builder, 'after', flat, WIDTH, { bias: true }));
  return builder.build();
}

/** Two networks that share nothing, and a product of both. */
function unrelated(): Graph {
  const builder = new GraphBuilder('unrelated', 11);
  const left = dense(builder, 'left.1', dense(builder, 'left.0', builder.input('a', 'float32', [BATCH, 8]), WIDTH), 8);
  const right = dense(builder, 'right.1', dense(builder, 'right.0', builder.input('b', 'float32', [BATCH, 8]), 12), 8);
  builder.output('y', builder.operator('Mul', [left, right]));
  builder.output('z', linear(builder, 'z', right, 4));
  return builder.build();
}

function dense(builder: GraphBuilder, name: string, input: string, outputs: number): string {
  return builder.within(name, () =>
    builder.operator('Tanh', [linear(builder, 'linear', input, outputs, { bias: true })]),
  );
}

/** Experts that every token goes to, as much as the router says; attention before them, so that there is a sequence. */
function softExperts(): Graph {
  const builder = new GraphBuilder('soft-experts', 12);
  const [steps, experts, inner] = [6, 4, 12];
  const ids = builder.input('ids', 'int64', [BATCH, steps]);
  let state = embedding(builder, ids, builder.parameter('table.weight', [32, WIDTH]));
  for (const layer of [0, 1]) {
    state = attentionLayer(builder, `layers.${layer}`, state, state);
    state = builder.within(`experts.${layer}`, () => {
      const scores = builder.operator('Softmax', [linear(builder, 'router', state, experts)], { axis: -1 });
      const shares = builder.operator('Unsqueeze', [builder.operator('Transpose', [scores], { perm: [0, 2, 1] })], {
        axes: [3],
      });
      const weight = (name: string, from: number, to: number) =>
        builder.parameter(`${name}.weight`, [experts, from, to], { deviation: 0.3 });
      const each = builder.operator('Unsqueeze', [state], { axes: [1] });
      const wide = builder.operator('Tanh', [builder.operator('MatMul', [each, weight('up', WIDTH, inner)])]);
      const narrow = builder.operator('MatMul', [wide, weight('down', inner, WIDTH)]);
      const shared = builder.operator('Mul', [narrow, shares]);
      const sum = builder.operator('ReduceSum', [shared], { axes: [1], keepdims: 0 });
      return builder.operator('Add', [state, sum]);
    });
  }
  builder.output('y', linear(builder, 'head', state, WIDTH));
  return builder.build();
}

/** state + softmax(q · kᵀ) · v of another sequence, then a layer of its own. */
function attentionLayer(builder: GraphBuilder, name: string, state: string, memory: string): string {
  return builder.within(name, () => {
    const [query, key, value] = [
      linear(builder, 'q', state, WIDTH),
      linear(builder, 'k', memory, WIDTH),
      linear(builder, 'v', memory, WIDTH),
    ];
    const turned = builder.operator('Transpose', [key], { perm: [0, 2, 1] });
    const weights = builder.operator('Softmax', [builder.operator('MatMul', [query, turned])], { axis: -1 });
    const attended = builder.operator('Add', [state, builder.operator('MatMul', [weights, value])]);
    return builder.operator('Add', [attended, dense(builder, 'mlp', attended, WIDTH)]);
  });
}
