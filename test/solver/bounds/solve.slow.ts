/**
 * @file The solver against brute force on thousands of random problems with memory limits.
 */
import test from 'ava';
import fc from 'fast-check';
import { loadSolver } from '../../../src/solver/bounds/integer-solvers.js';
import { checkSolve } from './check-solve.js';
import { problems } from './random-problems.js';

test('4,000 problems of up to seven variables: the solver proves what brute force finds', async (t) => {
  const highs = await loadSolver('highs');
  fc.assert(
    fc.property(problems(7), (problem) => checkSolve(t, problem, highs)),
    { numRuns: 4000 },
  );
});

test('1,500 problems without an integer solver: the bound never passes the optimum', (t) => {
  fc.assert(
    fc.property(problems(7), (problem) => checkSolve(t, problem, null)),
    { numRuns: 1500 },
  );
});
