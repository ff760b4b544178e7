/**
 * @file A graph with its blocks replaced by their bodies: for the ONNX writer, and for code that looks for single operators.
 */
import type { Graph, Node, TensorType, Weight } from '../graph.js';
import type { BlockKind } from '../operator.js';

/**
 * The graph without blocks (without those of one kind where it is given); the same graph where it has none. A body's tensors
 * have names that are unique in the graph.
 */
export function flattenBlocks(graph: Graph, kind?: BlockKind): Graph {
  const opens = (node: Node) => node.body !== null && (kind === undefined || node.op === kind);
  if (!graph.nodes.some(opens)) return graph;
  const tensors = new Map<string, TensorType>(graph.tensors);
  const weights = new Map<string, Weight>(graph.weights);
  const nodes = graph.nodes.flatMap((block): readonly Node[] => {
    if (!block.body || !opens(block)) return [block];
    for (const [name, type] of block.body.tensors) if (!tensors.has(name)) tensors.set(name, type);
    for (const [name, weight] of block.body.weights) weights.set(name, weight);
    // The block's strategy does not apply to them: each is a group of its own again.
    const { layer, phase, forward } = block;
    return block.body.nodes.map((node) => ({ ...node, layer, phase, forward, group: node.name }));
  });
  return { ...graph, nodes, tensors, weights };
}
