/**
 * @file One problem solved and compared with brute force.
 */
import type { ExecutionContext } from 'ava';
import { boundedSearch } from '../../../src/solver/bounds/bounded-search.js';
import type { IntegerSolver } from '../../../src/solver/bounds/integer-solvers.js';
import { type LimitedProblem, limitedCostOf, NoAssignment } from '../../../src/solver/problem.js';
import { bruteForce } from './random-problems.js';

/** Effort that is ample for a handful of variables. */
const EFFORT = { work: 2e6 };

/** With an integer solver, cost and bound must be the optimum; without, they enclose it. */
export function checkSolve(t: ExecutionContext, problem: LimitedProblem, solver: IntegerSolver | null): void {
  const least = bruteForce(problem);
  if (least === Infinity) {
    try {
      t.is(boundedSearch(problem, EFFORT, solver).states, null);
    } catch (error) {
      t.true(error instanceof NoAssignment);
    }
    return;
  }
  const answer = boundedSearch(problem, EFFORT, solver);
  t.true(answer.bound <= least, `bound ${answer.bound} above ${least}`);
  if (answer.states) t.is(limitedCostOf(problem, answer.states), answer.cost);
  t.true(answer.cost >= least);
  if (solver) {
    t.is(answer.cost, least);
    t.is(answer.bound, least);
  }
}
