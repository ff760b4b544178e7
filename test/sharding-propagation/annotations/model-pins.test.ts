import test from 'ava';
import fc from 'fast-check';
import { importModel } from '../../../src/api/models/import.js';
import type { Graph } from '../../../src/ir/graph.js';
import type { ShardingSpec } from '../../../src/ir/onnx/device-annotations.js';
import type { OnnxModel } from '../../../src/ir/onnx/model.js';
import { readOnnx } from '../../../src/ir/onnx/reader.js';
import type { NodeDeviceConfigurationProto } from '../../../src/ir/onnx/schema.js';
import { pinsOfModel } from '../../../src/sharding-propagation/annotations/model-pins.js';
import { layoutText, parseLayout } from '../../../src/sharding-propagation/layout-text.js';
import { deviceCount, indexOn, type Mesh, makeMesh } from '../../../src/sharding-propagation/mesh.js';
import type { OperatorPin } from '../../../src/sharding-propagation/pin.js';
import { model, node, ramp, saved, value } from '../../ir/model-maker.js';
import { refused } from './file.js';

const MESH = makeMesh([
  ['dp', 2],
  ['tp', 2],
]);

/** y = x · w with the annotations given on its node. */
async function annotated(
  device_configurations: readonly NodeDeviceConfigurationProto[],
  num_devices = 4,
): Promise<{ readonly read: OnnxModel; readonly graph: Graph }> {
  const file = await saved(
    model(
      {
        node: [node('MatMul', ['x', 'w'], ['y'], {}, { name: 'fc', device_configurations })],
        input: [value('x', [8, 6])],
        output: [value('y', [8, 4])],
        initializer: [ramp('w', [6, 4])],
      },
      18,
      { ir_version: 11, configuration: [{ name: 'four', num_devices }] },
    ),
  );
  return { read: await readOnnx(file), graph: (await importModel(file)).graph };
}

const columns: NodeDeviceConfigurationProto = {
  configuration_id: 'four',
  pipeline_stage: 0,
  sharding_spec: [
    {
      tensor_name: 'w',
      device: [-1, -2],
      index_to_device_group_map: [
        { key: -1, value: [0, 2] },
        { key: -2, value: [1, 3] },
      ],
      sharded_dim: [{ axis: 1, simple_sharding: [{ num_shards: 2 }] }],
    },
    {
      tensor_name: 'y',
      device: [0, 1, 2, 3],
      sharded_dim: [
        { axis: 0, simple_sharding: [{ num_shards: 2 }] },
        { axis: -1, simple_sharding: [{ num_shards: 2 }] },
      ],
    },
  ],
};

test('shards and device groups of a file become layouts, its stage a stage', async (t) => {
  const { read, graph } = await annotated([columns]);
  const { pins, notes } = pinsOfModel(read, graph, MESH);
  t.deepEqual(notes, []);
  const [operator, stage] = pins;
  if (operator?.kind !== 'operator' || stage?.kind !== 'stage') throw new Error('an operator and its stage are pinned');
  const written = (demands: OperatorPin['operands']) =>
    demands?.map((demand) => (demand?.kind === 'layout' ? layoutText(demand.layout, MESH) : demand));
  t.deepEqual([written(operator.operands), written(operator.results)], [[null, '[-, tp]'], ['[dp, tp]']]);
  t.is(stage.stage, 0);
  t.is(operator.source.file, read.file);
});

test('a spec without devices says how often each dimension is cut', async (t) => {
  const spec = { tensor_name: 'y', sharded_dim: [{ axis: 0, simple_sharding: [{ num_shards: 4 }] }] };
  const { read, graph } = await annotated([{ configuration_id: 'four', sharding_spec: [spec] }]);
  const [pin] = pinsOfModel(read, graph, MESH).pins;
  t.deepEqual(pin?.kind === 'operator' && pin.results, [{ kind: 'split', counts: [4, 1] }]);
});

test('files for other devices, and files that say nothing, pin nothing', async (t) => {
  const { read, graph } = await annotated([columns], 16);
  const { pins, notes } = pinsOfModel(read, graph, MESH);
  t.deepEqual(pins, []);
  t.regex(notes.join(), /four for 16\) are not for 4 devices/);
  const plain = await readOnnx(
    await saved(model({ node: [node('Relu', ['x'], ['y'])], input: [value('x', [2])], output: [value('y', [2])] })),
  );
  t.is(plain.multiDevice, null);
  t.deepEqual(pinsOfModel(plain, graph, MESH), { pins: [], notes: [] });
});

