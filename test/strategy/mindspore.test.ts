/**
 * @file MindSpore's strategy checkpoints: fixed bytes, decoded by a reader without a schema, both forms back and forth, and
 * every way to spoil one answered.
 */
import test from 'ava';
import fc from 'fast-check';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { heldInFloat32 } from '../../src/ir/autodiff/held-in-float32.js';
import { inMixedPrecision } from '../../src/ir/autodiff/mixed-precision.js';
import { trainingGraph } from '../../src/ir/autodiff/training-graph.js';
import { AutoparError } from '../../src/ir/error.js';
import type { Graph } from '../../src/ir/graph.js';
import { isConversion } from '../../src/ir/ops/index.js';
import { plan as search } from '../../src/search/plan.js';
import { type Layout, localShape, sameShards } from '../../src/sharding-propagation/layout.js';
import { parseLayout } from '../../src/sharding-propagation/layout-text.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import {
  deviceLayout,
  flatLayout,
  layoutOfDevices,
  likelyDegrees,
  splitCounts,
} from '../../src/strategy/mindspore/device-matrix.js';
import type { MindSporeStrategy } from '../../src/strategy/mindspore/document.js';
import { mindSporeStrategy } from '../../src/strategy/mindspore/export.js';
import { mindSporePins } from '../../src/strategy/mindspore/import.js';
import { strategyFromJson, strategyToJson } from '../../src/strategy/mindspore/json.js';
import { strategyKeys } from '../../src/strategy/mindspore/keys.js';
import { mergeStages } from '../../src/strategy/mindspore/merge.js';
import { primitiveNames } from '../../src/strategy/mindspore/primitives.js';
import { decodeStrategy, encodeStrategy } from '../../src/strategy/mindspore/schema.js';
import { placePlan } from '../../src/strategy/placed-operators.js';
import { planOf } from '../../src/strategy/plan-of.js';
import { GraphBuilder, llamaGraph, mlpGraph, SMALL_LLAMA } from '../search/small-graphs.js';
import { reshardCases } from '../sharding-propagation/random-layouts.js';
import { all, messages, numbers, text } from './wire.js';

async function placed(graph: Graph, degrees: { dp: number; tp: number }) {
  const cluster = parseCluster('local', degrees.dp * degrees.tp);
  const found = await search(graph, cluster, { degrees });
  const model = { graph, name: graph.name, fingerprint: 'a'.repeat(64), dims: {}, globalBatch: null, passes: [] };
  return placePlan(planOf(found, model, cluster), graph);
}

const SMALL: MindSporeStrategy = {
  currentStage: 1,
  operators: new Map([
    [
      'MatMul_w',
      {
        stage: 0,
        splits: [
          [2, 1],
          [1, 4],
        ],
      },
    ],
  ]),
  parameters: new Map([
    [
      'w',
      {
        deviceMatrix: [2, 4],
        tensorMap: [[-1], [0]],
        splitShape: [],
        indicesOffset: [],
        field: 0,
        optimizerShardStep: 0,
        optimizerShardSize: 0,
      },
    ],
  ]),
  outputs: new Map(),
  operandLayouts: new Map(),
  resultLayouts: new Map(),
};

test('the bytes are those that MindSpore’s own schema gives', (t) => {
  // Written by hand after node_strategy.proto: tags are field number · 8 + wire type.
  const expected = [
    '0801', // current_stage 1
    '121a', // parallel_strategy_item, 26 bytes
    '0a084d61744d756c5f77', // node_name MatMul_w
    '120e0800', // parallel_strategys, stage 0
    '120408020801', // parallel_strategy (2, 1)
    '120408010804', // parallel_strategy (1, 4)
    '1a24', // parallel_layout_item, 36 bytes
    '0a0177', // param_name w
    '121f', // parallel_layouts
    '0a0408020804', // dev_matrix (2, 4)
    '120d08ffffffffffffffffff010800', // tensor_map (-1, 0)
    '1a00', // param_split_shape
    '2200', // indices_offset
    '280030003800', // field, opt_weight_shard_step, opt_weight_shard_size
  ].join('');
  const bytes = encodeStrategy(SMALL);
  t.is(Buffer.from(bytes).toString('hex'), expected);
  t.deepEqual(decodeStrategy(bytes, 'x.ckpt'), SMALL);
});

