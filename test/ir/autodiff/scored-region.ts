/**
 * @file A region with a loss behind it, and its gradient alone.
 */
import { floats } from '../../../models/builder.js';
import { differentiate } from '../../../src/ir/autodiff/differentiate.js';
import { isFloating } from '../../../src/ir/dtype.js';
import type { Graph, Node } from '../../../src/ir/graph.js';
import type { RegionKind } from '../../../src/ir/operator.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { asRegion } from '../fused-regions/region-graphs.js';

/** A graph with one region, whose result is summed with weights of all signs. */
export function scored(region: Graph): { readonly graph: Graph; readonly wanted: readonly string[] } {
  const { shape } = region.tensors.get('result') ?? { shape: [] };
  const count = shape.reduce((product, size) => product * size, 1);
  const weights = constant('float32', wave(count, 5), shape);
  const end = (name: string, op: string, inputs: readonly string[], attributes = {}): Node => ({
    ...(region.nodes[0] as Node),
    name,
    op,
    domain: '',
    attributes,
    inputs,
    outputs: [name],
    group: name,
    body: null,
  });
  const graph: Graph = {
    ...region,
    nodes: [
      ...region.nodes,
      end('weighted', 'Mul', ['result', 'weights']),
      end('total', 'ReduceSum', ['weighted'], { axes: shape.map((_, axis) => axis), keepdims: 0 }),
    ],
    tensors: new Map([...region.tensors, ['weights', weights], ['weighted', weights], ['total', floats([0], [])]]),
    weights: new Map([
      ...region.weights,
      ['weights', { ...weights, role: 'constant', source: { kind: 'inline', ...weights } }],
    ]),
    outputs: ['total'],
  };
  const wanted = [...graph.inputs, ...graph.weights.keys()].filter(
    (name) => isFloating(graph.tensors.get(name)?.dtype ?? 'bool') && name !== 'weights' && name !== 'mask',
  );
  return { graph, wanted };
}

export function wave(count: number, seed: number): readonly number[] {
  return Array.from({ length: count }, (_, at) => Math.sin(seed + 1.7 * at));
}

export function gradientNode(graph: Graph): Node {
  const node = graph.nodes.find(({ op, body }) => body !== null && op.endsWith('Gradient'));
  if (!node) throw new Error('no gradient region');
  return node;
}

/** The gradient as a graph of its own. */
export function gradientAlone(forward: Graph, kind: RegionKind): Graph {
  const { graph, wanted } = scored(asRegion(forward, kind));
  const whole = differentiate(graph, 'total', wanted).graph;
  const node = gradientNode(whole);
  const [inputs, outputs] = [node.inputs, node.outputs].map((names) => names.flatMap((name) => name ?? []));
  return { ...whole, nodes: [node], inputs: inputs ?? [], outputs: outputs ?? [], weights: new Map() };
}
