/**
 * @file The solver's one entry: elimination where it is exact, the bounded search where elimination leaves something open, and
 * what is known already.
 */
import test from 'ava';
import fc from 'fast-check';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { meshProblem } from '../../src/search/mesh-problem.js';
import { operatorFactsOf } from '../../src/search/operator-facts.js';
import { searchProblem } from '../../src/search/search-mesh.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import { Deadline } from '../../src/solver/deadline.js';
import { costOf, limitedCostOf, NoAssignment } from '../../src/solver/problem.js';
import { isLaborious, LARGE, solve, TableAlgebra } from '../../src/solver/solve.js';
import { convGraph, llamaGraph, mlpGraph, SMALL_LLAMA } from '../search/small-graphs.js';
import { bruteForce, layered, problems } from './bounds/random-problems.js';

/** Tables of two variables only. */
const SMALL = { tableEntries: 36, tableWork: 216 };

test('it finds what brute force finds, with a memory limit and without', async (t) => {
  await fc.assert(
    fc.asyncProperty(problems(6), async (problem) => {
      const least = bruteForce(problem);
      if (least === Infinity) {
        const refused = solve(problem, { work: 2e6, programs: 'highs' });
        await refused.then(({ states }) => t.is(states, null)).catch((error) => t.true(error instanceof NoAssignment));
        return;
      }
      const { states, cost, bound, by } = await solve(problem, { work: 2e6, programs: 'highs' });
      t.deepEqual([cost, bound, states && limitedCostOf(problem, states)], [least, least, least]);
      if (problem.limit < Infinity) t.is(by, 'bounds');
    }),
    { numRuns: 12 },
  );
});

test('with tables too small for elimination, the bounded search finds what large ones prove', async (t) => {
  let open = 0;
  for (let seed = 1; seed <= 2; seed++) {
    const { sizes, factors } = layered(24, 6, seed);
    const problem = { sizes, factors };
    const exact = await solve(problem, { work: 0, tables: LARGE });
    const known = await solve(problem, { work: 0, tables: SMALL });
    const found = await solve(problem, { work: 1e8, tables: SMALL });
    t.deepEqual(await solve(problem, { work: 1e8, known }), found);
    t.is(costOf(problem, found.states), found.cost);
    t.deepEqual([found.cost, found.bound], [exact.cost, exact.cost]);
    t.true(known.bound <= exact.cost && exact.cost <= known.cost);
    if (known.bound < known.cost) open += 1;
  }
  t.true(open > 0);
});

test('prices made exact around a guess and in small tables leave the optimum what it was', async (t) => {
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
      const options = { axes: 'roles', pinned: new Set(['tp']), factsOf: operatorFactsOf(graph) } as const;
      const groups = () => meshProblem(graph, mesh, parseCluster(cluster, dp * tp), options).groups;
      const search = (own: ReturnType<typeof groups>) =>
        searchProblem({ groups: own, mesh }, { mode: 'dynamic_programming', solver: 'none', deadline: new Deadline() });
      const plain = await search(groups());
      for (const tableEntries of [1, 16, 512]) {
        const [foreseen, algebra] = [groups(), new TableAlgebra()];
        foreseen.foresee();
        const tables = { tableEntries, tableWork: 32 * tableEntries, growth: 400 };
        while (foreseen.refine((await solve(foreseen.problem(), { work: 0, tables, algebra })).states));
        const found = await search(foreseen);
        t.is(found.cost, plain.cost, `${name} on ${cluster}`);
        t.is(found.bound, plain.bound, `${name} on ${cluster}`);
        t.is(costOf(foreseen.problem(), found.states), found.cost);
      }
    }
  }
});

test('laborious is what is large and dense; a small gap of it is left open, a large one is not', async (t) => {
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
  const by = async (of: typeof dense, bound: number) => {
    const known = { states: of.sizes.map(() => 0), cost: 1000, bound };
    return (await solve(of, { work: 1e8, known })).by;
  };
  t.deepEqual([await by(dense, 999), await by(few, 999), await by(dense, 990)], ['elimination', 'bounds', 'bounds']);
});
