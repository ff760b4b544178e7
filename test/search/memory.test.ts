/**
 * @file Memory limits inside the search: against brute force over every lowered plan of small graphs, and uses against liveness.
 */
import test from 'ava';
import { importModel } from '../../src/api/models/import.js';
import { type Training, trainedModel } from '../../src/api/models/training.js';
import { importedFor } from '../../src/api/models/training-form.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { AutoparError } from '../../src/ir/error.js';
import type { Graph, Node } from '../../src/ir/graph.js';
import { typeOf } from '../../src/ir/graph.js';
import { accumulator } from '../../src/ir/ops/accumulate.js';
import { bySearch } from '../../src/search/by-search.js';
import type { Fitting } from '../../src/search/completion.js';
import { fitProblem } from '../../src/search/fit-memory.js';
import { leastBytes } from '../../src/search/least-bytes.js';
import { leastPeak } from '../../src/search/live-peaks.js';
import { type AssignmentNeed, MeshNeed } from '../../src/search/mesh-need.js';
import { meshProblem } from '../../src/search/mesh-problem.js';
import { operatorFactsOf } from '../../src/search/operator-facts.js';
import { plan } from '../../src/search/plan.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import { Deadline } from '../../src/solver/deadline.js';
import { generator } from '../../src/solver/generator.js';
import { costOf } from '../../src/solver/problem.js';
import { draws, EVERYTHING, slowTests, thinned } from '../selection.js';
import { diamond, everyPlan } from './every-plan.js';
import { GraphBuilder, llamaGraph, mlpGraph, SMALL_LLAMA } from './small-graphs.js';

const slow = slowTests(test);

const MESH = makeMesh([
  ['dp', 1],
  ['tp', 2],
]);
/** No degree is given, so that an operator may also run whole: less communication, and more memory. */
const PINNED = new Set<string>();
const MLP = mlpGraph(6, 64, 96);
const DIAMOND = diamond();

/** The others have so many plans that writing them all out takes from ten seconds to a minute. */
const ENUMERATED = [
  ['two products', twoProducts(), 'local'],
  ['a chain', MLP, 'local'],
  ['two towers of one weight', towers(), '2x1:l40s'],
  ['a diamond', DIAMOND, 'local'],
  ['a diamond', DIAMOND, '2x1:l40s'],
  ['a chain', MLP, '2x1:l40s'],
  ['two towers of one weight', towers(), 'local'],
] as const;

/** Every plan of a graph on a cluster of two devices, written out once. */
const everyPlanOf = ((): ((graph: Graph, text: string) => ReturnType<typeof everyPlan>) => {
  const known = new Map<Graph, Map<string, ReturnType<typeof everyPlan>>>();
  return (graph, text) => {
    const ofGraph = known.get(graph) ?? new Map();
    known.set(graph, ofGraph);
    const plans = ofGraph.get(text) ?? everyPlan(graph, MESH, parseCluster(text, 2), { pinned: PINNED });
    ofGraph.set(text, plans);
    return plans;
  };
})();

for (const [name, graph, text] of thinned(ENUMERATED, 2)) {
  slow(`within a memory limit no combination is cheaper: ${name}, ${text}`, async (t) => {
    const cluster = parseCluster(text, 2);
    const all = everyPlanOf(graph, text);
    const peaks = [...new Set(all.map(({ peak }) => peak))].sort((a, b) => a - b);
    const found = await bySearch('auto', 'highs').solve(graph, MESH, cluster, {
      axes: 'roles',
      pinned: PINNED,
      factsOf: operatorFactsOf(graph),
      allToAll: true,
      pins: [],
      deadline: new Deadline(),
    });
    const within = found.within as (limit: number) => Promise<Fitting>;
    const spread = Array.from({ length: 4 }, (_, step) => peaks[Math.floor((step * (peaks.length - 1)) / 4)] ?? 0);
    // Just above the least there is one plan, whose uses say little more than those of others that do not fit.
    const limits = new Set([...spread, ...peaks.slice(1, 3)]);
    let [binding, equal] = [0, 0];
    for (const limit of limits) {
      const least = all.reduce((cost, plan) => (plan.peak <= limit ? Math.min(cost, plan.cost) : cost), Infinity);
      const { completed, atLeast } = await within(limit);
      // The memory of sessions and buffers of this machine depends on the whole plan: near the least that any needs, the best
      // may be missed.
      if (cluster.local) t.true((completed?.cost ?? Infinity) >= least, `within ${limit}: ${completed?.cost}`);
      else t.is(completed?.cost, least, `within ${limit}`);
      equal += Number(completed?.cost === least);
      t.true((completed?.bound ?? 0) <= least);
      t.true(atLeast <= limit);
      if (least > found.cost) binding += 1;
    }
    t.true(binding > 0 && equal >= limits.size - 1, `${equal} of ${limits.size}`);
    const [smallest = 0] = peaks;
    for (const limit of [smallest - 1, Math.floor(0.9 * smallest), Math.floor(0.2 * smallest)]) {
      const nothing = await within(limit);
      t.is(nothing.completed, null);
      t.true(nothing.atLeast <= smallest && smallest <= nothing.least, `within ${limit}: ${JSON.stringify(nothing)}`);
    }
  });
}

