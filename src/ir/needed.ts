/**
 * @file Nodes that lead to tensors, and nodes that tensors lead to.
 */
import type { Node } from './graph.js';

/** Tensors that a node reads or makes; null for those that are not there. */
export type TensorNames = readonly (string | null)[];

/** The tensors that a node of a graph reads and makes. */
interface NodeTensors {
  readonly inputs: TensorNames;
  readonly outputs: TensorNames;
}

/** The nodes of a list in topological order that lead to `ends`, in the same order. */
export function needed<N extends NodeTensors>(nodes: readonly N[], ends: Iterable<string>): readonly N[];
export function needed<N>(
  nodes: readonly N[],
  ends: Iterable<string>,
  readsOf: (node: N) => TensorNames,
  resultsOf: (node: N) => TensorNames,
): readonly N[];
export function needed<N>(
  nodes: readonly N[],
  ends: Iterable<string>,
  readsOf = (node: N) => (node as NodeTensors).inputs,
  resultsOf = (node: N) => (node as NodeTensors).outputs,
): readonly N[] {
  const wanted = new Set<string | null>(ends);
  const kept = nodes.toReversed().filter((node) => {
    const isRead = resultsOf(node).some((name) => name !== null && wanted.has(name));
    if (isRead) for (const name of readsOf(node)) wanted.add(name);
    return isRead;
  });
  return kept.reverse();
}

/** Nodes and tensors that some tensors lead to. */
export interface ReachedGraph {
  readonly nodes: ReadonlySet<Node>;
  /** Results of these nodes, and the tensors to start with. */
  readonly tensors: ReadonlySet<string>;
}

/** Whether a node is reached, given the tensors that are reached. */
type IsReached = (node: Node, tensors: ReadonlySet<string>) => boolean;

/** Nodes of a list in topological order that the tensors lead to, with their results. */
export function reached(
  nodes: readonly Node[],
  starts: Iterable<string>,
  isReached: IsReached = readsAny,
): ReachedGraph {
  const tensors = new Set(starts);
  const found = new Set<Node>();
  for (const node of nodes) {
    if (!isReached(node, tensors)) continue;
    found.add(node);
    for (const name of node.outputs) if (name !== null) tensors.add(name);
  }
  return { nodes: found, tensors };
}

/** Whether a node reads some of the tensors. */
export function readsAny({ inputs }: Node, tensors: ReadonlySet<string>): boolean {
  return inputs.some((name) => name !== null && tensors.has(name));
}

/** Whether a node reads no other tensors. */
export function readsOnly({ inputs }: Node, tensors: ReadonlySet<string>): boolean {
  return inputs.every((name) => name === null || tensors.has(name));
}