/** The spec that a plan's writer would give for a tensor: its shards row by row, with the ranks that hold each. */
function specOf(text: string, shape: readonly number[], mesh: Mesh): ShardingSpec {
  const { dims } = parseLayout(text, shape, mesh);
  const cuts = dims.flatMap((pieces, axis) => pieces.map((piece) => ({ axis, ...piece })));
  const parts = cuts.map(({ axes }) => axes.reduce((product, name) => product * sizeOf(mesh, name), 1));
  const total = parts.reduce((product, count) => product * count, 1);
  const groups = new Map<number, number[]>(Array.from({ length: total }, (_, shard) => [-1 - shard, []]));
  for (let rank = 0; rank < deviceCount(mesh); rank++) {
    const shard = cuts.reduce((index, { axes }, cut) => index * (parts[cut] ?? 1) + indexOn(mesh, axes, rank), 0);
    groups.get(-1 - shard)?.push(rank);
  }
  return {
    tensor: 'y',
    devices: [...groups.keys()],
    groups,
    dims: dims.map((pieces, axis) => ({
      axis,
      pieces: pieces.map(({ size }, piece) => ({
        size: pieces.length > 1 ? size : null,
        parts: parts[cuts.findIndex((cut) => cut.axis === axis) + piece] ?? 1,
      })),
    })),
  };
}

function sizeOf(mesh: Mesh, name: string): number {
  return mesh.axes.flatMap(({ subAxes }) => subAxes).find((sub) => sub.name === name)?.size ?? 1;
}

test('any layout that is written comes back', async (t) => {
  const { graph } = await annotated([]);
  const mesh = makeMesh([
    ['dp', 2],
    ['sp', 3],
    ['tp', 4],
  ]);
  const big = { ...graph, tensors: new Map([...graph.tensors, ['y', { dtype: 'float32', shape: [48, 24] }] as const]) };
  const axes = ['dp', 'sp', 'tp.0', 'tp.1'];
  const layouts = fc.tuple(fc.shuffledSubarray(axes), fc.nat({ max: 4 }), fc.boolean()).map(([used, cut, pieced]) => {
    const list = (names: readonly string[]) => (names.length === 0 ? '-' : `(${names.join(',')})`);
    const first = pieced && cut > 0 ? `(2 | 24:${list(used.slice(0, cut))})` : list(used.slice(0, cut));
    return `[${cut === 0 ? '-' : used.length === 0 ? '-' : first}, ${list(used.slice(cut))}]`;
  });
  fc.assert(
    fc.property(layouts, (text) => {
      const spec = specOf(text, [48, 24], mesh);
      const placement = {
        node: 'fc',
        op: 'MatMul',
        outputs: ['y'],
        configuration: 'all',
        stage: null,
        tensors: [spec],
      };
      const multiDevice = { configurations: [{ name: 'all', devices: 24 }], placements: [placement] };
      const [pin] = pinsOfModel({ file: 'model.onnx', multiDevice }, big, mesh).pins;
      const demand = pin?.kind === 'operator' ? pin.results?.[0] : null;
      t.is(
        demand?.kind === 'layout' ? layoutText(demand.layout, mesh) : '',
        layoutText(parseLayout(text, [48, 24], mesh), mesh),
      );
    }),
    { numRuns: 300 },
  );
});

test('what is damaged or lies across the mesh is refused', async (t) => {
  const refusal = async (spec: object) => {
    const { read, graph } = await annotated([
      { configuration_id: 'four', sharding_spec: [{ tensor_name: 'y', ...spec }] },
    ]);
    const error = await refused(t, () => pinsOfModel(read, graph, MESH));
    t.is(error.code, 'pin-does-not-fit');
    return error.message;
  };
  const cut = (axis: number, num_shards: number) => [{ axis, simple_sharding: [{ num_shards }] }];
  t.regex(
    await refusal({ device: [0, 1], sharded_dim: cut(0, 2) }),
    /do not include each of the 4 devices exactly once/,
  );
  t.regex(
    await refusal({ device: [0, 1, 2, 2], sharded_dim: cut(0, 4) }),
    /do not include each of the 4 devices exactly once/,
  );
  t.regex(
    await refusal({ device: [0, 1, 2, 99], sharded_dim: cut(0, 4) }),
    /do not include each of the 4 devices exactly once/,
  );
  t.regex(await refusal({ device: [0, 1, 3, 2], sharded_dim: cut(0, 4) }), /do not follow the axes of the mesh/);
  t.regex(await refusal({ sharded_dim: cut(5, 2) }), /along dimension 5 does not fit its shape/);
  t.regex(await refusal({ sharded_dim: cut(0, 0) }), /along dimension 0 does not fit its shape/);
  t.regex(await refusal({ sharded_dim: cut(0, 100) }), /along dimension 0 does not fit its shape/);
});
