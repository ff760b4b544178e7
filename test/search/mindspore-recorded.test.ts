/**
 * @file Strategies that MindSpore's own tests record, beside what the search completes: under our cost model ours cost no more.
 */
import test from 'ava';
import { parseCluster } from '../../src/cost-model/cluster.js';
import type { Graph } from '../../src/ir/graph.js';
import { type PlanResult, plan } from '../../src/search/plan.js';
import type { OperatorPin, PinSource } from '../../src/sharding-propagation/pin.js';
import { GraphBuilder } from './small-graphs.js';

const source: PinSource = { file: null, line: null, text: 'recorded', priority: 0, why: null };

/** Split counts of an operator's operands and results, as MindSpore writes strategies. */
function split(node: string, operands: readonly number[][], results: readonly number[][] = []): OperatorPin {
  const demand = (counts: readonly number[]) => ({ kind: 'split' as const, counts });
  return { kind: 'operator', node, source, operands: operands.map(demand), results: results.map(demand) };
}

function planned(graph: Graph, devices: number, pins: readonly OperatorPin[]): Promise<PlanResult> {
  const options = { degrees: { dp: 1, tp: devices }, axes: 'free' as const, operatorPins: () => pins };
  return plan(graph, parseCluster(`1x${devices}:a100-sxm-80`, devices), options);
}

/** x [64, 32] · w [8, 32]ᵀ + y. */
function product(): Graph {
  const builder = new GraphBuilder();
  const x = builder.input('x', [64, 32]);
  const y = builder.input('y', [64, 8]);
  const made = builder.add('MatMul', 'MatMul', [x, builder.weight('w', [32, 8])]);
  return builder.build([builder.add('Add', 'Add', [made, y])]);
}

test('MatMul in ((4,2),(1,2)): MindSpore gives the Add ((4,2),(4,2))', async (t) => {
  // The weight is stored turned here, so its split is (2, 1).
  const given = split('MatMul', [
    [4, 2],
    [2, 1],
  ]);
  const recorded = split('Add', [
    [4, 2],
    [4, 2],
  ]);
  const [ours, theirs] = [await planned(product(), 8, [given]), await planned(product(), 8, [given, recorded])];
  t.true(ours.costNanoseconds <= theirs.costNanoseconds);
  t.log(`ours ${ours.costNanoseconds} ns, theirs ${theirs.costNanoseconds} ns`);
});

test('MatMul in ((4,2),(1,2)), out ((8,1)): MindSpore gives the Add ((8,1),(8,1))', async (t) => {
  const given = split(
    'MatMul',
    [
      [4, 2],
      [2, 1],
    ],
    [[8, 1]],
  );
  const recorded = split('Add', [
    [8, 1],
    [8, 1],
  ]);
  const [ours, theirs] = [await planned(product(), 8, [given]), await planned(product(), 8, [given, recorded])];
  t.true(ours.costNanoseconds <= theirs.costNanoseconds);
  t.log(`ours ${ours.costNanoseconds} ns, theirs ${theirs.costNanoseconds} ns`);
});

test('two matmuls on 16 devices: MindSpore splits the batch everywhere', async (t) => {
  const builder = new GraphBuilder();
  const x = builder.input('x', [128, 32]);
  const first = builder.add('first', 'MatMul', [x, builder.weight('a', [32, 64])]);
  const graph = builder.build([builder.add('second', 'MatMul', [first, builder.weight('b', [64, 64])])]);
  const batch = ['first', 'second'].map((node) =>
    split(node, [
      [16, 1],
      [1, 1],
    ]),
  );
  const [ours, theirs] = [await planned(graph, 16, []), await planned(graph, 16, batch)];
  t.true(ours.costNanoseconds <= theirs.costNanoseconds);
  t.log(`ours ${ours.costNanoseconds} ns, theirs ${theirs.costNanoseconds} ns`);
});
