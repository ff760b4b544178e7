/**
 * @file ONNX multi-device annotations: layouts as sharding specs and back, plans in models and back, annotations by others
 * as pins, and what is wrong with some.
 */
import test from 'ava';
import fc from 'fast-check';
import { AutoparError } from '../../src/ir/error.js';
import type { Graph } from '../../src/ir/graph.js';
import {
  decodeModel,
  encodeModel,
  type ModelProto,
  type NodeDeviceConfigurationProto,
  type NodeProto,
  type ShardingSpecProto,
} from '../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { type Layout, sameShards } from '../../src/sharding-propagation/layout.js';
import { layoutText, parseLayout } from '../../src/sharding-propagation/layout-text.js';
import { coordinatesOf, makeMesh } from '../../src/sharding-propagation/mesh.js';
import { annotateModel, PLAN_KEY } from '../../src/strategy/onnx/annotate.js';
import { annotationPins, editedNodes, planInModel } from '../../src/strategy/onnx/read-annotations.js';
import { layoutOfSpec, readSpec, specOfLayout } from '../../src/strategy/onnx/sharding-spec.js';
import { planToJson } from '../../src/strategy/plan-json.js';
import { llamaGraph, mlpGraph, SMALL_LLAMA } from '../search/small-graphs.js';
import { reshardCases, unevenCases } from '../sharding-propagation/random-layouts.js';
import { planFor } from './planned.js';
import { messages, numbers, text } from './wire.js';

const MESHES = [
  [1, 4],
  [2, 4],
  [4, 2],
  [2, 6],
  [3, 4],
] as const;

test('a layout is a spec and back, pieces and padding included', (t) => {
  let pieces = 0;
  let padded = 0;
  fc.assert(
    fc.property(fc.oneof(reshardCases(MESHES), unevenCases(MESHES)), ({ mesh, shape, from }) => {
      const layout: Layout = { ...from, partial: [] };
      const spec = specOfLayout('x', layout, mesh);
      if (!spec) return;
      const read = readSpec(spec, shape.length);
      if (typeof read === 'string') throw new Error(read);
      const again = layoutOfSpec(read, shape, mesh);
      t.truthy(again, layoutText(layout, mesh));
      t.true(again !== null && sameShards(layout, again, mesh), layoutText(layout, mesh));
      if (layout.dims.some((dim) => dim.length > 1)) pieces++;
      if (layout.extents) padded++;
    }),
    { numRuns: 600 },
  );
  t.true(pieces > 20 && padded > 20, `${pieces} ${padded}`);
});

test('every rank is where the spec says', (t) => {
  const mesh = makeMesh([
    ['dp', 2],
    ['tp', 4],
  ]);
  const spec = specOfLayout('x', parseLayout('[tp.1, -, dp]', [8, 3, 4], mesh), mesh) as ShardingSpecProto;
  t.deepEqual(
    spec.sharded_dim?.map(({ axis, simple_sharding }) => [axis, simple_sharding?.map((part) => part.num_shards)]),
    [
      [0, [2]],
      [2, [2]],
    ],
  );
  for (const { key, value } of spec.index_to_device_group_map ?? []) {
    const shard = -(key as number) - 1;
    for (const rank of (value ?? []) as readonly number[]) {
      const at = coordinatesOf(mesh, rank);
      t.is((at.get('tp.1') ?? 0) * 2 + (at.get('dp') ?? 0), shard);
    }
  }
  t.is((spec.index_to_device_group_map ?? []).flatMap(({ value }) => value ?? []).length, 8);
});

test('a plan rides in the model, and the model is otherwise as it was', async (t) => {
  for (const graph of [mlpGraph(8, 64, 256, 2), llamaGraph({ ...SMALL_LLAMA, layers: 2 })]) {
    const { plan, placed } = await planFor(graph, { dp: 2, tp: 2 });
    const before = decodeModel(withUnknown(writeOnnx(graph)));
    const bytes = encodeModel(annotateModel(before, plan, placed));
    const after = decodeModel(bytes);
    t.is(planToJson(planInModel(after, 'x') as never), planToJson(plan));
    t.deepEqual(editedNodes(after, placed), []);
    // Annotated anew the bytes are the same, and taken away again they are the original's.
    t.deepEqual(encodeModel(annotateModel(after, plan, placed)), bytes);
    t.deepEqual(encodeModel(stripped(after, before)), encodeModel(before));
    t.is(messages(bytes, 777).length, 1);
  }
});

