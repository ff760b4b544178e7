/**
 * @file A problem reduced and packed, and the way back to the states of the problem that all began with.
 */

import type { LimitedProblem } from '../problem.js';
import { type Core, packed } from './core.js';
import { reduce } from './reduction.js';

export interface SolverLevel {
  readonly core: Core;
  readonly limit: number;
  /** Cost of the problem's assignments over their cost in the core. */
  readonly constant: number;
  /** States of the first problem, from a state per variable of the core. */
  expand(states: ArrayLike<number>): number[];
  /** The row that has all the memory of a moment of the problem; a later one, or none, where that moment does not matter. */
  rowOf(moment: number): number;
  /** Table entries that were looked at. */
  readonly work: number;
}

/**
 * Reduces a problem that is a part of another.
 * @param constant cost of the other's assignments over their cost in the problem
 * @param expand states of the other, from the problem's
 * @throws NoAssignment where every assignment is forbidden, or takes more than the limit
 */
export function levelOf(problem: LimitedProblem, constant: number, expand: SolverLevel['expand']): SolverLevel {
  const reduction = reduce(problem);
  const core = packed(reduction, problem.limit);
  const numbers = new Map([...core.variables].map((variable, index) => [variable, index]));
  return {
    core,
    limit: problem.limit,
    constant: constant + reduction.constant,
    expand: (states) => expand(reduction.expand((variable) => states[numbers.get(variable) as number] as number)),
    rowOf: reduction.rowOf,
    work: reduction.work + core.entries,
  };
}
