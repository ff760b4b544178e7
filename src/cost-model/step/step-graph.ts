/**
 * @file Index of a sharded training step for reading kernels off it: the maker and the readers of each tensor, and the operator
 * of the model that each node belongs to, as its forward or its backward.
 */
import { type GraphIndex, indexGraph } from '../../ir/fused-regions/matching.js';
import type { Graph, Node } from '../../ir/graph.js';
import { appendTo } from '../../ir/group-by.js';
import { type Makers, makersOf } from '../../ir/makers-and-readers.js';
import type { OperatorFamily } from '../../ir/operator.js';
import { entryOf, operatorFamily } from '../../ir/ops/index.js';
import { forwardGroups } from '../../partition/kernels.js';
import {
  type ComputeNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
  type ShardedTensor,
} from '../../partition/sharded-graph.js';
import { type ExpertRoutes, expertRoutes } from './expert-routes.js';

export type PassPhase = 'forward' | 'backward';

/** Built once, for all its readers. `graph` is the unsharded training graph that `sharded` was lowered from. */
export class StepGraph {
  /** By name of an unsharded node: its group. */
  private readonly groupOf: ReadonlyMap<string, string>;
  /** By group: the forward operator. */
  readonly heads = new Map<string, Node>();
  private readonly readers = new Map<string, ShardedNode[]>();
  private readonly makers: Makers<ShardedNode>;
  private readonly forward = new Map<string, ComputeNode[]>();
  readonly weights: ReadonlySet<string>;
  readonly outputs: ReadonlySet<string>;
  /** The unsharded graph. */
  readonly index: GraphIndex;
  /** Routes of matmuls with a weight per expert. */
  readonly routes: ExpertRoutes;

  constructor(
    graph: Graph,
    readonly sharded: ShardedGraph,
  ) {
    this.index = indexGraph(graph);
    this.routes = expertRoutes(this.index);
    for (const node of graph.nodes) {
      if (node.phase === 'forward' && !this.heads.has(node.group)) this.heads.set(node.group, node);
    }
    this.groupOf = forwardGroups(graph);
    this.makers = makersOf(sharded.nodes, resultsOf);
    for (const node of sharded.nodes) {
      for (const name of readsOf(node)) appendTo(this.readers, name, node);
      if (node.kind === 'compute' && node.phase === 'forward') appendTo(this.forward, this.group(node), node);
    }
    this.weights = new Set([...sharded.weights.map(({ tensor }) => tensor), ...sharded.constants.keys()]);
    this.outputs = new Set(sharded.outputs.map(({ tensor }) => tensor));
  }

  /** The computations of a group's forward, in order. */
  forwardOf(group: string): readonly ComputeNode[] {
    return this.forward.get(group) ?? [];
  }

  readersOf(tensor: string): readonly ShardedNode[] {
    return this.readers.get(tensor) ?? [];
  }

  makerOf(tensor: string): ShardedNode | undefined {
    return this.makers.get(tensor);
  }

  /** Every tensor that is read, with its readers. */
  read(): Iterable<readonly [tensor: string, readers: readonly ShardedNode[]]> {
    return this.readers;
  }

  group(node: ShardedNode): string {
    return this.groupOf.get(node.origin) ?? node.origin;
  }

  /** The family of a group's forward operator; sums of gradients, which have none, work element by element. */
  family(group: string): OperatorFamily {
    const head = this.heads.get(group);
    if (!head) return 'elementwise';
    return operatorFamily(head) ?? 'other';
  }

  tensor(name: string): ShardedTensor {
    const tensor = this.sharded.tensors.get(name);
    if (!tensor) throw new Error(`no tensor ${name}`);
    return tensor;
  }
}

/** Views share their operand's memory. */
export function isView(node: ComputeNode): boolean {
  return entryOf(node.op, node.domain)?.isView === true;
}

/** Views, and operators that make small tables. */
export function isFree(node: ComputeNode): boolean {
  return isView(node) || node.inputs.every((name) => name === null);
}

export function phaseOf(node: ShardedNode): PassPhase {
  return node.phase === 'forward' ? 'forward' : 'backward';
}
