/**
 * @file The interface of a completion: for one mesh, it returns the assignment that completes the pins. By search
 * (by-search.ts), or by propagation (propagated-assignment.ts).
 */
import type { Cluster } from '../cost-model/cluster.js';
import type { Graph, Node } from '../ir/graph.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import type { Pin } from '../sharding-propagation/pin.js';
import type { Propagation } from '../sharding-propagation/propagation/propagate.js';
import type { Deadline } from '../solver/deadline.js';
import type { OperatorFactsOf } from './operator-facts.js';
import type { UsedMode } from './search-mode.js';
import type { MeshSolution } from './solve-mesh.js';
import type { ZeroLevel } from './zero.js';

export interface Completion {
  /** The mode, where the result does not state it. */
  readonly mode: UsedMode;
  readonly solve: (
    graph: Graph,
    mesh: Mesh,
    cluster: Cluster,
    options: CompletionOptions,
  ) => CompletedPlan | Promise<CompletedPlan>;
}

/** Inputs of a completion on one mesh. */
export interface CompletionOptions {
  /** Axes whose degree the user gave. */
  readonly pinned: ReadonlySet<string>;
  readonly factsOf: OperatorFactsOf;
  readonly pins: readonly Pin[];
  readonly axes: 'roles' | 'free';
  readonly allToAll: boolean;
  readonly zero?: ZeroLevel;
  /** The mesh of an operator's stage, where stages have different meshes. */
  readonly meshOf?: (node: Node) => Mesh;
  /** The user's time limit; a completion that can be interrupted throws OutOfTime. */
  readonly deadline: Deadline;
}

export interface CompletedPlan extends MeshSolution {
  readonly mode?: UsedMode;
  /** Whether the time ran out before the search ended. */
  readonly isCut?: boolean;
  readonly propagation?: Propagation;
  /** Searches for the cheapest assignment of this mesh that fits so many bytes per device. */
  readonly within?: (limit: number) => Promise<Fitting>;
}

/** The result for a mesh under a memory limit. */
export interface Fitting {
  /** Null where none was found. */
  readonly completed: CompletedPlan | null;
  /** The least bytes per device of any examined assignment. */
  readonly least: number;
  /** No assignment needs less. */
  readonly atLeast: number;
}
