/**
 * Propagation on small graphs: the effect of one pin on the rest, which pin and which tensor wins, and refusals.
 */
import test from 'ava';
import { gpt } from '../../../models/gpt.js';
import { AutoparError } from '../../../src/ir/error.js';
import type { ErrorCode } from '../../../src/ir/error-codes.js';
import type { Graph } from '../../../src/ir/graph.js';
import { layoutText, parseLayout } from '../../../src/sharding-propagation/layout-text.js';
import { type Mesh, makeMesh } from '../../../src/sharding-propagation/mesh.js';
import type { OperatorPin, Pin, TensorPin } from '../../../src/sharding-propagation/pin.js';
import { type Propagation, propagate } from '../../../src/sharding-propagation/propagation/propagate.js';
import { operatorChain, tensorChain } from '../../../src/sharding-propagation/propagation/reasons.js';
import { GraphBuilder, llamaGraph, mlpGraph, SMALL_LLAMA } from '../../search/small-graphs.js';

const mesh = (dp: number, tp: number): Mesh =>
  makeMesh([
    ['dp', dp],
    ['tp', tp],
  ]);
const MESH = mesh(2, 2);

const source = (index: number, priority = 0) => ({
  file: 'pins.yaml',
  line: index + 3,
  text: `pins[${index}]`,
  priority,
  why: null,
});

const operator = (node: string, pin: Partial<OperatorPin>, index = 0, priority = 0): OperatorPin => ({
  kind: 'operator',
  node,
  source: source(index, priority),
  ...pin,
});

function tensor(graph: Graph, name: string, text: string, index = 0, priority = 0, on = MESH): TensorPin {
  const layout = parseLayout(text, graph.tensors.get(name)?.shape ?? [], on);
  return { kind: 'tensor', tensor: name, source: source(index, priority), demand: { kind: 'layout', layout } };
}

const split = (counts: readonly number[]) => ({ kind: 'split' as const, counts });

const axesOf = (found: Propagation, node: string) => found.strategies.get(node)?.axes;

function layoutOf(found: Propagation, name: string): string {
  const layout = found.layouts.get(name);
  return layout ? layoutText(layout, found.mesh) : 'none';
}

test('without a pin everything that has a batch is cut over dp: data parallelism', (t) => {
  for (const graph of [mlpGraph(8, 64, 256, 2), llamaGraph({ ...SMALL_LLAMA, batch: 4 })]) {
    const found = propagate(graph, MESH, []);
    for (const node of graph.nodes) {
      const used = Object.values(axesOf(found, node.name) ?? {}).flat();
      t.deepEqual(used, ['dp'], node.name);
    }
    for (const weight of graph.weights.keys()) t.notRegex(layoutOf(found, weight), /dp|tp/);
  }
  const alone = propagate(mlpGraph(8, 64, 256), MESH, [], { batch: false });
  t.true([...alone.strategies.values()].every(({ axes }) => Object.keys(axes).length === 0));
});

test("one pin on the first matrix's columns makes Megatron's pair: rows of the second, one reduction", (t) => {
  const graph = mlpGraph(8, 64, 256, 2);
  const found = propagate(graph, MESH, [operator('layers.0.up', { axes: { n: ['tp'] } })]);
  t.deepEqual(axesOf(found, 'layers.0.up'), { m: ['dp'], n: ['tp'] });
  t.deepEqual(axesOf(found, 'layers.0.act'), { a0: ['dp'], a1: ['tp'] });
  t.deepEqual(axesOf(found, 'layers.0.down'), { m: ['dp'], k: ['tp'] });
  t.deepEqual(found.strategies.get('layers.0.down')?.pending, { kind: 'all-reduce' });
  t.is(layoutOf(found, 'layers.0.A'), '[-, tp]');
  t.is(layoutOf(found, 'layers.0.B'), '[tp, -]');
  t.deepEqual(axesOf(found, 'layers.1.up'), { m: ['dp'] }, 'nothing passes the reduction');
  const chain = tensorChain(found.reasons, 'layers.0.B', 'tp');
  t.deepEqual(
    chain.map((step) => (step.at === 'tensor' ? step.tensor : step.at === 'operator' ? step.node : step.at)),
    ['layers.0.B', 'layers.0.down', 'layers.0.act', 'layers.0.act', 'layers.0.up', 'layers.0.up', 'pin'],
  );
  t.is(operatorChain(found.reasons, 'layers.1.up', 'm', 'dp').at(-1)?.at, 'batch');
});

