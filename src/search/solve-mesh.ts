/**
 * @file One mesh, solved at once and on this thread: exact elimination, again while it uses prices that are only bounded.
 */
import type { Cluster } from '../cost-model/cluster.js';
import type { Graph } from '../ir/graph.js';
import type { Assignment } from '../partition/assignment.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import type { Redistributor } from '../sharding-propagation/redistribution.js';
import { settled } from './cheapest.js';
import type { CostSolution } from './cost-problem.js';
import { type MeshOptions, type MeshProblem, meshProblem } from './mesh-problem.js';

export interface MeshSolution {
  readonly assignment: Assignment;
  /** What priced its redistributions: it remembers their steps. */
  readonly redistributor: Redistributor;
  /** Integer nanoseconds. */
  readonly cost: number;
  readonly bound: number;
  readonly exceptions: readonly { readonly operator: string; readonly reason: string }[];
}

/** The cheapest assignment on a mesh. */
export function solveMesh(graph: Graph, mesh: Mesh, cluster: Cluster, options: MeshOptions): MeshSolution {
  const problem = meshProblem(graph, mesh, cluster, options);
  return meshSolution(problem, settled(problem.groups));
}

/** What a state per variable stands for. */
export function meshSolution(problem: MeshProblem, { states, cost, bound }: CostSolution): MeshSolution {
  const { groups, redistributor, fixed, exceptions } = problem;
  return {
    assignment: groups.assignmentOf(states),
    redistributor,
    cost: cost + fixed,
    bound: bound + fixed,
    exceptions,
  };
}