test('without time for an answer no plan is called cheaper than any can be, and no need is overstated', async (t) => {
  const [[, pair]] = ENUMERATED;
  const graph = EVERYTHING ? DIAMOND : pair;
  const cluster = parseCluster('local', 2);
  const all = everyPlanOf(graph, 'local');
  const peaks = [...new Set(all.map(({ peak }) => peak))].sort((a, b) => a - b);
  const options = { axes: 'roles', pinned: PINNED, factsOf: operatorFactsOf(graph), allToAll: true } as const;
  const problem = meshProblem(graph, MESH, cluster, options);
  for (const limit of [(peaks[0] ?? 0) - 1, ...peaks.filter((_, index) => index % 8 === 0)]) {
    const least = all.reduce((cost, plan) => (plan.peak <= limit ? Math.min(cost, plan.cost) : cost), Infinity);
    const search = { deadline: new Deadline(0), mode: 'auto', solver: 'highs' } as const;
    const { completed, atLeast } = await fitProblem(problem, search, limit);
    t.true((completed?.bound ?? 0) <= least, `within ${limit}`);
    t.true(atLeast <= (peaks[0] ?? 0), `within ${limit}`);
  }
});

function twoProducts(): Graph {
  const builder = new GraphBuilder();
  const up = builder.add('up', 'MatMul', [builder.input('x', [6, 64]), builder.weight('A', [64, 96])]);
  return builder.build([builder.add('down', 'MatMul', [up, builder.weight('B', [96, 64])])]);
}

/** Two towers of one weight, which each may want in a layout of its own. */
function towers(): Graph {
  const builder = new GraphBuilder();
  const shared = builder.weight('A', [64, 96]);
  const left = builder.add('left', 'MatMul', [builder.input('x', [6, 64]), shared]);
  const right = builder.add('right', 'MatMul', [builder.input('y', [6, 64]), shared]);
  const back = builder.weight('B', [96, 5]);
  return builder.build([builder.add('up', 'MatMul', [left, back]), builder.add('down', 'MatMul', [right, back])]);
}

/** Summed up over three micro-batches, then read by the step's own operator. */
function summed(): Graph {
  const [up, act, down] = MLP.nodes as [Node, Node, Node];
  const nodes: readonly Node[] = [
    up,
    accumulator('layers.0.up', 'sum', up),
    { ...act, phase: 'update', inputs: ['sum'] },
    { ...down, phase: 'update' },
  ];
  const tensors = new Map([...MLP.tensors, ['sum', typeOf(MLP, 'layers.0.up')] as const]);
  return { ...MLP, nodes, tensors, microBatches: { count: 3, cut: new Map([['x', 0]]) } };
}

/** A step of training of the shipped MLP. */
async function trainedMlp(microBatches: number): Promise<Graph> {
  const file = 'models/mlp.onnx';
  const training: Training = {
    loss: { kind: 'mse' },
    optimizer: { kind: 'adamw', learningRate: 0.001 },
    microBatches,
  };
  const whole = await importModel(file, importedFor(training));
  const at = (globalBatch: number) => importModel(file, { ...importedFor(training), globalBatch });
  return (await trainedModel(whole, training, at)).graph;
}

