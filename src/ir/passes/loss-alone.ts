/**
 * @file A training step that returns its loss, and none of the model's outputs: logits of all micro-batches would stay in memory
 * to the end of the step, and nothing reads them.
 */
import { elementCount, type Graph, typeOf } from '../graph.js';
import { needed } from '../needed.js';

/** The graph with the outputs that are state or single numbers. */
export function lossAlone(graph: Graph): Graph {
  const state = new Set(graph.state.map(({ output }) => output));
  const outputs = graph.outputs.filter((name) => state.has(name) || elementCount(typeOf(graph, name).shape) === 1);
  if (outputs.length === graph.outputs.length) return graph;
  const nodes = needed(graph.nodes, outputs);
  return { ...graph, outputs, nodes };
}
