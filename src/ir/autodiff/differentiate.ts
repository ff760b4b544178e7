/**
 * @file Reverse-mode differentiation as a graph pass: from a graph and a scalar of it to the same graph with the operators that
 * make that scalar's gradients (backpropagation.ts). Fused regions stay nodes, and so are their gradients
 * (region-gradient.ts).
 */
import { isFloating } from '../dtype.js';
import { AutoparError } from '../error.js';
import { elementCount, type Graph, type Node, typeOf } from '../graph.js';
import { constant, constantWeight } from '../ops/constants.js';
import { operatorEntry } from '../ops/index.js';
import { unusedName } from '../unused-name.js';
import { backpropagate } from './backpropagation.js';
import { regionGradient } from './region-gradient.js';

/** A graph with gradients. */
export interface Differentiated {
  readonly graph: Graph;
  /** By wanted tensor: the tensor that holds its gradient. */
  readonly gradients: ReadonlyMap<string, string>;
}

/**
 * Adds the gradients of `loss` (a scalar of the graph, any tensor) with respect to `wanted` (weights, inputs or computed
 * tensors outside of regions). Outputs stay as they are.
 * @throws AutoparError (input) `loss-not-scalar`; `no-gradient` where an operator on the path has none, or no path leads from a
 * wanted tensor to the loss; both name the path
 */
export function differentiate(graph: Graph, loss: string, wanted: readonly string[]): Differentiated {
  const type = typeOf(graph, loss);
  if (elementCount(type.shape) !== 1 || !isFloating(type.dtype))
    throw new AutoparError(
      'loss-not-scalar',
      'input',
      `the loss '${loss}' is ${type.dtype} [${type.shape.join(', ')}]: the loss must be one floating-point number`,
      { tensor: loss },
      'name an output with one element, or append a loss: --loss cross_entropy or mse',
    );
  const { seeded, seed } = withSeed(graph, loss);
  const { forward, nodes, tensors, weights, gradients } = backpropagate(seeded, {
    seeds: new Map([[loss, seed]]),
    wanted,
    prefix: '',
    region: regionGradient,
  });
  const missing = wanted.find((name) => !gradients.has(name));
  if (missing !== undefined) throw noWay(graph, loss, missing);
  return { graph: { ...graph, nodes: [...forward, ...nodes], tensors, weights }, gradients };
}

/** The graph with the loss's own gradient, which is 1. */
function withSeed(graph: Graph, loss: string): { readonly seeded: Graph; readonly seed: string } {
  const { dtype, shape } = typeOf(graph, loss);
  const seed = unusedName(graph.tensors, 'gradient/seed');
  const weight = constantWeight(constant(dtype, [1], shape));
  const tensors = new Map([...graph.tensors, [seed, { dtype, shape }]]);
  return { seeded: { ...graph, tensors, weights: new Map([...graph.weights, [seed, weight]]) }, seed };
}

/** The error where no gradient arrived: it names where the path ends. */
function noWay(graph: Graph, loss: string, tensor: string): AutoparError {
  const reached = new Set([tensor]);
  let last: Node | null = null;
  for (const node of graph.nodes) {
    if (!node.inputs.some((name) => name !== null && reached.has(name))) continue;
    last = node;
    if (operatorEntry(node).gradient?.kind === 'none') break;
    for (const name of node.outputs) if (name !== null) reached.add(name);
  }
  const reason = last ? operatorEntry(last).gradient : undefined;
  const end =
    last === null
      ? 'nothing reads it'
      : reason?.kind === 'none'
        ? `the path ends at node '${last.name}' (${last.op}): ${reason.why}`
        : `its last reader is node '${last.name}' (${last.op}), which is not on a path to the loss`;
  return new AutoparError(
    'no-gradient',
    'input',
    `the loss '${loss}' does not depend on '${tensor}' in a way that can be differentiated: ${end}`,
    { tensor, ...(last ? { node: last.name } : {}) },
    'freeze it (--frozen), or take another loss',
  );
}