for (const [name, made] of [
  ['a chain', () => MLP],
  ['a diamond', diamond],
  ['two towers of one weight', towers],
  ['micro-batches', summed],
  ['a decoder', () => llamaGraph({ ...SMALL_LLAMA, layers: 1 })],
  ['training in micro-batches', () => trainedMlp(2)],
] as const) {
  test(`no assignment needs less than its uses say, and one without redistributions needs that: ${name}`, async (t) => {
    const graph = await made();
    const cluster = parseCluster('1x2:a100-sxm-80', undefined);
    const options = { axes: 'free', pinned: new Set<string>(), factsOf: operatorFactsOf(graph) } as const;
    const problem = meshProblem(graph, MESH, cluster, options);
    const need = new MeshNeed(problem);
    const { sizes, factors } = problem.groups.problem();
    const random = generator(7);
    // From one to the next a few states change, so that operators meet the same again beside others.
    let states: readonly number[] = sizes.map(() => 0);
    const drawn = [states];
    for (let draw = 1; draw < draws(EVERYTHING ? 400 : 120); draw++) {
      const changed = new Map(
        Array.from({ length: 1 + random.below(4) }, () => [random.below(sizes.length), random.below(1e6)] as const),
      );
      const next = states.map((state, variable) => (changed.get(variable) ?? state) % (sizes[variable] as number));
      if (costOf({ sizes, factors }, next) === Infinity) continue;
      states = next;
      drawn.push(states);
    }
    const needs = drawn.map((states) => need.lowered(states));
    const said = () => drawn.map((states) => need.usedBytes(states)(-Infinity, Infinity));
    const before = said();
    const least = leastPeak(need.problem().uses);
    if (graph.state.length === 0) t.is(before[0], needs[0]?.peak);
    let equal = 0;
    before.forEach((bytes, draw) => {
      const { peak, constants } = needs[draw] as AssignmentNeed;
      t.true(least <= bytes && bytes <= peak, `draw ${draw}: ${bytes} above ${peak}`);
      t.true(leastBytes(graph) / 2 <= peak, `draw ${draw}: half of ${leastBytes(graph)} above ${peak}`);
      if (bytes >= peak - constants) equal += 1;
    });
    // Needs learnt from half of them hold for the others, and for themselves are all that operators need but constants.
    const shown = drawn.filter(
      (states, draw) => draw % 2 === 0 && need.learn(states, needs[draw] as AssignmentNeed, 0),
    ).length;
    said().forEach((bytes, draw) => {
      const { peak, byOperator, constants } = needs[draw] as AssignmentNeed;
      const most = Math.max(...graph.nodes.map(({ name }) => byOperator.get(name) ?? 0));
      t.true((before[draw] as number) <= bytes && bytes <= peak, `draw ${draw}: ${bytes} above ${peak} once learnt`);
      if (draw % 2 === 0) t.true(bytes >= most - constants, `draw ${draw}: ${bytes} below ${most} once learnt`);
    });
    t.true(shown > 0);
    const looked = drawn.length;
    t.true(looked > 3 && equal > 0, `${looked} looked at, ${equal} equal`);
  });
}

const LIMITED = [
  ['two towers of one weight', towers(), '1x4:l40s'],
  ['a diamond', diamond(), '2x2:a100-sxm-80'],
  ['micro-batches', summed(), '1x4:l40s'],
  ['a decoder', llamaGraph({ ...SMALL_LLAMA, layers: 1 }), '1x4:l40s'],
] as const;

for (const [name, graph, text] of EVERYTHING ? LIMITED : LIMITED.slice(0, 1)) {
  test(`with more memory no plan is slower, and what needs less fits: ${name}`, async (t) => {
    const cluster = parseCluster(text, undefined);
    const [most = 0] = (await plan(graph, cluster)).prediction.peakBytes;
    let fastest = Infinity;
    const steps = draws(8);
    for (let step = 1; step <= steps; step++) {
      const memoryBytes = Math.floor(most * 2 ** ((step - steps) / 3));
      const found = await plan(graph, cluster, { memoryBytes }).catch((error: unknown) => {
        if (error instanceof AutoparError && error.code === 'nothing-fits') return null;
        throw error;
      });
      const cost = found?.costNanoseconds ?? Infinity;
      t.true(cost <= fastest, `within ${memoryBytes}: ${cost} after ${fastest}`);
      t.true((found?.prediction.peakBytes[0] ?? 0) <= memoryBytes);
      fastest = cost;
    }
    t.true(fastest < Infinity);
  });
}

slow('where the cheapest plan is too large, the cheapest that fits is found under the same degrees', async (t) => {
  const graph = llamaGraph(EVERYTHING ? SMALL_LLAMA : { ...SMALL_LLAMA, layers: 1 });
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

test('devices whose memory context and communication library take are refused: their limit was negative', async (t) => {
  const cluster = parseCluster('1x2:a100-sxm-80', undefined);
  const small = { ...cluster, device: { ...cluster.device, memoryBytes: 1.001e9 } };
  const error = await t.throwsAsync(plan(MLP, small), { instanceOf: AutoparError, code: 'nothing-fits' });
  t.is(
    error?.message,
    'a device has 1.00 GB, and context and communication library take 2.00 GB: nothing is left for tensors',
  );
  t.regex(error?.hint ?? '', /--memory/);
  // The limit of tensors is then the one that was given.
  await t.notThrowsAsync(plan(MLP, small, { memoryBytes: 1e9 }));
});

slow('where nothing fits, the least figure and what would help are named', async (t) => {
  const graph = llamaGraph(SMALL_LLAMA);
  const error = await t.throwsAsync(plan(graph, parseCluster('1x2:a100-sxm-80', undefined), { memoryBytes: 100_000 }), {
    instanceOf: AutoparError,
  });
  t.is(error?.code, 'nothing-fits');
  t.is(error?.exit, 'noPlan');
  t.regex(error?.message ?? '', /dp 1 tp 2: needs at least \d+ kB of 100 kB on each device/);
  t.regex(error?.hint ?? '', /--memory \d+kB would do.*about \d+/);
  // The suggested memory is enough.
  const [, enough = ''] = /--memory ([\d.]+)kB/.exec(error?.hint ?? '') ?? [];
  await t.notThrowsAsync(
    plan(graph, parseCluster('1x2:a100-sxm-80', undefined), { memoryBytes: Number(enough) * 1e3 }),
  );
});
