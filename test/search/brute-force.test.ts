/**
 * @file The group graph against brute force: every combination of candidates and view layouts of a small graph is lowered
 * and priced; none is cheaper than what the search found.
 */
import test from 'ava';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { priceGraph } from '../../src/cost-model/predict.js';
import { stepPrice } from '../../src/cost-model/price.js';
import { type Graph, type Node, typeOf } from '../../src/ir/graph.js';
import { accumulator } from '../../src/ir/ops/accumulate.js';
import { viewOf } from '../../src/ir/view.js';
import type { View } from '../../src/partition/assignment.js';
import { partition } from '../../src/partition/partition.js';
import { candidatesOf } from '../../src/search/candidates.js';
import { operatorQuestions } from '../../src/search/operator-questions.js';
import { searchPins } from '../../src/search/pinned.js';
import { solveMesh } from '../../src/search/solve-mesh.js';
import { type Layout, layoutKey } from '../../src/sharding-propagation/layout.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import type { OperatorPin } from '../../src/sharding-propagation/pin.js';
import { makeRedistributor } from '../../src/sharding-propagation/redistribution.js';
import { readersByTensor } from '../../src/strategy/readers.js';
import { GraphBuilder, mlpGraph } from './small-graphs.js';

/** One projection read by two operators whose results are joined: the projection's redistribution is shared. */
function diamond(): Graph {
  const builder = new GraphBuilder();
  const x = builder.input('x', [6, 64]);
  const projected = builder.add('projected', 'MatMul', [x, builder.weight('A', [64, 96])]);
  const left = builder.add('left', 'MatMul', [projected, builder.weight('B', [96, 5])]);
  const right = builder.add('right', 'Softmax', [projected], { axis: -1 });
  const total = builder.add('total', 'MatMul', [right, builder.weight('C', [96, 5])]);
  return builder.build([builder.add('sum', 'Add', [left, total])]);
}

for (const [name, graph] of [
  ['a chain', mlpGraph(6, 64, 96)],
  ['a diamond', diamond()],
] as const) {
  for (const cluster of ['local', '2x1:l40s']) {
    test(`no combination is cheaper: ${name}, ${cluster}`, (t) => {
      t.is(solve(graph, cluster), cheapest(graph, cluster));
    });
    test(`no combination that keeps the pins is cheaper: ${name}, ${cluster}`, (t) => {
      for (const pin of PINS[name]) {
        const pinned = solve(graph, cluster, [pin]);
        t.is(pinned, cheapest(graph, cluster, [pin]));
        t.true(pinned >= solve(graph, cluster));
      }
    });
  }
}

/** A projection summed up over three micro-batches, of which the step's own operator reads the sum. */
function summed(): Graph {
  const builder = new GraphBuilder();
  const x = builder.input('x', [6, 64]);
  const projected = builder.add('projected', 'MatMul', [x, builder.weight('A', [64, 96])]);
  const graph = builder.build([builder.add('relu', 'Relu', [projected])]);
  const [product, relu] = graph.nodes as [Node, Node];
  const nodes: readonly Node[] = [
    product,
    accumulator('projected', 'sum', product),
    { ...relu, scope: 'step', inputs: ['sum'] },
  ];
  const tensors = new Map([...graph.tensors, ['sum', typeOf(graph, 'projected')] as const]);
  return { ...graph, nodes, tensors, microBatches: { count: 3, cut: new Map([['x', 0]]) } };
}

for (const cluster of ['local', '2x1:l40s']) {
  test(`no combination is cheaper: micro-batches, ${cluster}`, (t) => {
    const graph = summed();
    t.is(solve(graph, cluster), cheapest(graph, cluster));
    // Without micro-batches the same operators run once.
    const { microBatches: _, ...once } = graph;
    t.true(solve(graph, cluster) > solve(once, cluster));
  });
}

const mesh = makeMesh([
  ['dp', 1],
  ['tp', 2],
]);
const PINNED = new Set(['tp']);

const pinOn = (node: string, axes: OperatorPin['axes']): OperatorPin => ({
  kind: 'operator',
  node,
  source: { file: null, line: null, text: `pin on ${node}`, priority: 0, why: null },
  ...(axes ? { axes } : {}),
});

