/**
 * @file What the planner asks of a completion: of one mesh, the assignment that completes what is pinned. By search
 * (by-search.ts), or by propagation (propagated-assignment.ts).
 */
import type { Cluster } from '../cost-model/cluster.js';
import type { Graph, Node } from '../ir/graph.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import type { Pin } from '../sharding-propagation/pin.js';
import type { Propagation } from '../sharding-propagation/propagation/propagate.js';
import type { Deadline } from '../solver/deadline.js';
import type { OperatorQuestions } from './operator-questions.js';
import type { UsedMode } from './search-mode.js';
import type { MeshSolution } from './solve-mesh.js';
import type { ZeroLevel } from './zero.js';

export interface Completion {
  /** How it completes, where the answer does not say. */
  readonly mode: UsedMode;
  readonly solve: (
    graph: Graph,
    mesh: Mesh,
    cluster: Cluster,
    options: CompletionOptions,
  ) => Completed | Promise<Completed>;
}

/** Inputs of a completion on one mesh. */
export interface CompletionOptions {
  /** Axes whose degree the user gave. */
  readonly pinned: ReadonlySet<string>;
  readonly questions: OperatorQuestions;
  readonly pins: readonly Pin[];
  readonly axes: 'roles' | 'free';
  readonly allToAll: boolean;
  readonly zero?: ZeroLevel;
  /** By operator the axes of its stage, where stages have other meshes than one another. */
  readonly meshOf?: (node: Node) => Mesh;
  /** The user's; a completion that can be ended throws OutOfTime. */
  readonly deadline: Deadline;
}

export interface Completed extends MeshSolution {
  readonly mode?: UsedMode;
  /** The time was over before the search was. */
  readonly isCut?: boolean;
  readonly propagation?: Propagation;
  /** Looks for the cheapest assignment of this mesh that fits so many bytes per device. */
  readonly within?: (limit: number) => Promise<Fitting>;
}

/** What a mesh has for a memory limit. */
export interface Fitting {
  /** Null where none was found. */
  readonly completed: Completed | null;
  /** The least bytes per device of any assignment that was looked at. */
  readonly least: number;
  /** No assignment needs less. */
  readonly atLeast: number;
}
