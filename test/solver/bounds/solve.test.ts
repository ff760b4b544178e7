/**
 * @file The solver against brute force, exact elimination, and interruption. Thousands more in solve.slow.ts.
 */
import type { Worker } from 'node:worker_threads';
import test from 'ava';
import fc from 'fast-check';
import { boundedSearch } from '../../../src/solver/bounds/bounded-search.js';
import { loadSolver } from '../../../src/solver/bounds/integer-solvers.js';
import { solveApart } from '../../../src/solver/bounds/solve-apart.js';
import { eliminate } from '../../../src/solver/elimination/elimination.js';
import { generator } from '../../../src/solver/generator.js';
import { type CostFactor, type LimitedProblem, limitedCostOf, NoAssignment } from '../../../src/solver/problem.js';
import { draws, slowTests } from '../../selection.js';
import { checkSolve } from './check-solve.js';
import { bruteForce, layered, problems } from './random-problems.js';

const slow = slowTests(test);

const EFFORT = { work: 2e6 };

test('the solver proves what brute force finds, memory limits included', async (t) => {
  const highs = await loadSolver('highs');
  fc.assert(
    fc.property(problems(6), (problem) => checkSolve(t, problem, highs)),
    { numRuns: draws(250) },
  );
});

test('without an integer solver, cost and bound enclose the optimum', (t) => {
  fc.assert(
    fc.property(problems(6), (problem) => checkSolve(t, problem, null)),
    { numRuns: draws(150) },
  );
});

test('where any assignment will do, one that keeps the limit is the answer, and the bound holds', (t) => {
  let [found, all] = [0, 0];
  fc.assert(
    fc.property(problems(6), (problem) => {
      const least = bruteForce(problem);
      if (least === Infinity) return;
      const { states, cost, bound } = boundedSearch(problem, { ...EFFORT, any: true }, null);
      all += 1;
      t.true(bound <= least && least <= cost);
      if (states === null) return;
      found += 1;
      t.is(limitedCostOf(problem, states), cost);
    }),
    { numRuns: draws(150) },
  );
  t.true(found > 0.8 * all, `${found} of ${all}`);
  const problem = layered(80, 8, 3);
  const [any, best] = [true, false].map((first) => boundedSearch(problem, { work: 2e7, any: first }, null));
  t.true((best?.cost ?? 0) < (any?.cost ?? 0) && any?.states !== null);
});

test('without a limit, dynamic programming and the solver agree', async (t) => {
  const highs = await loadSolver('highs');
  for (let seed = 1; seed <= draws(6); seed++) {
    const problem = { ...layered(30, 6, seed), limit: Infinity };
    const answer = boundedSearch(problem, { work: 1e8 }, highs);
    t.is(answer.cost, eliminate(problem).cost);
    t.is(answer.bound, answer.cost);
  }
});

test('equal problems and efforts have equal answers', async (t) => {
  const highs = await loadSolver('highs');
  const run = () => boundedSearch(layered(60, 8, 5), { work: 3e6 }, highs);
  t.deepEqual(run(), run());
});

test('little effort leaves a valid answer and a bound below it', (t) => {
  const problem = layered(80, 8, 3);
  const short = boundedSearch(problem, { work: 2e5 }, null);
  const long = boundedSearch(problem, { work: 2e7 }, null);
  t.true(long.bound <= long.cost);
  if (short.states) t.is(limitedCostOf(problem, short.states), short.cost);
  t.true(long.states !== null && long.cost <= short.cost);
  t.is(limitedCostOf(problem, long.states ?? []), long.cost);
});

test('a limit of more seconds than a timer counts ends nothing', async (t) => {
  const problem = layered(12, 4, 2);
  const task = { problem, effort: { work: 1e8, seconds: 3e6 }, solver: 'highs' } as const;
  const { cost, bound } = await solveApart(task);
  t.deepEqual([cost, bound], [cost, cost]);
  t.is(cost, boundedSearch(problem, { work: 1e8 }, await loadSolver('highs')).cost);
});

test('a search on another thread ends when told, with the best so far', async (t) => {
  const problem = layered(400, 12, 9);
  const controller = new AbortController();
  const answer = await solveApart(
    { problem, effort: { work: Infinity }, solver: 'none' },
    { signal: controller.signal, better: ({ states }) => states && controller.abort() },
  );
  t.true(answer.states !== null);
  t.is(limitedCostOf(problem, answer.states ?? []), answer.cost);
  t.true(answer.bound <= answer.cost);
});