test('a pin on the second matrix reaches back to the first', (t) => {
  const found = propagate(mlpGraph(8, 64, 256), MESH, [operator('layers.0.down', { axes: { k: ['tp'] } })]);
  t.deepEqual(axesOf(found, 'layers.0.up'), { m: ['dp'], n: ['tp'] });
});

test("heads: from the query's projection to key, value and output", (t) => {
  const graph = llamaGraph({ ...SMALL_LLAMA, batch: 4, layers: 1 });
  const found = propagate(graph, MESH, [operator('layers.0.q', { axes: { n: ['tp'] } })]);
  for (const name of ['q', 'k', 'v']) t.deepEqual(axesOf(found, `layers.0.${name}`), { b0: ['dp'], n: ['tp'] }, name);
  t.deepEqual(axesOf(found, 'layers.0.scores'), { b0: ['dp'], b1: ['tp'] });
  t.deepEqual(axesOf(found, 'layers.0.o'), { b0: ['dp'], k: ['tp'] });
  t.is(layoutOf(found, 'layers.0.o'), '[dp, -, -]');
  t.deepEqual(axesOf(found, 'layers.0.gate'), { b0: ['dp'] });
});

test('two key heads on tp 4 take the part of the axis that they can', (t) => {
  const graph = llamaGraph({ ...SMALL_LLAMA, layers: 1 });
  const found = propagate(graph, mesh(1, 4), [operator('layers.0.q', { axes: { n: ['tp.0', 'tp.1'] } })]);
  t.deepEqual(axesOf(found, 'layers.0.scores'), { b1: ['tp.0', 'tp.1'] });
  t.deepEqual(axesOf(found, 'layers.0.k'), { n: ['tp.0'] });
  t.deepEqual(axesOf(found, 'layers.0.v'), { n: ['tp.0'] });
});

test("the embedding's vocabulary is the head's, where they share the table", (t) => {
  const graph = gpt('gpt', { batch: 4, sequence: 16, layers: 1, width: 32, heads: 4, vocabulary: 64 }, 2);
  const table = [...graph.weights.keys()].find((name) => name === 'wte.weight') ?? '';
  const found = propagate(graph, MESH, [tensor(graph, table, '[tp, -]')]);
  const [lookup] = graph.nodes.filter((node) => node.op === 'Gather' && node.inputs[0] === table);
  t.deepEqual(axesOf(found, lookup?.name ?? ''), { v: ['tp'], i0: ['dp'] });
  t.deepEqual(found.strategies.get(lookup?.name ?? '')?.pending, { kind: 'all-reduce' });
  t.deepEqual(axesOf(found, graph.nodes.at(-1)?.name ?? ''), { b0: ['dp'], n: ['tp'] });
  t.is(layoutOf(found, 'logits'), '[dp, -, tp]');
});

/** A fused projection whose readers see (3 | heads | size). */
function fusedGraph(): Graph {
  const builder = new GraphBuilder();
  const x = builder.input('x', [4, 8, 32]);
  const fused = builder.add('fused', 'MatMul', [x, builder.weight('w', [32, 96])]);
  const biased = builder.add('biased', 'Add', [fused, builder.weight('bias', [96])]);
  const parts = builder.add('parts', 'Reshape', [biased], { shape: [4, 8, 3, 4, 8] });
  return builder.build([builder.add('out', 'Relu', [parts])]);
}

