/**
 * @file Memory limits inside the search: against brute force over every lowered plan of small graphs, and uses against liveness.
 */
import test from 'ava';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { fusesBlocks } from '../../src/cost-model/device.js';
import { AutoparError } from '../../src/ir/error.js';
import type { Graph, Node } from '../../src/ir/graph.js';
import { typeOf } from '../../src/ir/graph.js';
import { accumulator } from '../../src/ir/ops/accumulate.js';
import { liveness } from '../../src/partition/liveness.js';
import { partition } from '../../src/partition/partition.js';
import { bySearch } from '../../src/search/by-search.js';
import type { Fitting } from '../../src/search/completion.js';
import { costOf } from '../../src/search/cost-problem.js';
import { Deadline } from '../../src/search/deadline.js';
import { fitProblem } from '../../src/search/fit-memory.js';
import { memoryUses } from '../../src/search/memory-uses.js';
import { meshProblem } from '../../src/search/mesh-problem.js';
import { operatorQuestions } from '../../src/search/operator-questions.js';
import { plan } from '../../src/search/plan.js';
import { generator } from '../../src/search/solver/generator.js';
import { peakOf } from '../../src/search/solver/limited-problem.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import { draws } from '../selection.js';
import { diamond, everyPlan } from './every-plan.js';
import { llamaGraph, mlpGraph, SMALL_LLAMA } from './small-graphs.js';

const MESH = makeMesh([
  ['dp', 1],
  ['tp', 2],
]);
/** No degree is given, so that an operator may also run whole: less communication, and more memory. */
const PINNED = new Set<string>();
const MLP = mlpGraph(6, 64, 96);

for (const [name, graph] of [
  ['a chain', MLP],
  ['a diamond', diamond()],
] as const) {
  for (const text of ['local', '2x1:l40s']) {
    test(`within a memory limit no combination is cheaper: ${name}, ${text}`, async (t) => {
      const cluster = parseCluster(text, 2);
      const all = everyPlan(graph, MESH, cluster, { pinned: PINNED });
      const peaks = [...new Set(all.map(({ peak }) => peak))].sort((a, b) => a - b);
      const found = await bySearch('auto', 'highs').solve(graph, MESH, cluster, {
        axes: 'roles',
        pinned: PINNED,
        questions: operatorQuestions(graph),
        allToAll: true,
        pins: [],
        deadline: new Deadline(),
      });
      const within = found.within as (limit: number) => Promise<Fitting>;
      const spread = Array.from({ length: 4 }, (_, step) => peaks[Math.floor((step * (peaks.length - 1)) / 4)] ?? 0);
      // Just above the least there is one plan, whose uses say little more than those of others that do not fit.
      const limits = new Set([...spread, ...peaks.slice(1, 3)]);
      let binding = 0;
      for (const limit of limits) {
        const least = all.reduce((cost, plan) => (plan.peak <= limit ? Math.min(cost, plan.cost) : cost), Infinity);
        const { completed, atLeast } = await within(limit);
        t.is(completed?.cost, least, `within ${limit}`);
        t.true((completed?.bound ?? Infinity) <= least);
        t.true(atLeast <= limit);
        if (least > found.cost) binding += 1;
      }
      t.true(binding > 0);
      const [smallest = 0] = peaks;
      for (const limit of [smallest - 1, Math.floor(0.9 * smallest), Math.floor(0.2 * smallest)]) {
        const nothing = await within(limit);
        t.is(nothing.completed, null);
        t.true(nothing.atLeast <= smallest && smallest <= nothing.least, `within ${limit}: ${JSON.stringify(nothing)}`);
      }
    });
  }
}

test('without time for an answer no plan is called cheaper than any can be, and no need is overstated', async (t) => {
  const graph = diamond();
  const cluster = parseCluster('local', 2);
  const all = everyPlan(graph, MESH, cluster, { pinned: PINNED });
  const peaks = [...new Set(all.map(({ peak }) => peak))].sort((a, b) => a - b);
  const options = { axes: 'roles', pinned: PINNED, questions: operatorQuestions(graph), allToAll: true } as const;
  const problem = meshProblem(graph, MESH, cluster, options);
  for (const limit of [(peaks[0] ?? 0) - 1, ...peaks.filter((_, index) => index % 8 === 0)]) {
    const least = all.reduce((cost, plan) => (plan.peak <= limit ? Math.min(cost, plan.cost) : cost), Infinity);
    const search = { deadline: new Deadline(0), mode: 'auto', solver: 'highs' } as const;
    const { completed, atLeast } = await fitProblem(problem, search, limit);
    t.true((completed?.bound ?? 0) <= least, `within ${limit}`);
    t.true(atLeast <= (peaks[0] ?? 0), `within ${limit}`);
  }
});