test('a dimension over several axes has a list of axes per dimension', (t) => {
  const [base] = [...SMALL.parameters.values()];
  const withMap = (tensorMap: readonly (readonly number[])[]): MindSporeStrategy => ({
    ...SMALL,
    parameters: new Map([['w', { ...(base as NonNullable<typeof base>), tensorMap }]]),
  });
  for (const [map, lists] of [
    [
      [[1, 0], [-1]],
      [[1, 0], [-1]],
    ],
    // A tensor of one dimension: an empty list distinguishes it from one of two.
    [[[1, 0]], [[1, 0], []]],
    [[[1], [0]], [[1, 0]]],
    [[], [[]]],
  ] as const) {
    const bytes = encodeStrategy(withMap(map));
    const layouts = messages(messages(bytes, 3)[0] as Uint8Array, 2)[0] as Uint8Array;
    t.deepEqual(
      messages(layouts, 2).map((list) => numbers(list, 1)),
      lists.map((list) => [...list]),
    );
    t.deepEqual(
      decodeStrategy(bytes, 'x').parameters.get('w')?.tensorMap,
      map.map((axes) => [...axes]),
    );
  }
});

test('an independent reader finds every operator and parameter of a plan', async (t) => {
  const graph = llamaGraph({ ...SMALL_LLAMA, layers: 2 });
  const plan = await placed(graph, { dp: 2, tp: 2 });
  const { document } = mindSporeStrategy(graph, plan);
  const bytes = encodeStrategy(document);
  t.deepEqual(numbers(bytes, 1), [1]);
  const keys = strategyKeys(graph);
  const items = messages(bytes, 2);
  t.is(items.length, graph.nodes.length);
  for (const [index, { node, operands, stage }] of plan.operators.entries()) {
    const item = items[index] as Uint8Array;
    t.is(text(item, 1), keys.get(node) ?? '');
    const strategys = messages(item, 2)[0] as Uint8Array;
    t.deepEqual(numbers(strategys, 1), [stage]);
    const shapes = node.inputs.map((input) => graph.tensors.get(input ?? '')?.shape ?? []);
    const counts = messages(strategys, 2).map((strategy) => numbers(strategy, 1));
    // The parts of each dimension are what is left of it on a rank, turned round.
    const expected = operands.map((layout, operand) => {
      const local = localShape(shapes[operand] ?? [], layout as Layout, plan.assignment.mesh);
      return local.map((size, axis) => (shapes[operand]?.[axis] ?? 0) / size);
    });
    t.deepEqual(counts, expected, node.name);
  }
  const names = messages(bytes, 3).map((item) => text(item, 1));
  t.deepEqual(
    [...names].sort(),
    [...graph.weights.keys()].filter((name) => graph.weights.get(name)?.role !== 'constant').sort(),
  );
  for (const item of messages(bytes, 3)) {
    const layouts = messages(item, 2)[0] as Uint8Array;
    for (const required of [5, 6, 7]) t.is(all(layouts, required).length, 1);
    const matrix = numbers(messages(layouts, 1)[0] as Uint8Array, 1);
    t.is(
      matrix.reduce((product, size) => product * size, 1),
      4,
    );
  }
});

test('both forms come back as they were written', async (t) => {
  for (const degrees of [
    { dp: 2, tp: 2 },
    { dp: 1, tp: 4 },
    { dp: 2, tp: 4 },
  ]) {
    const graph = llamaGraph({ ...SMALL_LLAMA, layers: 2 });
    const { document } = mindSporeStrategy(graph, await placed(graph, degrees));
    const { text: json, leftOut } = strategyToJson(document);
    t.deepEqual(leftOut, []);
    t.deepEqual(strategyFromJson(json, 'x.json'), document);
    t.is(strategyToJson(strategyFromJson(json, 'x.json')).text, json);
    const bytes = encodeStrategy(document);
    t.deepEqual(encodeStrategy(decodeStrategy(bytes, 'x')), bytes);
    t.deepEqual(decodeStrategy(bytes, 'x').operators, document.operators);
    t.deepEqual(likelyDegrees(document), degrees);
    t.deepEqual(likelyDegrees({ ...document, operandLayouts: new Map() }), degrees);
  }
});

test('the degree that is not given follows from the devices of the file', async (t) => {
  const graph = llamaGraph({ ...SMALL_LLAMA, layers: 2 });
  const { document } = mindSporeStrategy(graph, await placed(graph, { dp: 1, tp: 4 }));
  t.deepEqual(likelyDegrees(document, undefined, { dp: 2 }), { dp: 2, tp: 2 });
  t.deepEqual(likelyDegrees(document, undefined, { tp: 1 }), { dp: 4, tp: 1 });
  const whole = mindSporeStrategy(graph, await placed(graph, { dp: 2, tp: 1 })).document;
  // One axis that shards no parameter is that of the batch.
  t.deepEqual(likelyDegrees({ ...whole, operandLayouts: new Map() }), { dp: 2, tp: 1 });
});