test('a reader without a schema finds configuration, stages and shards', async (t) => {
  const graph = mlpGraph(8, 64, 256);
  const { plan, placed } = await planFor(graph, { dp: 2, tp: 2 });
  const bytes = encodeModel(annotateModel(decodeModel(writeOnnx(graph)), plan, placed));
  t.deepEqual(numbers(bytes, 1), [11]);
  const configuration = messages(bytes, 26)[0] as Uint8Array;
  t.is(text(configuration, 1), 'autopar');
  t.deepEqual(numbers(configuration, 2), [4]);
  const graphBytes = messages(bytes, 7)[0] as Uint8Array;
  for (const node of messages(graphBytes, 1)) {
    const own = messages(node, 10)[0] as Uint8Array;
    t.is(text(own, 1), 'autopar');
    t.deepEqual(numbers(own, 3), [0]);
    const named = [...messages(node, 1), ...messages(node, 2)].map((name) => new TextDecoder().decode(name));
    for (const spec of messages(own, 2)) {
      t.true(named.includes(text(spec, 1)));
      const shards = messages(spec, 4).flatMap((dim) => messages(dim, 2).map((part) => numbers(part, 3)[0] ?? 0));
      t.is(
        numbers(spec, 2).length,
        shards.reduce((product, count) => product * count, 1),
      );
    }
  }
  t.deepEqual(
    messages(bytes, 14).map((entry) => text(entry, 1)),
    [PLAN_KEY],
  );
});

test('what another tool changed is found', async (t) => {
  const graph = mlpGraph(8, 64, 256);
  const { plan, placed } = await planFor(graph, { dp: 2, tp: 2 });
  const model = annotateModel(decodeModel(writeOnnx(graph)), plan, placed);
  const changed = withNode(model, 0, (own) => ({ ...own, pipeline_stage: 1 }));
  t.deepEqual(editedNodes(changed, placed), ['layers.0.up']);
});

test('annotations by others are pins', async (t) => {
  const graph = mlpGraph(8, 64, 256);
  const plain = decodeModel(writeOnnx(graph));
  const spec: ShardingSpecProto = {
    tensor_name: 'layers.0.A',
    device: [-1, -2],
    index_to_device_group_map: [
      { key: -1, value: [0, 2] },
      { key: -2, value: [1, 3] },
    ],
    sharded_dim: [{ axis: -1, simple_sharding: [{ dim_param: 'hidden', num_shards: 2 }] }],
  };
  const odd: ShardingSpecProto = {
    tensor_name: 'layers.0.B',
    device: [0, 3, 2, 1],
    sharded_dim: [{ axis: 0, simple_sharding: [{ dim_value: 256, num_shards: 4 }] }],
  };
  const model = annotated(plain, [spec], [odd]);
  const given = makeMesh([
    ['dp', 2],
    ['tp', 2],
  ]);
  const { pins, notes } = annotationPins(model, graph, { file: 'x.onnx', mesh: given });
  t.deepEqual(notes, []);
  t.deepEqual(pins, {
    version: 1,
    mesh: { dp: 2, tp: 2 },
    pins: [
      { match: { node: 'layers.0.up' }, layout: { in: [null, '[-, tp]'] } },
      { match: { node: 'layers.0.down' }, split: { in: [null, [4, 1]] } },
    ],
  });
  // Without a mesh, the one is taken on which axes need not be split.
  t.deepEqual(annotationPins(model, graph, { file: 'x.onnx' }).pins.mesh, { dp: 2, tp: 2 });
  const refuse = t.throws(() => annotationPins(model, graph, { file: 'x', mesh: makeMesh([['tp', 2]]) }), {
    instanceOf: AutoparError,
  });
  t.is(refuse?.code, 'strategy-mismatch');
});

test('stages are pins where there are several', (t) => {
  const graph = mlpGraph(8, 64, 256);
  const plain = decodeModel(writeOnnx(graph));
  const stages = [0, 0, 1];
  const node = (plain.graph?.node ?? []).map((item, index) => ({
    ...item,
    device_configurations: [{ configuration_id: 'c', pipeline_stage: stages[index] ?? 0 }],
  }));
  const model = { ...plain, configuration: [{ name: 'c', num_devices: 4 }], graph: { ...plain.graph, node } };
  t.deepEqual(
    annotationPins(model, graph, { file: 'x' }).pins.pins.map(({ match, stage }) => [match.node, stage]),
    [
      ['layers.0.up', 0],
      ['layers.0.act', 0],
      ['layers.0.down', 1],
    ],
  );
});

/** A field that no schema has, as a later version of ONNX may write it. */
function withUnknown(bytes: Uint8Array): Uint8Array {
  return Buffer.concat([bytes, Buffer.from([0xca, 0x30, 0x02, 0x68, 0x69])]);
}

