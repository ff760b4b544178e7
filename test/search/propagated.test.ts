/**
 * @file Plans by propagation: sound, priced as they are lowered, no cheaper than what search finds, and right when they run.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { gpt } from '../../models/gpt.js';
import { llama } from '../../models/llama.js';
import { mlp } from '../../models/mlp.js';
import { importModel } from '../../src/api/models/import.js';
import { emit } from '../../src/api/output/emit.js';
import { verify } from '../../src/api/verify.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { priceGraph } from '../../src/cost-model/predict.js';
import type { Graph, Node } from '../../src/ir/graph.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { checkSharded } from '../../src/partition/check.js';
import { onlyStage } from '../../src/partition/lower-stages.js';
import { propagatedAssignment } from '../../src/search/by-propagation.js';
import { type PlanOptions, plan } from '../../src/search/plan.js';
import { parseLayout } from '../../src/sharding-propagation/layout-text.js';
import { type Mesh, makeMesh } from '../../src/sharding-propagation/mesh.js';
import type { OperatorPin, Pin, PinSource } from '../../src/sharding-propagation/pin.js';
import { propagate } from '../../src/sharding-propagation/propagation/propagate.js';
import { planOf } from '../../src/strategy/plan-of.js';
import { readersByTensor } from '../../src/strategy/readers.js';
import { convGraph, llamaGraph, mlpGraph, SMALL_LLAMA } from './small-graphs.js';

const source: PinSource = { file: null, line: null, text: 'pins[0]', priority: 0, why: null };
const CLUSTER = parseCluster('1x4:a100-sxm-80', 4);

const onTp = (node: string, factor: string): ((mesh: Mesh) => readonly Pin[]) => {
  return (mesh) => {
    const axes = mesh.axes.find(({ name }) => name === 'tp')?.subAxes.map(({ name }) => name) ?? [];
    return [{ kind: 'operator', node, source, axes: { [factor]: axes } } satisfies OperatorPin];
  };
};

const CASES: readonly { readonly name: string; readonly graph: Graph; readonly options: PlanOptions }[] = [
  { name: 'mlp, nothing pinned', graph: mlpGraph(8, 64, 256, 2), options: {} },
  { name: 'mlp, columns', graph: mlpGraph(8, 64, 256, 2), options: { operatorPins: onTp('layers.0.up', 'n') } },
  { name: 'mlp, rows', graph: mlpGraph(8, 64, 256, 2), options: { operatorPins: onTp('layers.0.up', 'k') } },
  {
    name: 'llama, query heads',
    graph: llamaGraph({ ...SMALL_LLAMA, batch: 4 }),
    options: { operatorPins: onTp('layers.0.q', 'n') },
  },
  {
    name: 'llama, vocabulary',
    graph: llamaGraph({ ...SMALL_LLAMA, batch: 4 }),
    options: { operatorPins: onTp('embed', 'v') },
  },
  {
    name: 'llama, sequence of a norm',
    graph: llamaGraph({ ...SMALL_LLAMA, batch: 4 }),
    options: { operatorPins: onTp('layers.1.norm2.square', 'a1') },
  },
  { name: 'convolutions, channels', graph: convGraph(4), options: { operatorPins: onTp('conv2', 'co') } },
];

for (const { name, graph, options } of CASES) {
  test(`sound, and searched plans with the same pins cost no more: ${name}`, async (t) => {
    const found = await plan(graph, CLUSTER, { ...options, mode: 'sharding_propagation' });
    t.deepEqual(checkSharded(onlyStage(found.lowered)), []);
    t.is(found.mode, 'sharding_propagation');
    t.is(priceGraph(onlyStage(found.lowered), CLUSTER), found.costNanoseconds);
    t.is(found.boundNanoseconds, 0, 'nothing is known of cheaper plans');
    t.truthy(found.propagation);
    const searched = await plan(graph, CLUSTER, options);
    t.true(searched.costNanoseconds <= found.costNanoseconds, `${searched.costNanoseconds} ${found.costNanoseconds}`);
  });
}

test('every reader is in exactly one view', (t) => {
  const graph = llamaGraph({ ...SMALL_LLAMA, batch: 4, layers: 1 });
  const mesh = makeMesh([
    ['dp', 2],
    ['tp', 2],
  ]);
  const propagation = propagate(graph, mesh, onTp('layers.0.q', 'n')(mesh));
  const { sharedReshards } = propagatedAssignment(graph, mesh, propagation);
  const served = sharedReshards.flatMap(({ tensor, readers }) =>
    readers.map((reader) => JSON.stringify([tensor, reader])),
  );
  const all = [...readersByTensor(graph)].flatMap(([tensor, readers]) =>
    readers.map((reader) => JSON.stringify([tensor, reader])),
  );
  t.deepEqual([...served].sort(), [...all].sort());
});

test('a pinned input is fed as it is pinned, whatever its readers take', async (t) => {
  const graph = mlpGraph(8, 64, 256);
  const operatorPins = (mesh: Mesh): readonly Pin[] => [
    { kind: 'tensor', tensor: 'x', source, demand: { kind: 'layout', layout: parseLayout('[-, tp]', [8, 64], mesh) } },
    { kind: 'operator', node: 'layers.0.up', source, axes: { k: [] } },
  ];
  const found = await plan(graph, CLUSTER, { mode: 'sharding_propagation', degrees: { dp: 1, tp: 4 }, operatorPins });
  t.deepEqual(found.assignment.inputs.get('x'), parseLayout('[-, tp]', [8, 64], found.assignment.mesh));
  t.deepEqual(checkSharded(onlyStage(found.lowered)), []);
});

test('heavy operators that no pin reaches are named, where a degree is pinned', async (t) => {
  const graph = mlpGraph(8, 64, 256, 1);
  const found = await plan(graph, CLUSTER, { mode: 'sharding_propagation', degrees: { dp: 2, tp: 2 } });
  t.deepEqual(
    found.exceptions.map(({ operator }) => operator),
    ['layers.0.up', 'layers.0.down'],
  );
  t.true(found.exceptions.every(({ reason }) => reason === 'tp 2 is not used: no pin reaches it'));
});

/** Writes a graph, plans it by propagation on two ranks of this machine, and verifies what runs. */
async function runs(t: ExecutionContext, graph: Graph, pins: (nodes: readonly Node[], mesh: Mesh) => readonly Pin[]) {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const model = join(folder, 'model.onnx');
  writeFileSync(model, writeOnnx(graph));
  const imported = await importModel(model);
  const cluster = parseCluster('local', 2);
  const found = await plan(imported.graph, cluster, {
    mode: 'sharding_propagation',
    degrees: pins === NONE ? { dp: 2, tp: 1 } : { dp: 1, tp: 2 },
    operatorPins: (mesh) => pins(imported.graph.nodes, mesh),
  });
  const planned = {
    imported,
    cluster,
    found,
    plan: planOf(found, imported, cluster),
    pipeline: null,
    recompute: () => null,
    notes: [],
  };
  const directory = join(folder, 'model.autopar');
  await emit(planned, { directory });
  const { passed } = await verify({ directory, model, seed: 1 });
  t.true(passed);
  return found;
}

