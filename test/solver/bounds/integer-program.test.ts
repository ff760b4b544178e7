/**
 * @file Integer programs: HiGHS and GLPK find the same as brute force.
 */
import test from 'ava';
import fc from 'fast-check';
import { coreCost, packed } from '../../../src/solver/bounds/core.js';
import { formulate } from '../../../src/solver/bounds/integer-program.js';
import { type IntegerSolver, loadSolver } from '../../../src/solver/bounds/integer-solvers.js';
import { reduce } from '../../../src/solver/bounds/reduction.js';
import type { LimitedProblem } from '../../../src/solver/problem.js';
import { draws } from '../../selection.js';
import { bruteForce, problems } from './random-problems.js';

const LIMITS = { seconds: 20, nodes: 1e6, iterations: Infinity };

for (const name of ['highs', 'glpk'] as const) {
  test(`${name} finds the optimum of the formulation, which is the problem's`, async (t) => {
    const solver = await loadSolver(name);
    t.is(solver.name, name);
    fc.assert(
      fc.property(problems(5), (problem) => {
        const least = bruteForce(problem);
        if (least === Infinity) return;
        t.is(optimum(problem, solver), least);
      }),
      { numRuns: draws(60) },
    );
  });
}

test('a GLPK that is not installed is said so, with the remedy', async (t) => {
  const absent = () => Promise.reject(new Error('no such package'));
  const error = await t.throwsAsync(loadSolver('glpk', absent), { message: 'the package glpk.js is not installed' });
  t.is((error as { code?: string }).code, 'solver-absent');
  t.regex((error as { hint?: string }).hint ?? '', /npm install glpk\.js .*--solver highs/);
});

test('HiGHS says when a program has no solution', async (t) => {
  const solver = await loadSolver('highs');
  const answer = solver.solve(
    {
      costs: Float64Array.of(1),
      integers: 1,
      starts: Int32Array.of(0, 1, 2),
      columns: Int32Array.of(0, 0),
      values: Float64Array.of(1, 1),
      lower: Float64Array.of(1, -Infinity),
      upper: Float64Array.of(1, 0),
      offset: 0,
      scale: 1,
    },
    LIMITS,
  );
  t.is(answer.columns, null);
  t.is(answer.bound, Infinity);
});

test('HiGHS ends after so many simplex iterations, wherever it is', async (t) => {
  const solver = await loadSolver('highs');
  // Two subsets of odd numbers with the same sum, in several rows at once: branching takes long to show that there are none.
  const [count, rows] = [40, 4];
  const weight = (row: number, column: number) =>
    2 * ((7919 * (row + 3) * (column + 11) + 31 * column * column) % 97) + 1;
  const sums = Array.from({ length: rows }, (_, row) =>
    Math.floor(
      Array.from({ length: count }, (_, column) => weight(row, column)).reduce((sum, one) => sum + one, 0) / 2,
    ),
  );
  const program = {
    costs: Float64Array.from({ length: count }, (_, column) => 1 + (column % 7)),
    integers: count,
    starts: Int32Array.from({ length: rows + 1 }, (_, row) => row * count),
    columns: Int32Array.from({ length: rows * count }, (_, entry) => entry % count),
    values: Float64Array.from({ length: rows * count }, (_, entry) => weight(Math.floor(entry / count), entry % count)),
    lower: Float64Array.from(sums),
    upper: Float64Array.from(sums),
    offset: 0,
    scale: 1,
  };
  const few = solver.solve(program, { ...LIMITS, nodes: 2000, iterations: 50 });
  const more = solver.solve(program, { ...LIMITS, nodes: 2000, iterations: 5000 });
  t.false(few.isOptimal);
  t.true(few.bound < more.bound, `${few.bound} after 50 iterations, ${more.bound} after 5000`);
  t.deepEqual(solver.solve(program, { ...LIMITS, nodes: 2000, iterations: 50 }), few);
});

function optimum(problem: LimitedProblem, solver: IntegerSolver): number {
  const core = packed(reduce(problem), problem.limit);
  if (core.count === 0) return core.constant;
  const rows = Array.from({ length: core.rows }, (_, row) => row);
  const formulation = formulate(core, new Uint8Array(core.unary.length).fill(1), rows, 1);
  const answer = solver.solve(formulation.program, LIMITS);
  if (!answer.columns) return Infinity;
  return coreCost(core, formulation.statesOf(answer.columns)) + core.constant;
}
