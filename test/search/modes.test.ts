/**
 * @file Search modes: dynamic programming and the integer program find one optimum on every shipped model; recursive programming
 * stays above it and says by how much at most; the time limit leaves a plan.
 */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { importModel } from '../../src/api/models/import.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { priceGraph } from '../../src/cost-model/predict.js';
import { partition } from '../../src/partition/partition.js';
import { operatorFactsOf } from '../../src/search/operator-facts.js';
import { plan } from '../../src/search/plan.js';
import { halve } from '../../src/search/recursive-halving.js';
import { searchMesh } from '../../src/search/search-mesh.js';
import { SOLVERS } from '../../src/search/search-mode.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import type { Pin } from '../../src/sharding-propagation/pin.js';
import { Deadline, OutOfTime } from '../../src/solver/deadline.js';
import { eliminate } from '../../src/solver/elimination/elimination.js';
import { ROOT } from '../cli/autopar.js';
import { slowTests } from '../selection.js';
import { checkModes } from './check-modes.js';
import { llamaGraph, mlpGraph, SMALL_LLAMA } from './small-graphs.js';

const slow = slowTests(test);

const CLUSTER = parseCluster('1x4:a100-sxm-80', undefined);

for (const file of readdirSync(join(ROOT, 'models')).filter((name) => name.endsWith('.onnx'))) {
  test(`dynamic programming and the integer program agree: ${file}`, async (t) => {
    const { graph } = await importModel(join(ROOT, 'models', file), {});
    await checkModes(t, graph, CLUSTER, { degrees: { dp: 1, tp: 4 } });
  });
}

test('dynamic programming and the integer program agree with every axis on every factor', async (t) => {
  await checkModes(t, mlpGraph(8, 64, 256), parseCluster('2x2:l40s', undefined), { axes: 'free' });
});

slow('every integer solver finds the optimum', async (t) => {
  const graph = llamaGraph({ ...SMALL_LLAMA, layers: 1 });
  const degrees = { dp: 1, tp: 4 };
  const optimum = await plan(graph, CLUSTER, { degrees });
  for (const solver of SOLVERS) {
    const found = await plan(graph, CLUSTER, { degrees, mode: 'ilp', solver });
    t.is(found.costNanoseconds, optimum.costNanoseconds, solver);
  }
});

test('auto says which mode it took', async (t) => {
  const graph = mlpGraph(8, 64, 256);
  t.is((await plan(graph, CLUSTER)).mode, 'dynamic_programming');
  t.is((await plan(graph, CLUSTER, { mode: 'ilp' })).mode, 'ilp');
  const propagated = await plan(graph, CLUSTER, { mode: 'sharding_propagation' });
  t.is(propagated.mode, 'sharding_propagation');
  t.is(propagated.boundNanoseconds, 0);
});

test('recursive halving: each operator goes where its neighbours are, the heaviest first', (t) => {
  // Two operators, each on rows or on columns; the lighter follows the heavier, and a view between them both.
  const far = 100;
  const table = { sizes: [2, 2], values: Float64Array.of(0, far, far, 0) };
  const unary = (...values: number[]) => ({ sizes: [2], values: Float64Array.from(values) });
  const problem = {
    sizes: [2, 2, 2],
    factors: [
      { variables: [0], table: unary(10, 12) },
      { variables: [1], table: unary(60, 50) },
      { variables: [0, 2], table },
      { variables: [2, 1], table },
    ],
  };
  const places = [['rows'], ['columns']];
  const states = halve(problem, [
    { variable: 0, places },
    { variable: 1, places },
  ]);
  t.deepEqual(states, [1, 1, 1]);
  t.is(eliminate(problem).cost, 62);
});

test('with no time at all, propagation makes the plan and says so', async (t) => {
  const found = await plan(llamaGraph(SMALL_LLAMA), CLUSTER, { timeLimit: 0, degrees: { dp: 2 } });
  t.is(found.mode, 'sharding_propagation');
  t.deepEqual(found.notes, [
    'the time limit of 0 s ended before any plan was found: propagation of the pins made this plan',
  ]);
});

test('with ample time, the time limit changes nothing', async (t) => {
  const graph = mlpGraph(8, 64, 256);
  // The contents of the memory peak are computed on demand, by functions, and follow from the lowered graph.
  const { notes, memory: _held, ...found } = await plan(graph, CLUSTER, { timeLimit: 600 });
  t.deepEqual(notes, []);
  const { notes: _notes, memory: _free, ...free } = await plan(graph, CLUSTER);
  t.deepEqual(found, free);
});

