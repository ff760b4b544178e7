/**
 * @file Weights of an inference in 16 bit. A float32 weight that every reader casts to the 16-bit type has that type itself, and
 * is rounded once, when it is read from its file: casts in the graph would read 4 bytes an element and write 2 at every step, and
 * devices would hold both.
 */
import type { Graph, Node } from '../graph.js';
import type { HalfType } from '../half.js';
import { readersOf } from '../makers-and-readers.js';
import { convertedSource } from '../onnx/converted-source.js';
import { operatorRole } from '../ops/index.js';
import { withOperands } from '../with-operands.js';

/** The graph without the casts of weights that are read in `low` only; a weight with another reader stays in float32. */
export function withNarrowWeights(graph: Graph, low: HalfType): Graph {
  const readers = readersOf(graph.nodes);
  const outputs = new Set(graph.outputs);
  const isCast = (node: Node) =>
    operatorRole(node) === 'cast' &&
    node.outputs.every((name) => name !== null && graph.tensors.get(name)?.dtype === low && !outputs.has(name));
  const weights = new Map(graph.weights);
  const tensors = new Map(graph.tensors);
  const weightOf = new Map<string, string>();
  for (const [name, weight] of graph.weights) {
    const casts = readers.get(name) ?? [];
    if (weight.dtype !== 'float32' || outputs.has(name) || casts.length === 0 || !casts.every(isCast)) continue;
    weights.set(name, { ...weight, dtype: low, source: convertedSource(weight.source, 'float32', low) });
    tensors.set(name, { dtype: low, shape: weight.shape });
    for (const [made = null] of casts.map((cast) => cast.outputs)) {
      if (made === null) continue;
      weightOf.set(made, name);
      tensors.delete(made);
    }
  }
  const operand = (name: string | null) => (name === null ? null : (weightOf.get(name) ?? name));
  const nodes = graph.nodes.flatMap((node) => {
    if (node.outputs.some((name) => name !== null && weightOf.has(name))) return [];
    return node.inputs.some((name) => name !== operand(name)) ? [withOperands(node, node.inputs.map(operand))] : [node];
  });
  return { ...graph, nodes, weights, tensors };
}
