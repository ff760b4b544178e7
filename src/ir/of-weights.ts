/**
 * @file Weights, and tensors that are computed from weights alone: a transposed or converted weight.
 */
import type { Graph } from './graph.js';
import { reached, readsOnly } from './needed.js';

/** Weights, including those that a training step updates, and tensors that are computed from weights alone. */
export function weightTensors({ nodes, weights, state }: Graph): ReadonlySet<string> {
  const starts = [...weights.keys(), ...state.map(({ input }) => input)];
  const isOfWeights: typeof readsOnly = (node, tensors) => node.inputs.some(Boolean) && readsOnly(node, tensors);
  return reached(nodes, starts, isOfWeights).tensors;
}

/** Weights that no step updates, tensors that are computed from them, and tensors that are computed from nothing (a Range). */
export function fixedTensors({ nodes, weights }: Pick<Graph, 'nodes' | 'weights'>): ReadonlySet<string> {
  return reached(nodes, weights.keys(), readsOnly).tensors;
}