test('when the time is over, degrees that were not looked at say so', async (t) => {
  let asked = 0;
  const until = performance.now() + 8000;
  // The second mesh is asked for when the time is over.
  const operatorPins = (): readonly Pin[] => {
    asked += 1;
    if (asked === 2)
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Math.max(0, until - performance.now()));
    return [];
  };
  const found = await plan(mlpGraph(8, 64, 256), parseCluster('1x2:a100-sxm-80', undefined), {
    timeLimit: 8,
    operatorPins,
  });
  t.is(found.mode, 'dynamic_programming');
  t.true(found.rejected.some(({ reason }) => reason === 'the time limit ended before it was searched'));
  t.deepEqual(found.notes, [
    'the time limit of 8 s ended before all degrees were searched: this is the best plan so far',
  ]);
});

test('the best combinations of degrees are told, the chosen one first', async (t) => {
  const { top, rejected, degrees, prediction } = await plan(mlpGraph(8, 64, 256), CLUSTER, { top: 2 });
  t.is(top.length, 2);
  const stepNanoseconds = Math.round(prediction.stepSeconds * 1e9);
  t.like(top[0], { degrees, stepNanoseconds, reason: null });
  const [, second] = top;
  t.true((second?.stepNanoseconds ?? 0) >= stepNanoseconds);
  t.deepEqual(second?.peakBytes.length, 1);
  t.is(rejected.find((other) => other.degrees.tp === second?.degrees.tp)?.reason, second?.reason ?? '');
  // As many digits as it takes to distinguish the two.
  const [, slow, best] = /\(([\d.]+) µs against ([\d.]+) µs\)/.exec(second?.reason ?? '') ?? [];
  t.is(slow, ((second?.stepNanoseconds ?? 0) / 1e3).toPrecision(slow?.replace(/^[0.]+|\./g, '').length ?? 3));
  t.not(slow, best);
});

/** A clock that is over after so many looks at it. */
class Looks extends Deadline {
  looks = 0;

  constructor(private readonly most: number) {
    super();
  }

  override isOver(): boolean {
    return this.looks >= this.most;
  }

  /** No pauses by the clock: equal searches look equally often, however slow the machine is. */
  override isTurn(): boolean {
    return this.isOver();
  }

  override check(): void {
    this.looks += 1;
    if (this.isOver()) throw new OutOfTime('over');
  }
}

slow('whenever the time is over, there is no plan, or one at its price, with a bound that holds', async (t) => {
  const graph = llamaGraph({ ...SMALL_LLAMA, layers: 1 });
  const mesh = makeMesh([
    ['dp', 1],
    ['tp', 4],
  ]);
  const options = {
    axes: 'roles',
    pinned: new Set(['tp']),
    factsOf: operatorFactsOf(graph),
    solver: 'none',
  } as const;
  for (const mode of ['auto', 'recursive_programming'] as const) {
    const whole = new Looks(Infinity);
    const { cost } = await searchMesh(graph, mesh, CLUSTER, { ...options, mode, deadline: whole });
    let [none, cut] = [0, 0];
    // Late rounds are short: a plan that is cut off is found by ending about where the search would, whose looks vary by a few.
    const ends = [
      ...Array.from({ length: 12 }, (_, step) => Math.ceil((whole.looks * (step + 1)) / 13)),
      ...Array.from({ length: 12 }, (_, step) => whole.looks + 3 - step),
    ];
    for (const end of ends) {
      const deadline = new Looks(end);
      try {
        const found = await searchMesh(graph, mesh, CLUSTER, { ...options, mode, deadline });
        t.is(priceGraph(partition(graph, found.assignment, found.resharder), CLUSTER), found.cost);
        t.true(found.bound <= cost);
        if (mode === 'auto') t.true(found.cost >= cost);
        if (found.isCut) cut += 1;
      } catch (error) {
        t.true(error instanceof OutOfTime);
        none += 1;
      }
    }
    t.true(none > 0 && cut > 0, `${mode}: ${none} without a plan, ${cut} cut`);
  }
});

test('an interruption ends the search', async (t) => {
  const controller = new AbortController();
  const planning = plan(llamaGraph(SMALL_LLAMA), CLUSTER, { mode: 'ilp', signal: controller.signal });
  setTimeout(() => controller.abort(), 20);
  // The value that `signal.throwIfAborted` throws is not an Error everywhere.
  await t.throwsAsync(planning, { any: true, name: 'AbortError' });
});