test('what is imported is what was exported', async (t) => {
  const graph = llamaGraph({ ...SMALL_LLAMA, layers: 2 });
  const plan = await placed(graph, { dp: 2, tp: 2 });
  const { mesh } = plan.assignment;
  const { document } = mindSporeStrategy(graph, plan);
  const { pins, notes } = mindSporePins(decodeStrategy(encodeStrategy(document), 'x'), graph, { mesh, file: 'x' });
  t.deepEqual(notes, []);
  t.deepEqual(pins.mesh, { dp: 2, tp: 2 });
  const byName = new Map(pins.pins.map((pin) => [Object.values(pin.match).join(), pin]));
  for (const { node, operands } of plan.operators) {
    t.deepEqual(
      byName.get(node.name)?.split,
      operands.map((layout) => layout && splitCounts(layout, mesh)),
      node.name,
    );
    node.inputs.forEach((tensor, operand) => {
      const said = tensor !== null && graph.weights.has(tensor) ? byName.get(tensor)?.layout : undefined;
      if (typeof said !== 'string' || tensor === null) return;
      const layout = parseLayout(said, graph.tensors.get(tensor)?.shape ?? [], mesh);
      t.true(sameShards(layout, { ...(operands[operand] as Layout), partial: [] }, mesh), `${tensor} ${said}`);
    });
  }
});

test('layouts are device matrices and back, and flattened ones cut the same shards', (t) => {
  const cases = reshardCases([
    [1, 4],
    [2, 4],
    [4, 2],
    [2, 6],
    [3, 4],
  ]);
  let said = 0;
  fc.assert(
    fc.property(cases, ({ mesh, shape, from }) => {
      const layout: Layout = { ...from, partial: [] };
      const device = deviceLayout(layout, mesh);
      if (!device) return;
      said++;
      t.is(device.deviceMatrix.length, Math.max(1, device.aliases.length));
      const again = layoutOfDevices(device, shape, mesh);
      t.truthy(again);
      t.true(again !== null && sameShards(layout, again, mesh));
      const flat = flatLayout(device);
      if (!flat) return;
      t.true(flat.tensorMap.every((axes) => axes.length === 1));
      const joined = layoutOfDevices(flat, shape, mesh);
      t.true(joined !== null && sameShards(layout, joined, mesh));
    }),
    { numRuns: 300 },
  );
  t.true(said > 100);
});

test('axes out of order have no flat form', (t) => {
  const mesh = makeMesh([
    ['dp', 2],
    ['tp', 2],
  ]);
  const device = (written: string) => deviceLayout(parseLayout(written, [8, 8], mesh), mesh);
  t.deepEqual(flatLayout(device('[(dp,tp), -]') as never), { deviceMatrix: [4], tensorMap: [[0], [-1]] });
  t.is(flatLayout(device('[(tp,dp), -]') as never), null);
  t.is(device('[(2 | 4:tp), -]'), null);
  t.deepEqual(device('[dp, tp]')?.aliases, ['dp', 'tp']);
});

test('keys are the primitive and the first parameter, and no two are equal', (t) => {
  const builder = new GraphBuilder();
  const x = builder.input('x', [4, 8]);
  const w = builder.weight('w', [8, 8]);
  const first = builder.add('first', 'MatMul', [x, w]);
  const second = builder.add('second', 'MatMul', [first, w]);
  const bias = builder.add('bias', 'Add', [second, builder.weight('b', [8])]);
  const soft = builder.add('soft', 'Softmax', [bias]);
  builder.add('again', 'Softmax', [soft]);
  const graph = builder.build(['again']);
  t.deepEqual([...strategyKeys(graph).values()], ['MatMul_w', 'MatMul_w.2', 'BiasAdd_b', 'Softmax_0', 'Softmax_1']);
  const names = primitiveNames();
  t.deepEqual(names.get('Div'), ['RealDiv']);
  t.deepEqual(names.get('LayerNormalization'), ['LayerNorm']);
  t.deepEqual(names.get('MatMul'), ['MatMul', 'BatchMatMul']);
});

test('keys in 16 bits are those of the file, but for casts', (t) => {
  const forward = llamaGraph({ ...SMALL_LLAMA, layers: 2 });
  const mixed = inMixedPrecision(forward, 'float16');
  for (const graph of [mixed, heldInFloat32(mixed, 'float16')]) {
    t.true(graph.nodes.length > forward.nodes.length);
    const keys = [...strategyKeys(graph)].flatMap(([node, key]) => (isConversion(node) ? [] : [key]));
    t.deepEqual(keys, [...strategyKeys(forward).values()]);
  }
});