test('a fused projection is cut within each of its parts', (t) => {
  const backward = propagate(fusedGraph(), MESH, [operator('out', { axes: { a3: ['tp'] } })]);
  t.deepEqual(axesOf(backward, 'fused'), { b0: ['dp'], 'n.1': ['tp'] });
  t.deepEqual(backward.strategies.get('fused')?.pieces, { n: [3, 32] });
  t.is(layoutOf(backward, 'w'), '[-, (3 | 32:tp)]');
  const forward = propagate(fusedGraph(), MESH, [operator('fused', { axes: { n: ['tp'] }, eitherPiece: ['n'] })]);
  t.deepEqual(axesOf(forward, 'fused'), axesOf(backward, 'fused'));
  t.deepEqual(axesOf(forward, 'out'), { a0: ['dp'], a3: ['tp'] });
});

test('a dimension that is batch and sequence takes both, whichever comes first', (t) => {
  const builder = new GraphBuilder();
  const x = builder.input('x', [4, 8, 32]);
  const flat = builder.add('flat', 'Reshape', [x], { shape: [32, 32] });
  const y = builder.add('y', 'MatMul', [flat, builder.weight('w', [32, 16])]);
  const graph = builder.build([builder.add('out', 'Reshape', [y], { shape: [4, 8, 16] })]);
  const found = propagate(graph, MESH, [operator('out', { axes: { b: ['tp'] } })]);
  t.is(layoutOf(found, 'out'), '[dp, tp, -]');
  t.deepEqual(found.strategies.get('y')?.pieces, { m: [4, 8] });
  t.deepEqual(axesOf(found, 'y'), { 'm.0': ['dp'], 'm.1': ['tp'] });
});

test('sizes that an axis does not divide are padded', (t) => {
  const graph = mlpGraph(8, 12, 10);
  const found = propagate(graph, mesh(1, 4), [operator('layers.0.up', { axes: { n: ['tp.0', 'tp.1'] } })]);
  t.deepEqual(axesOf(found, 'layers.0.down'), { k: ['tp.0', 'tp.1'] });
  t.is(layoutOf(found, 'layers.0.act'), '[-, tp]');
});

test('where two tensors disagree the larger one wins, unless the other has priority', (t) => {
  const product = (rows: number, columns: number): Graph => {
    const builder = new GraphBuilder();
    const [a, b] = [builder.input('a', [rows, 16]), builder.input('b', [16, columns])];
    return builder.build([builder.add('y', 'MatMul', [a, b])]);
  };
  for (const [rows, columns, wins] of [
    [64, 8, 'm'],
    [8, 64, 'n'],
  ] as const) {
    const graph = product(rows, columns);
    const pins = (priority: number) => [tensor(graph, 'a', '[tp, -]'), tensor(graph, 'b', '[-, tp]', 1, priority)];
    t.deepEqual(axesOf(propagate(graph, MESH, pins(0), { batch: false }), 'y'), { [wins]: ['tp'] });
    t.deepEqual(axesOf(propagate(graph, MESH, pins(1), { batch: false }), 'y'), { n: ['tp'] });
    t.is(layoutOf(propagate(graph, MESH, pins(1)), 'a'), '[tp, -]', 'the pinned input is fed as it was pinned');
  }
});

test('what is summed is scattered where the result is to have just those axes', (t) => {
  const graph = mlpGraph(8, 64, 256);
  const down = operator('layers.0.down', { axes: { k: ['tp'] } });
  const found = propagate(graph, mesh(1, 2), [down, tensor(graph, 'layers.0.down', '[tp, -]', 1, 0, mesh(1, 2))]);
  t.deepEqual(found.strategies.get('layers.0.down')?.pending, { kind: 'scatter', factor: 'm' });
  t.is(layoutOf(found, 'layers.0.down'), '[tp, -]');
});