test.serial(
  'whoever is answered finds the thread gone: none is ended while it winds up, which could hang',
  async (t) => {
    const threads: Worker[] = [];
    const note = (thread: Worker) => threads.push(thread);
    process.on('worker', note);
    const problem = layered(12, 4, 3);
    const told = new AbortController();
    told.abort();
    const effort = { work: 1e6 };
    for (const solver of ['none', 'highs'] as const) await solveApart({ problem, effort, solver });
    await solveApart({ problem, effort, solver: 'highs' }, { signal: told.signal });
    await t.throwsAsync(solveApart({ problem: { ...problem, limit: -1 }, effort, solver: 'highs' }));
    process.off('worker', note);
    t.deepEqual(
      threads.map(({ threadId }) => threadId),
      [-1, -1, -1, -1],
    );
  },
);
test('a companion on a second thread changes no optimum, and a limit that nothing meets ends both', async (t) => {
  for (let seed = 1; seed <= draws(3); seed++) {
    const problem = layered(12, 4, seed);
    const task = { problem, effort: { work: Infinity, seconds: 60 }, solver: 'highs', accompanied: true } as const;
    const { states, cost, bound } = await solveApart(task);
    const alone = boundedSearch(problem, { work: 1e8 }, await loadSolver('highs'));
    t.is(alone.bound, alone.cost);
    t.deepEqual([cost, bound], [alone.cost, alone.cost]);
    t.is(limitedCostOf(problem, states ?? []), cost);
    await t.throwsAsync(solveApart({ ...task, problem: { ...problem, limit: 0 } }), { instanceOf: NoAssignment });
  }
});

slow('that nothing keeps all that is forbidden is proven by branches, and by integer programs', async (t) => {
  // Five variables of four states, no two alike.
  const variables = [0, 1, 2, 3, 4];
  const values = Float64Array.from({ length: 16 }, (_, at) => (at % 5 === 0 ? Infinity : 0));
  const factors = variables.flatMap((b) =>
    variables.slice(0, b).map((a) => ({ variables: [a, b], table: { sizes: [4, 4], values } })),
  );
  const problem = { sizes: [4, 4, 4, 4, 4], factors, uses: [], limit: Infinity };
  for (const solver of [null, await loadSolver('highs')]) {
    t.throws(() => boundedSearch(problem, { work: 1e8 }, solver), {
      instanceOf: NoAssignment,
      message: 'no assignment satisfies the limit and all constraints',
    });
  }
  const four = { ...problem, sizes: [4, 4, 4, 4], factors: factors.filter(({ variables: [, b] }) => b !== 4) };
  t.is(boundedSearch(four, { work: 1e8 }, null).cost, 0);
});

slow('where states are dear and pairs cheap or forbidden, an assignment of allowed pairs is found', (t) => {
  const problem = scarce(draws(2000), 8, 4);
  const { states, cost, bound } = boundedSearch(problem, { work: 3e8 }, null);
  t.truthy(states);
  t.is(limitedCostOf(problem, states ?? []), cost);
  t.true(bound <= cost);
});

/** Half of all pairs are forbidden, those of a hidden assignment are not; pairs cost little, states up to a million. */
function scarce(count: number, size: number, seed: number): LimitedProblem {
  const random = generator(seed);
  const hidden = Array.from({ length: count }, () => random.below(size));
  const factors: CostFactor[] = hidden.map((_, v) => ({
    variables: [v],
    table: { sizes: [size], values: Float64Array.from({ length: size }, () => random.below(1e6)) },
  }));
  for (let edge = 0; edge < 2 * count; edge++) {
    const a = random.below(count - 30);
    const b = a + 1 + random.below(29);
    const values = Float64Array.from({ length: size * size }, () =>
      random.next() < 0.5 ? Infinity : random.below(10),
    );
    values[(hidden[a] as number) * size + (hidden[b] as number)] = 3;
    factors.push({ variables: [a, b], table: { sizes: [size, size], values } });
  }
  return { sizes: hidden.map(() => size), factors, uses: [], limit: Infinity };
}

test('what cannot be kept is refused, on this thread and on another', async (t) => {
  const problem = {
    sizes: [2],
    factors: [],
    uses: [{ variable: 0, start: 0, end: 3, bytes: Float64Array.of(5, 6) }],
    limit: 4,
  };
  t.throws(() => boundedSearch(problem, EFFORT, null), {
    instanceOf: NoAssignment,
    message: 'every assignment exceeds the limit',
  });
  await t.throwsAsync(solveApart({ problem, effort: EFFORT, solver: 'none' }), {
    instanceOf: NoAssignment,
    message: 'every assignment exceeds the limit',
  });
  const forbidden = {
    ...problem,
    limit: 9,
    factors: [{ variables: [0], table: { sizes: [2], values: Float64Array.of(Infinity, Infinity) } }],
  };
  t.throws(() => boundedSearch(forbidden, EFFORT, null), {
    instanceOf: NoAssignment,
    message: 'every assignment is forbidden',
  });
  const wide = {
    ...problem,
    sizes: [1, 1, 1],
    uses: [],
    factors: [{ variables: [0, 1, 2], table: { sizes: [1, 1, 1], values: Float64Array.of(1) } }],
  };
  t.throws(() => boundedSearch(wide, EFFORT, null), {
    instanceOf: RangeError,
    message: 'the solver takes tables of one or two variables',
  });
});
