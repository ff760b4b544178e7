/**
 * @file Elimination against brute force: the same cost, every time.
 */
import test from 'ava';
import fc from 'fast-check';
import { eliminate } from '../../../src/solver/elimination/elimination.js';
import { TableAlgebra } from '../../../src/solver/elimination/table-algebra.js';
import type { CostFactor, CostProblem } from '../../../src/solver/problem.js';
import { costOf, NoAssignment } from '../../../src/solver/problem.js';
import { draws } from '../../selection.js';

/** Random graphs: up to nine variables of up to three states, random pairs joined, some entries forbidden. */
const problems: fc.Arbitrary<CostProblem> = fc
  .record({
    sizes: fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 9 }),
    density: fc.double({ min: 0, max: 1, noNaN: true }),
    seed: fc.integer({ min: 1, max: 2 ** 30 }),
    forbidden: fc.double({ min: 0, max: 0.15, noNaN: true }),
  })
  .map(({ sizes, density, seed, forbidden }) => randomProblem(sizes, density, forbidden, generator(seed)));

test('elimination finds the cost that brute force finds', (t) => {
  fc.assert(
    fc.property(problems, (problem) => {
      const least = bruteForce(problem);
      if (least === Infinity) {
        t.throws(() => eliminate(problem), { instanceOf: NoAssignment });
        return;
      }
      const solution = eliminate(problem);
      t.is(solution.cost, least);
      t.is(solution.bound, least);
      t.is(costOf(problem, solution.states), least);
    }),
    { numRuns: draws(120) },
  );
});

test('with tables too small to be exact, cost and bound enclose the optimum', (t) => {
  fc.assert(
    fc.property(problems, (problem) => {
      const least = bruteForce(problem);
      if (least === Infinity) return;
      let solution: ReturnType<typeof eliminate>;
      try {
        solution = eliminate(problem, new TableAlgebra(), { tableEntries: 3, tableWork: 9 });
      } catch (error) {
        // Greedy states may all be forbidden; that is reported, never hidden.
        t.true(error instanceof RangeError);
        return;
      }
      t.true(solution.bound <= least && least <= solution.cost);
      t.is(costOf(problem, solution.states), solution.cost);
    }),
    { numRuns: draws(80) },
  );
});

test('an elimination done again for tables that changed finds what brute force finds', (t) => {
  const changes = fc.array(
    fc.record({ factor: fc.nat(), seed: fc.integer({ min: 1 }), most: fc.constantFrom(1, 2, 20) }),
    {
      minLength: 1,
      maxLength: 4,
    },
  );
  let again = 0;
  fc.assert(
    fc.property(problems, fc.array(changes, { minLength: 1, maxLength: 3 }), (first, rounds) => {
      const algebra = new TableAlgebra();
      let problem = first;
      if (bruteForce(problem) === Infinity) return;
      eliminate(problem, algebra);
      for (const changed of rounds) {
        problem = changed.reduce(withOtherTable, problem);
        const least = bruteForce(problem);
        if (least === Infinity) return;
        if (algebra.again?.(problem)) again += 1;
        const solution = eliminate(problem, algebra);
        t.is(solution.cost, least);
        t.is(solution.bound, least);
        t.is(costOf(problem, solution.states), least);
      }
    }),
    { numRuns: draws(150) },
  );
  t.true(again > 50, `${again} were done again by the record`);
});

test('done again with tables too small to be exact, cost and bound still enclose what brute force finds', (t) => {
  const limits = { tableEntries: 3, tableWork: 9 };
  let [again, open] = [0, 0];
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 2 ** 30 }), fc.nat(), fc.integer({ min: 1 }), (drawn, factor, seed) => {
      const algebra = new TableAlgebra();
      // Nearly all of seven variables are joined.
      const first = randomProblem(new Array<number>(7).fill(3), 1.8, 0.05, generator(drawn));
      const next = withOtherTable(first, { factor, seed, most: 20 });
      const least = bruteForce(next);
      if (bruteForce(first) === Infinity || least === Infinity) return;
      try {
        eliminate(first, algebra, limits);
        if (algebra.again?.(next)) again += 1;
        const solution = eliminate(next, algebra, limits);
        t.true(solution.bound <= least && least <= solution.cost);
        if (solution.bound < solution.cost) open += 1;
      } catch (error) {
        t.true(error instanceof NoAssignment);
      }
    }),
    { numRuns: draws(150) },
  );
  t.true(again > 10 && open > 0, `${again} were done again by the record, ${open} were not exact`);
});

test("what does not fit is not asked again: half of its tables are another problem's", (t) => {
  const limits = { tableEntries: 3, tableWork: 9 };
  const first = randomProblem(new Array<number>(7).fill(3), 1.8, 0.05, generator(323474436));
  const next = withOtherTable(first, { factor: 0, seed: 1, most: 20 });
  const algebra = new TableAlgebra();
  eliminate(first, algebra, limits);
  t.is(algebra.again?.(next), null);
  const solution = eliminate(next, algebra, limits);
  const least = bruteForce(next);
  t.true(solution.bound <= least && least <= solution.cost, `${solution.bound} ${least} ${solution.cost}`);
});

