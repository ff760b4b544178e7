/**
 * @file ONNX Runtime's mixtures of experts in one operator as plain ones, in which every token goes through every expert: the
 * form that dispatch recognises. Its weights [experts, rows, columns] can be sharded over experts then.
 */

import type { Graph, TensorType, Weight } from '../graph.js';
import { inPlaceOf } from '../in-place-of.js';
import { operatorOf } from '../operator-of.js';
import { expertEntries, plainExpertsForm } from '../ops/experts.js';

const OPERATORS: ReadonlySet<string> = new Set(expertEntries.map(({ op, domain }) => `${domain}:${op}`));

/** The graph without these operators, except for unproven forms of them; the graph itself if none. */
export function expandExperts(graph: Graph): Graph {
  if (!graph.nodes.some(({ op, domain }) => OPERATORS.has(`${domain}:${op}`))) return graph;
  const tensors = new Map<string, TensorType>(graph.tensors);
  const weights = new Map<string, Weight>(graph.weights);
  const nodes = graph.nodes.flatMap((node) => {
    const plain = OPERATORS.has(`${node.domain}:${node.op}`) ? plainExpertsForm(operatorOf(graph, node)) : null;
    return plain ? inPlaceOf(node, plain, { tensors, weights }).nodes : [node];
  });
  return { ...graph, nodes, tensors, weights };
}
