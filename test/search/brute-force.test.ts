/**
 * @file The group graph against brute force: every combination of candidates and view layouts of a small graph is lowered
 * and priced; none is cheaper than what the search found.
 */
import test from 'ava';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { type Graph, type Node, typeOf } from '../../src/ir/graph.js';
import { accumulator } from '../../src/ir/ops/accumulate.js';
import { operatorFactsOf } from '../../src/search/operator-facts.js';
import { searchPins } from '../../src/search/pinned.js';
import { searchMesh } from '../../src/search/search-mesh.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import type { OperatorPin } from '../../src/sharding-propagation/pin.js';
import { Deadline } from '../../src/solver/deadline.js';
import { slowTests } from '../selection.js';
import { diamond, everyPlan } from './every-plan.js';
import { GraphBuilder, mlpGraph } from './small-graphs.js';

for (const [name, graph] of [
  ['a chain', mlpGraph(6, 64, 96)],
  ['a diamond', diamond()],
] as const) {
  for (const cluster of ['local', '2x1:l40s']) {
    const declare = slowTests(test, name === 'a diamond' && cluster === 'local');
    declare(`no combination is cheaper: ${name}, ${cluster}`, async (t) => {
      t.is(await solve(graph, cluster), cheapest(graph, cluster));
    });
    declare(`no combination that keeps the pins is cheaper: ${name}, ${cluster}`, async (t) => {
      for (const pin of PINS[name]) {
        const pinned = await solve(graph, cluster, [pin]);
        t.is(pinned, cheapest(graph, cluster, [pin]));
        t.true(pinned >= (await solve(graph, cluster)));
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
    { ...relu, phase: 'update', inputs: ['sum'] },
  ];
  const tensors = new Map([...graph.tensors, ['sum', typeOf(graph, 'projected')] as const]);
  return { ...graph, nodes, tensors, microBatches: { count: 3, cut: new Map([['x', 0]]) } };
}

for (const cluster of ['local', '2x1:l40s']) {
  test(`no combination is cheaper: micro-batches, ${cluster}`, async (t) => {
    const graph = summed();
    t.is(await solve(graph, cluster), cheapest(graph, cluster));
    // Without micro-batches the same operators run once.
    const { microBatches: _, ...once } = graph;
    t.true((await solve(graph, cluster)) > (await solve(once, cluster)));
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

/** Pins that a person might write; each leaves the rest to the search. */
const PINS: Readonly<Record<'a chain' | 'a diamond', readonly OperatorPin[]>> = {
  'a chain': [
    pinOn('layers.0.up', { n: ['tp'] }),
    pinOn('layers.0.up', { k: ['tp'] }),
    pinOn('layers.0.down', { n: ['tp'] }),
  ],
  'a diamond': [pinOn('projected', { k: ['tp'] }), pinOn('left', { k: ['tp'] }), pinOn('right', { a1: ['tp'] })],
};

async function solve(graph: Graph, text: string, pins: readonly OperatorPin[] = []): Promise<number> {
  const factsOf = operatorFactsOf(graph);
  const found = await searchMesh(graph, mesh, parseCluster(text, 2), {
    ...{ mode: 'dynamic_programming', solver: 'none', deadline: new Deadline() },
    axes: 'roles',
    pinned: PINNED,
    factsOf,
    pins: searchPins(graph, pins),
  });
  return found.cost;
}

function cheapest(graph: Graph, text: string, pins: readonly OperatorPin[] = []): number {
  return everyPlan(graph, mesh, parseCluster(text, 2), { pinned: PINNED, pins }).reduce(
    (least, { cost }) => Math.min(least, cost),
    Infinity,
  );
}
