/**
 * @file A graph with its regions replaced by their bodies: for the ONNX writer, and for code that looks for single operators.
 */
import type { Graph, Node, TensorType, Weight } from '../graph.js';
import type { RegionKind } from '../operator.js';

/**
 * The graph without regions (without those of one kind where it is given); the same graph where it has none. A body's tensors
 * have names that are unique in the graph.
 */
export function flattenRegions(graph: Graph, kind?: RegionKind): Graph {
  const opens = (node: Node) => node.body !== null && (kind === undefined || node.op === kind);
  if (!graph.nodes.some(opens)) return graph;
  const tensors = new Map<string, TensorType>(graph.tensors);
  const weights = new Map<string, Weight>(graph.weights);
  const nodes = graph.nodes.flatMap((region): readonly Node[] => {
    if (!region.body || !opens(region)) return [region];
    for (const [name, type] of region.body.tensors) if (!tensors.has(name)) tensors.set(name, type);
    for (const [name, weight] of region.body.weights) weights.set(name, weight);
    // The region's strategy does not apply to them: each is a group of its own again.
    const { layer, phase, forward } = region;
    return region.body.nodes.map((node) => ({ ...node, layer, phase, forward, group: node.name }));
  });
  return { ...graph, nodes, tensors, weights };
}
