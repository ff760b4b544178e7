/**
 * @file One mesh, solved at once and on this thread: exact elimination, again while it uses prices that are only bounded.
 */
import type { Assignment } from '../partition/assignment.js';
import type { Resharder } from '../sharding-propagation/resharding.js';
import type { CostSolution } from '../solver/problem.js';
import type { MeshProblem } from './mesh-problem.js';

export interface MeshSolution {
  readonly assignment: Assignment;
  /** Prices reshardings and remembers their steps. */
  readonly resharder: Resharder;
  /** Integer nanoseconds. */
  readonly cost: number;
  readonly bound: number;
  readonly exceptions: readonly { readonly operator: string; readonly reason: string }[];
}

/** The solution of a mesh for a state per variable. */
export function meshSolution(problem: MeshProblem, { states, cost, bound }: CostSolution): MeshSolution {
  const { groups, resharder, fixed, exceptions } = problem;
  return {
    assignment: groups.assignmentOf(states),
    resharder,
    cost: cost + fixed,
    bound: bound + fixed,
    exceptions,
  };
}