test('a parameter that training updates has the layout of its file', async (t) => {
  const forward = mlpGraph(8, 64, 256, 1);
  const { graph, trained } = trainingGraph(forward, {
    loss: { kind: 'mse' },
    optimizer: { kind: 'sgd', learningRate: 0.1 },
  });
  t.true(trained.length > 0 && trained.every((name) => !graph.weights.has(name)));
  const plan = await placed(forward, { dp: 1, tp: 2 });
  const { document } = mindSporeStrategy(forward, plan);
  const { pins, notes } = mindSporePins(document, graph, { mesh: plan.assignment.mesh, file: 'x' });
  t.deepEqual(
    notes.filter((note) => note.startsWith('no parameter')),
    [],
  );
  const pinned = pins.pins.flatMap(({ match }) => ('tensor' in match ? [match.tensor] : []));
  t.deepEqual(pinned.sort(), [...trained].sort());
});

test('a key with another primitive is found by its parameter', async (t) => {
  const graph = mlpGraph(8, 64, 256);
  const { document } = mindSporeStrategy(graph, await placed(graph, { dp: 2, tp: 2 }));
  const mesh = makeMesh([
    ['dp', 2],
    ['tp', 2],
  ]);
  const renamed = [...document.operators].map(([key, value]) => [key.replace('MatMul_', 'MatMulExt_'), value] as const);
  const { pins, notes } = mindSporePins({ ...document, operators: new Map(renamed) }, graph, { mesh, file: 'x' });
  t.deepEqual(notes, []);
  t.is(pins.pins.filter((pin) => 'node' in pin.match).length, document.operators.size);
});

test('a parameter that is cast to 16 bits is that of the operator that reads the cast', async (t) => {
  const graph = mlpGraph(8, 64, 256);
  const mixed = heldInFloat32(inMixedPrecision(graph, 'bfloat16'), 'bfloat16');
  const { document } = mindSporeStrategy(mixed, await placed(mixed, { dp: 2, tp: 2 }));
  const products = [...strategyKeys(graph).values()].filter((key) => key.includes('MatMul'));
  t.true(products.length > 0 && products.every((key) => document.operators.has(key)));
  t.false([...document.operators.keys()].some((key) => key.startsWith('Rounding')));
  const mesh = makeMesh([
    ['dp', 2],
    ['tp', 2],
  ]);
  for (const other of [graph, mixed]) {
    const { pins } = mindSporePins(document, other, { mesh, file: 'x' });
    const pinned = new Set(pins.pins.flatMap(({ match }) => ('node' in match ? [match.node] : [])));
    for (const { name, op } of other.nodes) if (op === 'MatMul') t.true(pinned.has(name), name);
  }
});

test('files of stages merge with their parameters prefixed, and conflicts are named', (t) => {
  const stage = (number: number, weight = 'w', tensorMap = [[-1], [0]]): MindSporeStrategy => ({
    ...SMALL,
    operators: new Map([
      [
        `MatMul_${weight}`,
        {
          stage: number,
          splits: [
            [2, 1],
            [1, 4],
          ],
        },
      ],
    ]),
    parameters: new Map([...SMALL.parameters.values()].map((layout) => [weight, { ...layout, tensorMap }])),
  });
  const merge = (...documents: readonly MindSporeStrategy[]) =>
    mergeStages(documents.map((document, index) => ({ file: `stage${index}.ckpt`, document })));
  const merged = merge(stage(1, 'v'), stage(0, 'w'));
  t.deepEqual([...merged.parameters.keys()], ['0-w', '1-v']);
  t.deepEqual(
    [...merged.operators].map(([key, { stage: of }]) => [key, of]),
    [
      ['MatMul_w', 0],
      ['MatMul_v', 1],
    ],
  );
  t.is(merged.currentStage, 1);
  t.deepEqual(merge(stage(0), stage(0)), merge(stage(0)));
  const refuse = (...documents: readonly MindSporeStrategy[]) =>
    t.throws(() => merge(...documents), { instanceOf: AutoparError });
  const other = {
    ...stage(1, 'v'),
    parameters: new Map(
      [...stage(1, 'v').parameters].map(([name, layout]) => [name, { ...layout, deviceMatrix: [2, 2] }]),
    ),
  };
  const cases = [
    [refuse(stage(0), stage(0, 'w', [[0], [-1]])), 'strategy-conflict', 'parameter w'],
    [refuse(stage(0), stage(1)), 'strategy-conflict', 'operator MatMul_w is in stage 0 and in stage 1'],
    [refuse(stage(0), other), 'strategy-conflict', '8 devices'],
    [refuse(stage(0), stage(2, 'v')), 'strategy-mismatch', 'stage 1'],
    [refuse(merged), 'strategy-mismatch', 'merged already'],
    [refuse({ ...SMALL, operators: new Map() }), 'strategy-mismatch', 'no operators'],
  ] as const;
  for (const [error, code, words] of cases) {
    t.is(error?.code, code);
    t.true(error?.message.includes(words), error?.message);
    t.truthy(error?.where.file);
  }
});

