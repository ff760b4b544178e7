/**
 * @file The bytes that all devices together hold when a step's backward begins, however it is sharded: an element of a tensor is
 * on one device at least. No plan needs less than a device's share of them, which tells without a search that some fit nowhere.
 */
import { byteLength } from '../ir/dtype.js';
import { elementCount, type Graph, isBackward, typeOf } from '../ir/graph.js';
import { isReshaped } from '../ir/ops/index.js';

/**
 * Weights, state, and whatever else the backward reads; in inference weights alone. A tensor that is another one in a new shape
 * takes no memory of its own.
 */
export function leastBytes(graph: Graph): number {
  const { nodes, inputs, state, weights } = graph;
  const begin = nodes.findIndex(({ phase }) => isBackward(phase));
  const origins = new Map([...inputs, ...weights.keys()].map((name) => [name, name]));
  for (const node of begin < 0 ? [] : nodes.slice(0, begin)) {
    const [operand] = node.inputs;
    for (const result of node.outputs)
      if (result !== null) origins.set(result, (isReshaped(node) && operand && origins.get(operand)) || result);
  }
  const held = new Set(state.map(({ input }) => input));
  for (const [index, node] of nodes.entries()) {
    for (const name of node.inputs) {
      if (name === null) continue;
      if (weights.has(name)) held.add(name);
      const origin = begin >= 0 && index >= begin ? origins.get(name) : undefined;
      if (origin !== undefined) held.add(origin);
    }
  }
  return [...held].reduce((sum, name) => {
    const { dtype, shape } = typeOf(graph, name);
    return sum + byteLength(dtype, elementCount(shape));
  }, 0);
}
