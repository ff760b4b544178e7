/**
 * @file Gradients are written whole, whichever of their results are read: operators that nothing reads are left out. Lowering
 * leaves them out too, so that the result would cost less than a search over the graph predicts.
 */
import type { Graph } from '../graph.js';
import { needed } from '../needed.js';

export function withoutUnread(graph: Graph): Graph {
  const nodes = needed(graph.nodes, graph.outputs);
  const kept = new Set(nodes);
  const tensors = new Map(graph.tensors);
  const makers = new Map(nodes.flatMap((node) => node.outputs.map((output) => [output, node.name] as const)));
  /** By removed operator: one before it, to which its gradients belong then. */
  const before = new Map<string, string>();
  for (const node of graph.nodes) {
    if (kept.has(node)) continue;
    for (const name of node.outputs) if (name !== null) tensors.delete(name);
    const [operand] = node.inputs.flatMap((name) => makers.get(name) ?? []);
    if (operand !== undefined) before.set(node.name, before.get(operand) ?? operand);
    for (const name of node.outputs) if (operand !== undefined) makers.set(name, operand);
  }
  const placed = nodes.map((node) => {
    const forward = before.get(node.forward ?? '');
    return forward === undefined ? node : { ...node, forward };
  });
  return { ...graph, nodes: placed, tensors };
}