test('a spoilt checkpoint is refused with what is wrong', (t) => {
  const bytes = encodeStrategy(SMALL);
  const json = strategyToJson(SMALL).text;
  const binary = (spoilt: Uint8Array) => t.throws(() => decodeStrategy(spoilt, 'x.ckpt'), { instanceOf: AutoparError });
  const textual = (spoilt: string) => t.throws(() => strategyFromJson(spoilt, 'x.json'), { instanceOf: AutoparError });
  const doubled = Buffer.concat([bytes, bytes]);
  const cases = [
    [binary(bytes.subarray(0, bytes.length - 3)), 'truncated'],
    [binary(new Uint8Array()), 'empty'],
    [binary(Buffer.from('not a protobuf at all')), 'damaged'],
    [binary(Buffer.from('1200', 'hex')), 'damaged'],
    [binary(Buffer.from('08014001', 'hex')), 'other protobuf'],
    [binary(doubled), 'two contradicting entries for operator MatMul_w'],
    [textual(json.slice(0, 60)), 'is not JSON'],
    [textual(''), 'empty'],
    [textual('[]'), 'neither a plan.json'],
    [textual('{"current_stage": "x"}'), 'current_stage must be integer'],
    [textual(json.replace('[2, 4]', '[2, 0]')), 'must be >= 1'],
    [textual(json.replace('[-1, 0]', '[-1, 5]')), 'names axis 5'],
    [textual(json.replace('[-1, 0]', '[0, 0]')), 'axis 0 twice'],
  ] as const;
  for (const [error, words] of cases) {
    t.is(error?.code, 'bad-strategy');
    t.is(error?.exit, 'input');
    t.true(error?.message.includes(words), error?.message);
    t.truthy(error?.hint);
  }
});

test('no bytes make the reader fail otherwise', (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 80 }), fc.nat(200), fc.nat(255), (noise, place, byte) => {
      const changed = Uint8Array.from(encodeStrategy(SMALL));
      changed[place % changed.length] = byte;
      for (const bytes of [noise, changed]) {
        try {
          decodeStrategy(bytes, 'x');
        } catch (error) {
          if (!(error instanceof AutoparError)) throw error;
        }
      }
    }),
    { numRuns: 500 },
  );
  t.pass();
});

test('a checkpoint of another model or number of devices is refused', async (t) => {
  const graph = mlpGraph(8, 64, 256);
  const { document } = mindSporeStrategy(graph, await placed(graph, { dp: 2, tp: 2 }));
  const mesh = (dp: number, tp: number) =>
    makeMesh([
      ['dp', dp],
      ['tp', tp],
    ]);
  const refuse = (given: MindSporeStrategy, of: Graph, dp: number, tp: number, devices?: number) =>
    t.throws(() => mindSporePins(given, of, { mesh: mesh(dp, tp), devices, file: 'x.ckpt' }), {
      instanceOf: AutoparError,
    });
  const [key = '', ...others] = document.operators.keys();
  const cut = { ...document, operators: new Map([[key, { stage: 0, splits: [[2], [1, 2]] }]]) };
  const short = { ...document, operators: new Map([[key, { stage: 0, splits: [[2, 1]] }]]) };
  const cases = [
    [refuse(document, graph, 2, 4), 'is for 4 devices in a stage, the mesh has 8'],
    [refuse(document, graph, 2, 2, 8), 'is for 4 devices, there are 8'],
    [refuse(SMALL, graph, 2, 4), 'belongs to another model'],
    [refuse(cut, graph, 2, 2), 'splits operand 0'],
    [refuse(short, graph, 2, 2), 'splits 1 operands'],
  ] as const;
  t.true(others.length > 0);
  for (const [error, words] of cases) {
    t.is(error?.code, 'strategy-mismatch');
    t.true(error?.message.includes(words), error?.message);
  }
});