/** What a person might write; each leaves the rest to the search. */
const PINS: Readonly<Record<'a chain' | 'a diamond', readonly OperatorPin[]>> = {
  'a chain': [
    pinOn('layers.0.up', { n: ['tp'] }),
    pinOn('layers.0.up', { k: ['tp'] }),
    pinOn('layers.0.down', { n: ['tp'] }),
  ],
  'a diamond': [pinOn('projected', { k: ['tp'] }), pinOn('left', { k: ['tp'] }), pinOn('right', { a1: ['tp'] })],
};

function solve(graph: Graph, text: string, pins: readonly OperatorPin[] = []): number {
  const questions = operatorQuestions(graph);
  return solveMesh(graph, mesh, parseCluster(text, 2), {
    axes: 'roles',
    pinned: PINNED,
    questions,
    pins: searchPins(graph, pins),
  }).cost;
}

function cheapest(graph: Graph, text: string, pins: readonly OperatorPin[] = []): number {
  const cluster = parseCluster(text, 2);
  const redistributor = makeRedistributor(mesh, stepPrice(cluster, mesh));
  const readers = [...readersByTensor(graph)];
  const sets = graph.nodes.map((node) => ({
    node,
    set: candidatesOf({
      view: viewOf(graph, node),
      mesh,
      cluster,
      // The first dimension of every operand and result is the batch here.
      batch: new Set([node.op === 'MatMul' ? 'm' : 'a0']),
      weights: node.inputs.map((input) => input !== null && graph.weights.has(input)),
      axes: 'roles',
      pinned: PINNED,
      // Beside the products, only the softmax is among what does nine tenths of the work.
      heavy: node.op === 'Softmax',
      hints: new Map(),
      pins: pins.filter((pin) => pin.node === node.name),
    }),
  }));
  let least = Infinity;
  forAll(
    sets.map(({ set }) => set.strategies.length),
    (choice) => {
      const state = new Map(sets.map(({ node, set }, index) => [node.name, { set, index: choice[index] as number }]));
      const demanded = (name: string, operand: number) => {
        const chosen = state.get(name);
        return chosen?.set.operands[chosen.index]?.[operand] as Layout;
      };
      const options = readers.map(([tensor, list]) => {
        const producer = graph.nodes.find((node: Node) => node.outputs.includes(tensor));
        const chosen = producer && state.get(producer.name);
        const produced = chosen ? [chosen.set.results[chosen.index]?.[0] as Layout] : [];
        const wanted = list.flatMap((reader) =>
          reader.kind === 'operator' ? [demanded(reader.name, reader.operand)] : [],
        );
        const isOutput = list.some((reader) => reader.kind === 'output');
        const all = isOutput ? produced.filter((layout) => layout.partial.length === 0) : [...produced, ...wanted];
        return [...new Map(all.map((layout) => [layoutKey(layout), layout])).values()];
      });
      const strategies = new Map(
        [...state].map(([name, { set, index }]) => [name, set.strategies[index] as (typeof set.strategies)[number]]),
      );
      forAll(
        options.map((list) => list.length),
        (picks) => {
          const views: View[] = readers.map(([tensor, list], index) => ({
            tensor,
            readers: list,
            layout: options[index]?.[picks[index] as number] as Layout,
          }));
          const inputs = new Map(
            graph.inputs.flatMap((input) => {
              const view = views.find((candidate) => candidate.tensor === input);
              return view && view.layout.partial.length === 0 ? [[input, view.layout] as const] : [];
            }),
          );
          if (inputs.size < graph.inputs.length) return;
          least = Math.min(
            least,
            priceGraph(partition(graph, { mesh, strategies, inputs, views }, redistributor), cluster),
          );
        },
      );
    },
  );
  return least;
}

/** Calls `visit` with every combination of numbers below the sizes. */
function forAll(sizes: readonly number[], visit: (choice: readonly number[]) => void): void {
  if (sizes.some((size) => size === 0)) return;
  const choice = sizes.map(() => 0);
  for (;;) {
    visit(choice);
    let digit = choice.length - 1;
    while (digit >= 0 && choice[digit] === (sizes[digit] as number) - 1) choice[digit--] = 0;
    if (digit < 0) return;
    choice[digit] = (choice[digit] as number) + 1;
  }
}
