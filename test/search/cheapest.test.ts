/**
 * @file Where elimination only bounds, the solver closes the gap.
 */
import test from 'ava';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { cheapest, isLaborious, isWorthSolving, priceRoughly, settled } from '../../src/search/cheapest.js';
import { costOf } from '../../src/search/cost-problem.js';
import { eliminate } from '../../src/search/elimination.js';
import { meshProblem } from '../../src/search/mesh-problem.js';
import { operatorQuestions } from '../../src/search/operator-questions.js';
import { TableAlgebra } from '../../src/search/table-algebra.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import { convGraph, llamaGraph, mlpGraph, SMALL_LLAMA } from './small-graphs.js';
import { layered } from './solver/random-problems.js';

/** Tables of two variables only. */
const SMALL = { tableEntries: 36, tableWork: 216 };

test('with tables too small for elimination, the solver finds what large ones prove', (t) => {
  let [open, closed] = [0, 0];
  for (let seed = 1; seed <= 3; seed++) {
    const problem = layered(24, 6, seed);
    const exact = eliminate(problem);
    const bounded = eliminate(problem, new TableAlgebra(), SMALL);
    const found = cheapest(problem, new TableAlgebra(), SMALL, null);
    t.is(costOf(problem, found.states), found.cost);
    t.true(bounded.bound <= found.bound && found.bound <= exact.cost && exact.cost <= found.cost);
    t.true(found.cost <= bounded.cost);
    if (bounded.bound < bounded.cost) open += 1;
    if (found.bound === found.cost) closed += 1;
  }
  t.true(open > 0);
  t.is(closed, 3);
});

test('prices made exact around a guess and in small tables leave the optimum what it was', (t) => {
  const graphs = { mlp: mlpGraph(16, 64, 96, 2), llama: llamaGraph(SMALL_LLAMA), convolutions: convGraph(16) };
  for (const [name, graph] of Object.entries(graphs)) {
    for (const [dp, tp, cluster] of [
      [1, 2, '1x2:l40s'],
      [2, 2, '2x2:h100-sxm-80'],
    ] as const) {
      const mesh = makeMesh([
        ['dp', dp],
        ['tp', tp],
      ]);
      const options = { axes: 'roles', pinned: new Set(['tp']), questions: operatorQuestions(graph) } as const;
      const groups = () => meshProblem(graph, mesh, parseCluster(cluster, dp * tp), options).groups;
      const plain = settled(groups());
      for (const tableEntries of [1, 16, 512]) {
        const [foreseen, algebra] = [groups(), new TableAlgebra()];
        priceRoughly(foreseen, algebra, { tableEntries, tableWork: 32 * tableEntries, growth: 400 });
        const found = settled(foreseen, algebra);
        t.is(found.cost, plain.cost, `${name} on ${cluster}`);
        t.is(found.bound, plain.bound, `${name} on ${cluster}`);
        t.is(costOf(foreseen.problem(), found.states), found.cost);
      }
    }
  }
});

test('laborious is what is large and dense; a small gap of it is left open, a large one is not', (t) => {
  const states = 16;
  const table = { sizes: [states, states], values: new Float64Array(states ** 2) };
  const pairs = (count: number, reach: number) =>
    Array.from({ length: count }, (_, b) => Array.from({ length: b }, (_, a) => [a, b] as const))
      .flat()
      .filter(([a, b]) => b - a <= reach);
  const problem = (count: number, reach: number) => ({
    sizes: new Array<number>(count).fill(states),
    factors: pairs(count, reach).map((variables) => ({ variables, table })),
  });
  const [dense, few, chain] = [problem(60, 60), problem(8, 8), problem(2000, 1)];
  t.true(isLaborious(dense));
  t.false(isLaborious(few));
  t.false(isLaborious(chain));
  const found = (bound: number) => ({ states: [], cost: 1000, bound });
  t.false(isWorthSolving(found(999), dense));
  t.true(isWorthSolving(found(999), few));
  t.true(isWorthSolving(found(990), dense));
});
