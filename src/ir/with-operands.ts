/**
 * @file An operator that reads other tensors.
 */
import type { Graph, Node } from './graph.js';

/** The operator with other operands; a region's body uses the same names for them. */
export function withOperands(node: Node, inputs: Node['inputs']): Node {
  if (!node.body) return { ...node, inputs };
  const renamed = new Map(
    node.inputs.flatMap((input, operand) => (input === null ? [] : [[input, inputs[operand] ?? input] as const])),
  );
  return { ...node, inputs, body: renamedGraph(node.body, renamed) };
}

function renamedGraph(graph: Graph, names: ReadonlyMap<string, string>): Graph {
  const nameOf = (name: string) => names.get(name) ?? name;
  const all = (list: readonly (string | null)[]) => list.map((name) => (name === null ? null : nameOf(name)));
  return {
    ...graph,
    nodes: graph.nodes.map((node) => ({ ...node, inputs: all(node.inputs), outputs: all(node.outputs) })),
    tensors: new Map([...graph.tensors].map(([name, type]) => [nameOf(name), type])),
    weights: new Map([...graph.weights].map(([name, weight]) => [nameOf(name), weight])),
    inputs: graph.inputs.map(nameOf),
  };
}