test('what was made in small tables, and made again, serves an elimination in large ones', (t) => {
  const changes = fc.array(
    fc.record({ factor: fc.nat(), seed: fc.integer({ min: 1 }), most: fc.constantFrom(1, 2, 20) }),
    { minLength: 1, maxLength: 4 },
  );
  let again = 0;
  fc.assert(
    fc.property(problems, fc.array(changes, { minLength: 1, maxLength: 3 }), (first, rounds) => {
      const algebra = new TableAlgebra();
      let problem = first;
      for (const changed of [[], ...rounds]) {
        problem = changed.reduce(withOtherTable, problem);
        if (bruteForce(problem) === Infinity) return;
        if (algebra.again?.(problem)) again += 1;
        try {
          eliminate(problem, algebra, { tableEntries: 3, tableWork: 9, growth: 100 });
        } catch (error) {
          // Such small tables may leave none that descent finds.
          t.true(error instanceof NoAssignment);
          return;
        }
      }
      // Another elimination, which finds the small one's tables and comparisons.
      algebra.again = undefined;
      const solution = eliminate(problem, algebra);
      t.is(solution.cost, bruteForce(problem));
      t.is(solution.bound, solution.cost);
      t.is(costOf(problem, solution.states), solution.cost);
      const last = withOtherTable(problem, { factor: 1, seed: 7, most: 20 });
      const least = bruteForce(last);
      if (least < Infinity) t.is(eliminate(last, algebra).cost, least);
    }),
    { numRuns: draws(150) },
  );
  t.true(again > 20, `${again} were done again by the record`);
});

interface Change {
  readonly factor: number;
  readonly seed: number;
  /** Costs are below this: with small ones many tables are equal, of other shapes too. */
  readonly most: number;
}

/** One factor with other costs, lower and higher. */
function withOtherTable(problem: CostProblem, change: Change): CostProblem {
  const random = generator(change.seed);
  const number = change.factor % problem.factors.length;
  const factors = problem.factors.map((factor, index) => {
    if (index !== number) return factor;
    const { sizes, values } = factor.table;
    return { ...factor, table: { sizes, values: values.map(() => Math.floor(random() * change.most)) } };
  });
  return { ...problem, factors };
}

test('when all work is spent, cost and bound still enclose the optimum', (t) => {
  fc.assert(
    fc.property(problems, (problem) => {
      const least = bruteForce(problem);
      if (least === Infinity) return;
      const solution = eliminate(problem, new TableAlgebra(), { tableEntries: 1e6, tableWork: 1e6, allWork: 1 });
      t.true(solution.bound <= least && least <= solution.cost);
    }),
    { numRuns: draws(30) },
  );
});

test('a chain of 2,000 equal layers is solved at once, since equal tables are eliminated once', (t) => {
  const random = generator(7);
  const layer = { sizes: [12, 12], values: Float64Array.from({ length: 144 }, () => Math.floor(random() * 1000)) };
  const side = { sizes: [5, 12], values: Float64Array.from({ length: 60 }, () => Math.floor(random() * 100)) };
  const sizes = [5, ...new Array<number>(2000).fill(12)];
  const factors: CostFactor[] = [];
  for (let index = 1; index <= 2000; index++) {
    factors.push({ variables: [0, index], table: side });
    if (index > 1) factors.push({ variables: [index - 1, index], table: layer });
  }
  const problem = { sizes, factors };
  const solution = eliminate(problem);
  t.is(solution.cost, chainByDynamicProgramming(layer.values, side.values, 2000));
  t.is(solution.bound, solution.cost);
});

function chainByDynamicProgramming(layer: Float64Array, side: Float64Array, length: number): number {
  let least = Infinity;
  for (let shared = 0; shared < 5; shared++) {
    let best = Array.from({ length: 12 }, (_, state) => side[shared * 12 + state] as number);
    for (let index = 1; index < length; index++) {
      best = Array.from(
        { length: 12 },
        (_, state) =>
          (side[shared * 12 + state] as number) +
          Math.min(...best.map((cost, previous) => cost + (layer[previous * 12 + state] as number))),
      );
    }
    least = Math.min(least, ...best);
  }
  return least;
}

function bruteForce(problem: CostProblem): number {
  const states = new Array<number>(problem.sizes.length).fill(0);
  let least = Infinity;
  for (;;) {
    least = Math.min(least, costOf(problem, states));
    let digit = states.length - 1;
    while (digit >= 0 && states[digit] === (problem.sizes[digit] as number) - 1) states[digit--] = 0;
    if (digit < 0) return least;
    states[digit] = (states[digit] as number) + 1;
  }
}

function randomProblem(
  sizes: readonly number[],
  density: number,
  forbidden: number,
  random: () => number,
): CostProblem {
  const table = (dims: readonly number[]) => ({
    sizes: dims,
    values: Float64Array.from({ length: dims.reduce((a, b) => a * b, 1) }, () =>
      random() < forbidden ? Infinity : Math.floor(random() * 20),
    ),
  });
  const factors: CostFactor[] = sizes.map((size, variable) => ({ variables: [variable], table: table([size]) }));
  sizes.forEach((a, i) => {
    sizes.forEach((b, j) => {
      if (i === j || random() >= density / 2) return;
      factors.push({ variables: [i, j], table: table([a, b]) });
    });
  });
  return { sizes, factors };
}

/** A small deterministic generator (Park and Miller), values in [0, 1). */
function generator(seed: number): () => number {
  let state = seed % 2147483647;
  return () => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
  };
}