test('partial sums are left where a pin asks for them, and nowhere else', (t) => {
  const graph = mlpGraph(8, 64, 256);
  const on = mesh(1, 2);
  const found = propagate(graph, on, [
    tensor(graph, 'layers.0.down', '[-, -] + partial(tp)', 0, 0, on),
    operator('layers.0.down', { axes: { k: ['tp'] } }, 1),
  ]);
  t.deepEqual(found.strategies.get('layers.0.down'), {
    axes: { k: ['tp'] },
    partialOperands: null,
    pending: { kind: 'none' },
  });
});

test('split counts get axes in the order of the mesh, dp last where the batch is not', (t) => {
  const graph = mlpGraph(8, 64, 256);
  const pin = (counts: readonly [readonly number[], readonly number[]]) =>
    propagate(graph, mesh(2, 4), [operator('layers.0.up', { operands: [split(counts[0]), split(counts[1])] })]);
  t.deepEqual(axesOf(pin([[2, 1], [1, 4]]), 'layers.0.up'), { m: ['dp'], n: ['tp.0', 'tp.1'] }); // biome-ignore format: a table
  t.deepEqual(axesOf(pin([[2, 1], [1, 4]]), 'layers.0.down'), { m: ['dp'], k: ['tp.0', 'tp.1'] }); // biome-ignore format: a table
  t.deepEqual(axesOf(pin([[1, 2], [2, 1]]), 'layers.0.up'), { k: ['tp.0'] }); // biome-ignore format: a table
  t.deepEqual(axesOf(pin([[8, 1], [1, 1]]), 'layers.0.up'), { m: ['dp', 'tp.0', 'tp.1'] }); // biome-ignore format: a table
});

test('split counts of neighbours agree on the axes that they share', (t) => {
  const graph = mlpGraph(8, 64, 256);
  const found = propagate(graph, mesh(2, 2), [
    operator('layers.0.up', { operands: [split([2, 1]), split([1, 2])] }),
    operator('layers.0.down', { operands: [split([1, 2]), split([2, 1])] }, 1),
  ]);
  t.deepEqual(axesOf(found, 'layers.0.up')?.['n'], axesOf(found, 'layers.0.down')?.['k']);
});

test("MindSpore's MatMul and Add: in ((4, 2), (2, 1)), the result followed, or asked for as (8, 1)", (t) => {
  const builder = new GraphBuilder();
  const product = builder.add('product', 'MatMul', [builder.input('x', [64, 32]), builder.weight('w', [32, 8])]);
  const graph = builder.build([builder.add('sum', 'Add', [product, builder.input('y', [64, 8])])]);
  const operands = [split([4, 2]), split([2, 1])];
  const on = mesh(8, 1);
  const free = propagate(graph, on, [operator('product', { operands })], { batch: false });
  t.deepEqual(axesOf(free, 'product'), { m: ['dp.0', 'dp.1'], k: ['dp.2'] });
  t.deepEqual(axesOf(free, 'sum'), { a0: ['dp.0', 'dp.1'] });
  const shared = propagate(graph, on, [operator('product', { operands })]);
  t.deepEqual(
    shared.strategies.get('product')?.pending,
    { kind: 'scatter', factor: 'm' },
    'the batch of y asks for it',
  );
  const asked = propagate(graph, on, [operator('product', { operands, results: [split([8, 1])] })]);
  t.deepEqual(asked.strategies.get('product')?.pending, { kind: 'scatter', factor: 'm' });
  t.deepEqual(axesOf(asked, 'sum'), { a0: ['dp.0', 'dp.1', 'dp.2'] });
});

test('a pin of lower priority gives way where it contradicts, and is named', (t) => {
  const graph = mlpGraph(8, 64, 256);
  const found = propagate(graph, MESH, [
    operator('layers.0.up', { axes: { n: ['tp'] } }, 0, 1),
    operator('layers.0.up', { axes: { n: [] } }, 1, 0),
  ]);
  t.deepEqual(axesOf(found, 'layers.0.up')?.['n'], ['tp']);
  t.deepEqual(found.overruled, [{ pin: source(1, 0), by: source(0, 1), at: 'layers.0.up' }]);
});

