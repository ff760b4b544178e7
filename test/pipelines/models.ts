/**
 * @file Small models whose stages depend on each other in every way there is: skips over several stages, an encoder that all
 * layers of a decoder read, a table that several layers share, one matmul after the other with one weight, residual branches, a
 * recurrence, results that have nothing in common.
 */
import { writeFileSync } from 'node:fs';
import { dropout as dropped, floats, GraphBuilder } from '../../models/builder.js';
import { cnn } from '../../models/cnn.js';
import { generatedModel } from '../../models/families.js';
import { gpt } from '../../models/gpt.js';
import { llama } from '../../models/llama.js';
import { mlp } from '../../models/mlp.js';
import {
  attention,
  causalMask,
  embedding,
  joinHeads,
  linear,
  repeatHeads,
  splitHeads,
} from '../../models/transformer.js';
import type { Graph } from '../../src/ir/graph.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { constant } from '../../src/ir/ops/constants.js';
import { attentionOperators, crossAttention, groupedOperators } from './attention-models.js';
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
  uneven: () =>
    llama(
      'uneven',
      { batch: BATCH, sequence: 7, layers: 2, width: 16, heads: 4, keyHeads: 2, feedForward: 32, vocabulary: 32 },
      1,
    ),
  /** Whose activations are most of what a rank holds. */
  long: () =>
    llama(
      'long',
      { batch: BATCH, sequence: 128, layers: 2, width: 32, heads: 8, keyHeads: 8, feedForward: 64, vocabulary: 32 },
      1,
    ),
  'attention-operators': attentionOperators,
  'grouped-operators': groupedOperators,
  'cross-attention': crossAttention,
  windows,
  documents,
  sinks,
  'soft-experts': softExperts,
  'routed-experts': () => routedExperts('einsum'),
  'batched-experts': () => routedExperts('batched'),
  'operator-experts': () => routedExperts('operator'),
  'unrolled-experts': () => routedExperts('masked', { ...SMALL, merges: true }),
  'chosen-experts': () => routedExperts('chosen'),
  'einsum-experts': () => routedExperts('three'),
  'capacity-experts': () => routedExperts('capacity'),
  'skewed-experts': () => routedExperts('einsum', { ...SMALL, bias: 50, chosen: 1 }),
  moe: () =>
    generatedModel('moe:layers=2,seq=8,hidden=16,heads=4,kv_heads=4,ffn=32,vocab=32,experts=4,topk=2').build(BATCH),
  cnn: () => cnn('cnn', { batch: BATCH, channels: 3, size: 16, widths: [8, 16], classes: 10 }, 4),
  'batch-norm': batchNorm,
  resnet,
  'u-net': uNet,
  skips,
  dropout,
  'encoder-decoder': encoderDecoder,
  'shared-layer': sharedLayer,
  'same-weight-twice': sameWeightTwice,
  recurrent,
  unrelated,
  lookup,
} as const satisfies Readonly<Record<string, () => Graph>>;

const ONE_LAYER = { ...SMALL, layers: 1 };

/** Experts in the written forms that are not among them; no plans are drawn of these. */
const MORE_EXPERTS = {
  'quantised-experts': () => routedExperts('quantised', ONE_LAYER),
  'separate-experts': () => routedExperts('unrolled', ONE_LAYER),
  'together-experts': () => routedExperts('together', ONE_LAYER),
  'gathered-experts': () => routedExperts('gathered', ONE_LAYER),
  'lookup-experts': () => routedExperts('lookup', ONE_LAYER),
} as const satisfies Readonly<Record<string, () => Graph>>;

const ALL = { ...MODELS, ...MORE_EXPERTS };

export type ModelName = keyof typeof ALL;