function stripped(model: ModelProto, original: ModelProto): ModelProto {
  const node = (model.graph?.node ?? []).map((item) => without(item, 'device_configurations'));
  const graph = Object.create(Object.getPrototypeOf(model.graph), {
    ...Object.getOwnPropertyDescriptors(model.graph ?? {}),
    node: { value: node, enumerable: true },
  });
  const bare = without(without(model, 'metadata_props'), 'configuration');
  return Object.create(Object.getPrototypeOf(bare), {
    ...Object.getOwnPropertyDescriptors(bare),
    graph: { value: graph, enumerable: true },
    ir_version: { value: original.ir_version, enumerable: true },
  }) as ModelProto;
}

function without<Message extends object>(message: Message, field: string): Message {
  const { [field]: _gone, ...kept } = Object.getOwnPropertyDescriptors(message) as Record<string, PropertyDescriptor>;
  return Object.create(Object.getPrototypeOf(message), kept) as Message;
}

function withNode(
  model: ModelProto,
  index: number,
  change: (own: NodeDeviceConfigurationProto) => NodeDeviceConfigurationProto,
): ModelProto {
  const node = (model.graph?.node ?? []).map(
    (item, place): NodeProto =>
      place === index ? { ...item, device_configurations: (item.device_configurations ?? []).map(change) } : item,
  );
  return { ...model, graph: { ...model.graph, node } };
}

/** The model with specs at its nodes, in order, for four devices. */
function annotated(model: ModelProto, ...specs: readonly (readonly ShardingSpecProto[])[]): ModelProto {
  const holders = (model.graph?.node ?? []).filter(({ input }) => (input ?? []).length === 2);
  const node = (model.graph?.node ?? []).map((item): NodeProto => {
    const own = specs[holders.indexOf(item)];
    return own ? { ...item, device_configurations: [{ configuration_id: 'c', sharding_spec: own }] } : item;
  });
  return { ...model, configuration: [{ name: 'c', num_devices: 4 }], graph: { ...model.graph, node } };
}

for (const [name, change, code, words] of [
  [
    'an axis that is none',
    { sharded_dim: [{ axis: 2, simple_sharding: [{ num_shards: 2 }] }] },
    'bad-annotation',
    'axis 2',
  ],
  ['a foreign tensor', { tensor_name: 'layers.0.B' }, 'bad-annotation', 'neither reads nor makes'],
  ['too few devices', { device: [0] }, 'bad-annotation', '2 shards, 1'],
  ['a device beyond', { device: [0, 4] }, 'bad-annotation', 'device 4 of 4'],
  ['a group that is not given', { device: [-1, -2] }, 'bad-annotation', 'not defined'],
  ['no shards', { sharded_dim: [{ axis: 1, simple_sharding: [{ num_shards: 0 }] }] }, 'bad-annotation', '0 shards'],
] as const) {
  test(`wrong annotations are refused: ${name}`, (t) => {
    const graph: Graph = mlpGraph(8, 64, 256);
    const good: ShardingSpecProto = {
      tensor_name: 'layers.0.A',
      device: [0, 1],
      sharded_dim: [{ axis: 1, simple_sharding: [{ dim_value: 256, num_shards: 2 }] }],
    };
    const model = annotated(decodeModel(writeOnnx(graph)), [{ ...good, ...change }]);
    const error = t.throws(() => annotationPins(model, graph, { file: 'x.onnx' }), { instanceOf: AutoparError });
    t.is(error?.code, code);
    t.true(error?.message.includes(words), error?.message);
    t.is(error?.where.file, 'x.onnx');
  });
}

test('configurations are named, and their devices counted', (t) => {
  const graph = mlpGraph(8, 64, 256);
  const model = annotated(decodeModel(writeOnnx(graph)), []);
  const refuse = (of: ModelProto, options: object) =>
    t.throws(() => annotationPins(of, graph, { file: 'x.onnx', ...options }), { instanceOf: AutoparError })?.code;
  const two = { ...model, configuration: [...(model.configuration ?? []), { name: 'd', num_devices: 2 }] };
  t.is(refuse(two, {}), 'unknown-configuration');
  t.is(refuse(model, { configuration: 'cc' }), 'unknown-configuration');
  t.is(refuse({ ...model, configuration: [] }, {}), 'not-annotated');
  t.is(refuse(model, { devices: 8 }), 'strategy-mismatch');
  t.is(refuse({ ...model, configuration: [{ name: 'c', num_devices: -1 }] }, {}), 'bad-annotation');
  t.notThrows(() => annotationPins(two, graph, { file: 'x', configuration: 'c' }));
});
