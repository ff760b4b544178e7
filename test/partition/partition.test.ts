import test from 'ava';
import type { Graph, Node } from '../../src/ir/graph.js';
import { checkSharded } from '../../src/partition/check.js';
import { liveness } from '../../src/partition/liveness.js';
import { partition } from '../../src/partition/partition.js';
import type { ShardedGraph, ShardedNode, ShardedTensor } from '../../src/partition/sharded-graph.js';
import type { Layout } from '../../src/sharding-propagation/layout.js';
import { normalise } from '../../src/sharding-propagation/layout.js';
import { makeResharder } from '../../src/sharding-propagation/resharding.js';
import type { Strategy } from '../../src/sharding-propagation/strategy.js';
import { megatron, mlp } from './mlp.js';
import { shardedText } from './sharded-text.js';

function lowered(assignment = megatron()): ShardedGraph {
  return partition(
    mlp(),
    assignment,
    makeResharder(assignment.mesh, () => 1),
  );
}

test("Megatron's column/row pair has one all-reduce", (t) => {
  t.is(
    shardedText(lowered()),
    [
      'h = MatMul(x, w1)  [4, 16] of [8, 32] [dp, tp]',
      'a = Relu(h)  [4, 16] of [8, 32] [dp, tp]',
      'y/t0 = MatMul(a, w2)  [4, 16] of [8, 16] [dp, -] + partial(tp)',
      'y = all-reduce.sum(tp) y/t0  [4, 16] of [8, 16] [dp, -]',
    ].join('\n'),
  );
  t.deepEqual(checkSharded(lowered()), []);
});

test('weights are cut where they are read, and cost no communication', (t) => {
  const graph = lowered();
  const local = graph.weights.map(({ tensor }) => graph.tensors.get(tensor)?.localShape);
  t.deepEqual(local, [
    [16, 16],
    [16, 16],
  ]);
});

test('products with weights are marked: a session arranges those when it is loaded', (t) => {
  const stored = lowered().nodes.map((node) => node.kind === 'compute' && node.stored === true);
  t.deepEqual(stored, [true, false, true, false]);
});

test('a reader that wants another layout gets a redistribution', (t) => {
  const assignment = megatron();
  const strategies = new Map(assignment.strategies);
  strategies.set('a', { axes: { a0: ['dp'] }, partialOperands: null, pending: { kind: 'none' } });
  const rows: Layout = normalise([[{ size: 8, axes: ['dp'] }], [{ size: 32, axes: [] }]], [], assignment.mesh);
  const sharedReshards = assignment.sharedReshards.map((reshard) =>
    reshard.tensor === 'h' ? { ...reshard, layout: rows } : reshard,
  );
  const graph = lowered({ ...assignment, strategies, sharedReshards });
  const kinds = graph.nodes.map((node) =>
    node.kind === 'communicate' ? node.collective.kind : node.kind === 'compute' ? node.op : node.kind,
  );
  t.deepEqual(kinds, ['MatMul', 'all-gather', 'Relu', 'Reshape', 'Gather', 'Reshape', 'MatMul', 'all-reduce']);
  t.deepEqual(checkSharded(graph), []);
});

test('what gradients of weights and of activations read in one layout is made before the latter', (t) => {
  const base = mlp();
  const [h, a] = base.nodes as [Node, Node];
  const weightGradient: Node = { ...a, phase: 'backward-weight' };
  const inputGradient: Node = { ...a, name: 'b', group: 'b', outputs: ['b'], phase: 'backward-input' };
  const tensors = new Map([...base.tensors, ['b', { dtype: 'float32', shape: [8, 32] }] as const]);
  const graph: Graph = { ...base, nodes: [h, weightGradient, inputGradient], tensors, outputs: ['a', 'b'] };
  const assignment = megatron();
  const byRows: Strategy = { axes: { a0: ['dp'] }, partialOperands: null, pending: { kind: 'none' } };
  const layout = normalise([[{ size: 8, axes: ['dp'] }], [{ size: 32, axes: [] }]], [], assignment.mesh);
  const readers = ['a', 'b'].map((name) => ({ kind: 'operator', name, operand: 0 }) as const);
  const { nodes } = partition(
    graph,
    {
      ...assignment,
      strategies: new Map([...assignment.strategies, ['a', byRows], ['b', byRows]]),
      sharedReshards: [...assignment.sharedReshards.slice(0, 1), { tensor: 'h', readers, layout }],
    },
    makeResharder(assignment.mesh, () => 1),
  );
  const gathers = nodes.filter(({ kind }) => kind === 'communicate');
  t.deepEqual(
    gathers.map(({ phase }) => phase),
    ['backward-input'],
  );
});

test('liveness counts weights, operands and results of the fullest node', (t) => {
  const { peakBytes, at, bytesByTensor: held } = liveness(lowered());
  const weightBytes = 4 * (16 * 16 + 16 * 16);
  // At the all-reduce: its operand and its result; at the matmuls: two shards of [4, 16] each.
  t.is(peakBytes, weightBytes + 4 * (4 * 16 + 4 * 16));
  t.is(at, 'h');
  t.deepEqual(
    [...held()],
    [
      ['w1', 1024],
      ['w2', 1024],
      ['x', 256],
      ['h', 256],
    ],
  );
});

const withNode = (graph: ShardedGraph, index: number, change: (node: ShardedNode) => ShardedNode): ShardedGraph => ({
  ...graph,
  nodes: graph.nodes.map((node, position) => (position === index ? change(node) : node)),
});
const withTensor = (
  graph: ShardedGraph,
  name: string,
  change: (tensor: ShardedTensor) => ShardedTensor,
): ShardedGraph => ({
  ...graph,
  tensors: new Map([...graph.tensors].map(([key, tensor]) => [key, key === name ? change(tensor) : tensor])),
});
const problems = (graph: ShardedGraph) =>
  checkSharded(graph)
    .map((finding) => finding.problem)
    .join('; ');

test('the checker refuses a missing reduction', (t) => {
  const graph = lowered();
  const cut = { ...graph, nodes: graph.nodes.slice(0, 3), outputs: [{ tensor: 'y/t0', output: 'y' }] };
  t.regex(problems(cut), /partial or varying/);
});

test('the checker refuses a sum that is claimed to be whole', (t) => {
  const graph = withTensor(lowered(), 'y/t0', (tensor) => ({ ...tensor, layout: { ...tensor.layout, partial: [] } }));
  t.regex(problems(graph), /must be partial over tp/);
});

test('the checker refuses a partial value in a non-linear operator', (t) => {
  const partial = [{ axis: 'tp', reduction: 'sum' }] as const;
  const graph = withTensor(lowered(), 'h', (tensor) => ({ ...tensor, layout: { ...tensor.layout, partial } }));
  t.regex(problems(graph), /not linear|without a cause/);
});

test('the checker refuses operands that are cut differently', (t) => {
  const whole = normalise([[{ size: 32, axes: [] }], [{ size: 16, axes: [] }]]);
  const graph = withTensor(lowered(), 'w2', (tensor) => ({ ...tensor, layout: whole, localShape: [32, 16] }));
  t.regex(problems(graph), /does not fit its operands on a rank/);
});

test('the checker refuses an all-reduce over the wrong axis', (t) => {
  const graph = withNode(lowered(), 3, (node) => (node.kind === 'communicate' ? { ...node, axes: ['dp'] } : node));
  t.regex(problems(graph), /operand is not partial over dp/);
});

test('the checker refuses reading before writing', (t) => {
  const graph = lowered();
  t.regex(problems({ ...graph, nodes: [...graph.nodes].reverse() }), /before it is made/);
});