/** Writes a model as ONNX. */
export function writeModel(name: ModelName, file: string): void {
  writeFileSync(file, writeOnnx(ALL[name]()));
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

/**
 * Positions see the last few before them and the first (a sink), each layer reads the position before too, and positions are
 * learned: two layers with query heads that share keys.
 */
function windows(): Graph {
  const builder = new GraphBuilder('windows', 15);
  const sequence = 8;
  const ids = builder.input('ids', 'int64', [BATCH, sequence]);
  const isSeen = (row: number, column: number) => column <= row && (row - column < 3 || column === 0);
  const seen = Array.from({ length: sequence ** 2 }, (_, at) => isSeen(Math.floor(at / sequence), at % sequence));
  const values = seen.map((isVisible) => (isVisible ? 0 : Number.NEGATIVE_INFINITY));
  const mask = builder.constant('window', floats(values, [1, 1, sequence, sequence]));
  const table = builder.parameter('wte.weight', [32, WIDTH], { deviation: 0.2 });
  const positions = builder.parameter('wpe.weight', [sequence, WIDTH], { deviation: 0.1 });
  let state = builder.operator('Add', [embedding(builder, ids, table), positions]);
  for (const layer of [0, 1])
    state = builder.within(`layers.${layer}`, () => {
      const cut = { starts: [0], ends: [sequence - 1], axes: [1], steps: [1] };
      const before = builder.operator('Pad', [builder.operator('Slice', [state], cut)], { pads: [0, 1, 0, 0, 0, 0] });
      const mixed = builder.operator('Add', [state, linear(builder, 'shift', before, WIDTH)]);
      const query = splitHeads(builder, linear(builder, 'q', mixed, WIDTH), 4);
      const [key, value] = ['k', 'v'].map((name) =>
        repeatHeads(builder, splitHeads(builder, linear(builder, name, mixed, WIDTH / 2), 2), 2),
      ) as [string, string];
      const attended = linear(builder, 'o', joinHeads(builder, attention(builder, query, key, value, mask)), WIDTH);
      const sum = builder.operator('Add', [state, attended]);
      return builder.operator('Add', [sum, dense(builder, 'mlp', sum, WIDTH)]);
    });
  builder.output('logits', linear(builder, 'head', state, 32, { bias: true }));
  return builder.build();
}

/**
 * Packed samples: positions begin again at 0 with each document, and a position sees its document's positions up to itself, as
 * exporters write it.
 */
function documents(): Graph {
  const builder = new GraphBuilder('documents', 16);
  const sequence = 16;
  const ids = builder.input('ids', 'int64', [BATCH, sequence]);
  const places = builder.input('positions', 'int64', [BATCH, sequence]);
  const starts = builder.operator('Equal', [places, builder.constant('first', constant('int64', [0]))]);
  const count = { axis: 1, exclusive: 0, reverse: 0 };
  const document = builder.operator('CumSum', [builder.operator('Cast', [starts], { to: 7 })], count);
  const [rows, columns] = [3, 2].map((axis) => builder.operator('Unsqueeze', [document], { axes: [1, axis] }));
  const order = Array.from({ length: sequence }, (_, at) => at);
  const before = builder.operator('LessOrEqual', [
    builder.constant('columns', constant('int64', order, [sequence])),
    builder.constant('rows', constant('int64', order, [sequence, 1])),
  ]);
  const seen = builder.operator('And', [builder.operator('Equal', [rows as string, columns as string]), before]);
  const hidden = builder.constant('hidden', floats([-3.4028234663852886e38], []));
  const mask = builder.operator('Where', [seen, builder.constant('shown', floats([0], [])), hidden]);
  const table = builder.parameter('wte.weight', [32, WIDTH], { deviation: 0.2 });
  const positions = builder.parameter('wpe.weight', [8, WIDTH], { deviation: 0.1 });
  let state = builder.operator('Add', [embedding(builder, ids, table), embedding(builder, places, positions)]);
  for (const layer of [0, 1])
    state = builder.within(`layers.${layer}`, () => {
      const [query, key, value] = ['q', 'k', 'v'].map((name) =>
        splitHeads(builder, linear(builder, name, state, WIDTH), 4),
      ) as [string, string, string];
      const attended = linear(builder, 'o', joinHeads(builder, attention(builder, query, key, value, mask)), WIDTH);
      const sum = builder.operator('Add', [state, attended]);
      return builder.operator('Add', [sum, dense(builder, 'mlp', sum, WIDTH)]);
    });
  builder.output('logits', linear(builder, 'head', state, 32, { bias: true }));
  return builder.build();
}

/** As in GPT-OSS: a learned score of each head stands beside those of the keys, and takes its share of the softmax. */
function sinks(): Graph {
  const builder = new GraphBuilder('sinks', 17);
  const [sequence, heads] = [8, 4];
  const ids = builder.input('ids', 'int64', [BATCH, sequence]);
  const mask = causalMask(builder, sequence);
  let state = embedding(builder, ids, builder.parameter('wte.weight', [32, WIDTH], { deviation: 0.5 }));
  for (const layer of [0, 1])
    state = builder.within(`layers.${layer}`, () => {
      const [query, key, value] = ['q', 'k', 'v'].map((name) =>
        splitHeads(builder, linear(builder, name, state, WIDTH), heads),
      ) as [string, string, string];
      const sink = builder.parameter('sinks', [heads], { deviation: 1 });
      const shape = { shape: [1, heads, 1, 1], allowzero: 0 };
      const column = builder.operator('Expand', [builder.operator('Reshape', [sink], shape)], {
        shape: [BATCH, heads, sequence, 1],
      });
      const turned = builder.operator('Transpose', [key], { perm: [0, 1, 3, 2] });
      const scaled = builder.operator('Mul', [
        builder.operator('MatMul', [query, turned]),
        builder.constant('scale', floats([1 / Math.sqrt(WIDTH / heads)])),
      ]);
      const all = builder.operator('Concat', [builder.operator('Add', [scaled, mask]), column], { axis: 3 });
      const down = builder.operator('Sub', [all, builder.operator('ReduceMax', [all], { axes: [3], keepdims: 1 })]);
      const shares = builder.operator('Softmax', [down], { axis: -1 });
      const cut = { starts: [0], ends: [sequence], axes: [3], steps: [1] };
      const result = builder.operator('MatMul', [builder.operator('Slice', [shares], cut), value]);
      const attended = linear(builder, 'o', joinHeads(builder, result), WIDTH);
      const sum = builder.operator('Add', [state, attended]);
      return builder.operator('Add', [sum, dense(builder, 'mlp', sum, WIDTH)]);
    });
  builder.output('logits', linear(builder, 'head', state, 32, { bias: true }));
  return builder.build();
}

/** Layers that drop elements between two matmuls, and the sum of their branches. */
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
      // Smooth: rounding would put operands on the other side of a kink, and gradients of few samples show it.
      return builder.operator('Add', [state, builder.operator('Sigmoid', [normal])]);
    });
  const flat = builder.operator('Flatten', [builder.operator('GlobalAveragePool', [state])], { axis: 1 });
  builder.output('logits', linear(builder, 'head', flat, 10, { bias: true }));
  return builder.build();
}