const NONE = (): readonly Pin[] => [];

/** The pin on the first matmul with a weight in a module whose name ends so. */
const onFirst = (module: string, factor: string) => (nodes: readonly Node[]) => {
  const node = nodes.find(({ op, name }) => op === 'MatMul' && name.includes(module));
  if (!node) throw new Error(`no product in ${module}`);
  return [{ kind: 'operator', node: node.name, source, axes: { [factor]: ['tp'] } }] satisfies Pin[];
};

test('runs: data parallelism, with nothing pinned', async (t) => {
  const found = await runs(t, mlp('mlp', { batch: 8, widths: [16, 32, 16] }, 1), NONE);
  t.deepEqual(Object.keys(found.prediction.parts), ['compute', 'copies', 'segments']);
});

test("runs: Megatron's pair from one pin", async (t) => {
  const found = await runs(t, mlp('mlp', { batch: 8, widths: [16, 32, 16] }, 1), (nodes) => {
    const [node] = nodes.filter(({ op }) => op === 'MatMul');
    return [{ kind: 'operator', node: node?.name ?? '', source, axes: { n: ['tp'] } }];
  });
  t.deepEqual(Object.keys(found.prediction.parts), ['all-reduce(tp)', 'compute', 'copies', 'segments']);
});

test('runs: heads of one layer from the query', async (t) => {
  const sizes = { batch: 2, sequence: 8, layers: 1, width: 32, heads: 4, keyHeads: 2, feedForward: 64, vocabulary: 64 };
  await runs(t, llama('tiny', sizes, 1), onFirst('q_proj', 'n'));
});

test('runs: a vocabulary that lookup and head share', async (t) => {
  const graph = gpt('gpt', { batch: 2, sequence: 8, layers: 1, width: 32, heads: 4, vocabulary: 64 }, 2);
  await runs(t, graph, (nodes) => {
    const lookup = nodes.find(({ op }) => op === 'Gather');
    return [{ kind: 'operator', node: lookup?.name ?? '', source, axes: { v: ['tp'] } }];
  });
});