/** Summed up over three micro-batches, then read by the step's own operator. */
function summed(): Graph {
  const [up, act, down] = MLP.nodes as [Node, Node, Node];
  const nodes: readonly Node[] = [
    up,
    accumulator('layers.0.up', 'sum', up),
    { ...act, scope: 'step', inputs: ['sum'] },
    { ...down, scope: 'step' },
  ];
  const tensors = new Map([...MLP.tensors, ['sum', typeOf(MLP, 'layers.0.up')] as const]);
  return { ...MLP, nodes, tensors, microBatches: { count: 3, cut: new Map([['x', 0]]) } };
}

for (const [name, graph] of [
  ['a chain', MLP],
  ['a diamond', diamond()],
  ['micro-batches', summed()],
  ['a decoder', llamaGraph({ ...SMALL_LLAMA, layers: 1 })],
] as const) {
  test(`no assignment needs less than its uses say, and one without redistributions needs that: ${name}`, (t) => {
    const cluster = parseCluster('1x2:a100-sxm-80', undefined);
    const options = { axes: 'free', pinned: new Set<string>(), questions: operatorQuestions(graph) } as const;
    const problem = meshProblem(graph, MESH, cluster, options);
    const { uses } = memoryUses(problem);
    const { sizes, factors } = problem.groups.problem();
    const random = generator(7);
    let [looked, equal] = [0, 0];
    for (let draw = 0; draw < draws(400); draw++) {
      const states = sizes.map((size) => (draw === 0 ? 0 : random.below(size)));
      if (costOf({ sizes, factors }, states) === Infinity) continue;
      const sharded = partition(graph, problem.groups.assignmentOf(states), problem.redistributor);
      const needed = liveness(sharded, fusesBlocks(cluster.device)).peakBytes;
      const said = peakOf({ sizes, factors, uses, limit: Infinity }, states);
      t.true(said <= needed, `draw ${draw}: ${said} above ${needed}`);
      if (draw === 0) t.is(said, needed);
      looked += 1;
      if (said === needed) equal += 1;
    }
    t.true(looked > 3 && equal > 0, `${looked} looked at, ${equal} equal`);
  });
}

test('where the cheapest plan is too large, the cheapest that fits is found under the same degrees', async (t) => {
  const graph = llamaGraph(SMALL_LLAMA);
  const cluster = parseCluster('1x4:a100-sxm-80', undefined);
  const degrees = { dp: 1, tp: 4 };
  const free = await plan(graph, cluster, { degrees });
  const [peak = 0] = free.prediction.peakBytes;
  const tight = await plan(graph, cluster, { degrees, memoryBytes: Math.floor(0.9 * peak) });
  t.true((tight.prediction.peakBytes[0] ?? 0) <= 0.9 * peak);
  t.true(tight.costNanoseconds > free.costNanoseconds);
  t.is(tight.mode, 'ilp');
  t.true(tight.boundNanoseconds >= free.boundNanoseconds);
  const dynamic = await plan(graph, cluster, {
    degrees,
    memoryBytes: Math.floor(0.9 * peak),
    mode: 'dynamic_programming',
  });
  t.is(dynamic.mode, 'dynamic_programming');
  t.true(dynamic.costNanoseconds >= tight.boundNanoseconds && dynamic.boundNanoseconds <= tight.costNanoseconds);
});

test('where nothing fits, the least figure and what would help are named', async (t) => {
  const graph = llamaGraph(SMALL_LLAMA);
  const error = await t.throwsAsync(plan(graph, parseCluster('1x2:a100-sxm-80', undefined), { memoryBytes: 100_000 }), {
    instanceOf: AutoparError,
  });
  t.is(error?.code, 'nothing-fits');
  t.is(error?.exit, 'noPlan');
  t.regex(error?.message ?? '', /dp 1 tp 2: needs at least \d+ kB of 100 kB on each device/);
  t.regex(error?.hint ?? '', /--memory \d+kB would do.*about \d+/);
  // What is said to do does.
  const [, enough = ''] = /--memory ([\d.]+)kB/.exec(error?.hint ?? '') ?? [];
  await t.notThrowsAsync(
    plan(graph, parseCluster('1x2:a100-sxm-80', undefined), { memoryBytes: Number(enough) * 1e3 }),
  );
});