/** As ResNets are: a large window with a stride, a pooling whose windows overlap, blocks of which one halves the image. */
function resnet(): Graph {
  const builder = new GraphBuilder('resnet', 13);
  const image = builder.input('image', 'float32', [BATCH, 3, 32, 20]);
  let state = normalised(builder, 'stem', image, 4, 7, 2);
  state = builder.operator('MaxPool', [state], { kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1] });
  for (const [block, [width, stride]] of (
    [
      [4, 1],
      [8, 2],
    ] as const
  ).entries())
    state = builder.within(`blocks.${block}`, () => {
      const wide = normalised(builder, 'first', state, width, 3, stride);
      const inner = normalised(builder, 'second', wide, width, 3, 1);
      const across = stride === 1 ? state : normalised(builder, 'down', state, width, 1, stride);
      return builder.operator('Add', [across, inner]);
    });
  const flat = builder.operator('Flatten', [builder.operator('GlobalAveragePool', [state])], { axis: 1 });
  builder.output('logits', linear(builder, 'head', flat, 10, { bias: true }));
  return builder.build();
}

/**
 * As U-Nets are: down by pooling, up by repeated positions and by a transposed convolution whose windows overlap, skips
 * between.
 */
function uNet(): Graph {
  const builder = new GraphBuilder('u-net', 14);
  const pooled = (state: string) => builder.operator('MaxPool', [state], { kernel_shape: [2, 2], strides: [2, 2] });
  const first = normalised(builder, 'down.0', builder.input('image', 'float32', [BATCH, 2, 16, 12]), 4, 3, 1);
  const second = normalised(builder, 'down.1', pooled(first), 6, 3, 1);
  const middle = normalised(builder, 'middle', pooled(second), 6, 3, 1);
  const scales = constant('float32', [1, 1, 2, 2], [4]);
  const attributes = { mode: 'nearest', nearest_mode: 'floor', coordinate_transformation_mode: 'asymmetric', scales };
  const repeated = builder.operator('Resize', [middle], attributes);
  const third = normalised(builder, 'up.1', builder.operator('Concat', [repeated, second], { axis: 1 }), 6, 3, 1);
  const kernel = builder.parameter('up.0.transposed', [6, 4, 3, 3], { deviation: 0.2 });
  const windows = { kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1], output_padding: [1, 1] };
  const spread = builder.operator('ConvTranspose', [third, kernel], windows);
  const fourth = normalised(builder, 'up.0', builder.operator('Concat', [spread, first], { axis: 1 }), 4, 3, 1);
  const head = builder.parameter('head.weight', [2, 4, 1, 1], { deviation: 0.5 });
  builder.output('y', builder.operator('Conv', [fourth, head], { kernel_shape: [1, 1] }));
  return builder.build();
}

/** A convolution, normalised over the batch, and what is above zero of it. */
function normalised(
  builder: GraphBuilder,
  name: string,
  input: string,
  width: number,
  kernel: number,
  stride: number,
): string {
  return builder.within(name, () => {
    const channels = builder.shapeOf(input)[1] ?? 1;
    const deviation = 1 / Math.sqrt(kernel * kernel * channels);
    const weight = builder.parameter('conv.weight', [width, channels, kernel, kernel], { deviation });
    const pad = (kernel - 1) / 2;
    const windows = { kernel_shape: [kernel, kernel], strides: [stride, stride], pads: [pad, pad, pad, pad] };
    const spread = builder.operator('Conv', [input, weight], windows);
    const vectors = ['weight', 'bias', 'running_mean', 'running_var'].map((vector) =>
      builder.parameter(`bn.${vector}`, [width], {
        mean: vector === 'weight' || vector === 'running_var' ? 1 : 0,
        deviation: 0.1,
      }),
    );
    const statistics = { epsilon: 1e-5, momentum: 0.9, training_mode: 0 };
    return builder.operator('Relu', [builder.operator('BatchNormalization', [spread, ...vectors], statistics)]);
  });
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