test('later priorities are not overrun by earlier ones', (t) => {
  const graph = mlpGraph(8, 64, 256);
  const found = propagate(graph, MESH, [
    operator('layers.0.up', { axes: { n: ['tp'] } }, 0, 5),
    operator('layers.0.down', { axes: { k: [], n: ['tp'] } }, 1, 0),
  ]);
  t.deepEqual(axesOf(found, 'layers.0.down'), { m: ['dp'], n: ['tp'] }, 'a redistribution between satisfies both');
});

const refusals: readonly {
  readonly title: string;
  readonly pins: (graph: Graph) => readonly Pin[];
  readonly says: RegExp;
  readonly code?: ErrorCode;
}[] = [
  {
    title: 'a weight and an operator that reads it',
    pins: (graph) => [tensor(graph, 'layers.0.A', '[dp, -]'), operator('layers.0.up', { axes: { k: ['tp'] } }, 1)],
    says: new RegExp(
      /pins\[0\] \(line 3\) and pins\[1\] \(line 4\).*on layers\.0\.up: factor k is on dp by the first /.source +
        /and on tp by the second, on the path layers\.0\.A → layers\.0\.up/.source,
    ),
  },
  {
    title: 'a weight and what is computed with it',
    pins: (graph) => [tensor(graph, 'layers.0.A', '[-, tp]'), tensor(graph, 'layers.0.up', '[tp, -]', 1)],
    says: /factor [mn] is .*on the path layers\.0\.A → layers\.0\.up/,
  },
  {
    title: 'two pins of one operator on one axis',
    pins: () => [operator('layers.0.up', { axes: { m: ['tp'] } }), operator('layers.0.up', { axes: { n: ['tp'] } }, 1)],
    says: /tp shards factor m by the first and factor n by the second/,
  },
  {
    title: 'axes against a count',
    pins: () => [
      operator('layers.0.up', { axes: { n: ['tp'] } }),
      operator('layers.0.up', { operands: [null, split([1, 4])] }, 1),
    ],
    says: /factor n is on tp by the first and in 4 parts by the second/,
  },
  {
    title: 'two layouts of one tensor',
    pins: (graph) => [tensor(graph, 'x', '[dp, -]'), tensor(graph, 'x', '[tp, -]', 1)],
    says: /on x: dimension 0 differs, it is \[dp, -\] by the first and \[tp, -\] by the second/,
  },
  {
    title: 'an axis that one keeps off',
    pins: () => [operator('layers.0.up', { without: ['tp'] }), operator('layers.0.up', { axes: { n: ['tp'] } }, 1)],
    says: /the first excludes tp, and the second shards factor n over it/,
  },
  {
    title: 'a count that the axes do not make',
    code: 'pin-cannot-be-kept',
    pins: () => [operator('layers.0.up', { operands: [split([3, 1]), split([1, 1])] })],
    says: /pins\[0\].*MatMul layers\.0\.up.*m k.*factor m cannot be in 3 parts/,
  },
];

for (const { title, pins, says, code = 'pins-contradict' } of refusals) {
  test(`refused: ${title}`, (t) => {
    const graph = mlpGraph(8, 64, 256);
    const error = t.throws(() => propagate(graph, MESH, pins(graph)), { instanceOf: AutoparError });
    t.is((error as AutoparError).code, code);
    t.is((error as AutoparError).exit, 'noPlan');
    t.regex(error?.message ?? '', says);
    t.is((error as AutoparError).where.file, 'pins.yaml');
  });
}

test('pins that a redistribution between can satisfy do not contradict', (t) => {
  const graph = mlpGraph(8, 64, 256);
  const pins = [tensor(graph, 'layers.0.up', '[-, tp]'), operator('layers.0.act', { axes: { a0: ['tp'] } }, 1)];
  const found = propagate(graph, MESH, pins);
  t.is(layoutOf(found, 'layers.0.up'), '[-, tp]');
  t.deepEqual(axesOf(found, 'layers.0.act')?.['a0'], ['tp']);
});
