/**
 * @file The repeated layers of a graph (find-layers.ts), and which of them are equal.
 */
import type { Graph, Node } from './graph.js';
import { groupBy } from './group-by.js';
import { typeKey } from './structure-key.js';

/** Layers that are equal, or that the first one represents. */
export interface LayerClass {
  /** Name of the first layer. */
  readonly name: string;
  /** All layers of the class in order, the first included. */
  readonly instances: readonly string[];
}

/** Operators of each layer, in their order. */
export function operatorsByLayer(nodes: readonly Node[]): ReadonlyMap<string, readonly Node[]> {
  return groupBy(nodes, ({ layer }) => layer);
}

/**
 * The classes of layers, including classes of one layer. Corresponding operators of equal layers have equal types and equal
 * `describe`, as JSON; `first` is the first operator of the layer.
 */
export function layerClasses(
  { nodes, tensors }: Pick<Graph, 'nodes' | 'tensors'>,
  describe: (node: Node, first: Node) => unknown,
): readonly LayerClass[] {
  const typesOf = ({ inputs, outputs }: Node) =>
    [...inputs, ...outputs].map((name) => typeKey(tensors.get(name ?? '') ?? null));
  const classes = groupBy(operatorsByLayer(nodes), ([, own]) =>
    JSON.stringify(own.map((node) => [node.op, node.domain, typesOf(node), describe(node, own[0] as Node)])),
  );
  return [...classes.values()].map((own) => {
    const instances = own.map(([layer]) => layer);
    return { name: instances[0] as string, instances };
  });
}

/** By layer: the name of its class. */
export function classNames(classes: readonly LayerClass[]): ReadonlyMap<string, string> {
  return new Map(classes.flatMap(({ name, instances }) => instances.map((layer) => [layer, name] as const)));
}

/**
 * For each operator and computed tensor of a layer that is not the first of its class: the one of the first layer. Tensors of
 * recompute clones are included, where the first layer's operators have clones too.
 * A layer that the graph lacks, or whose operators do not correspond, contributes nothing.
 */
export function leadersOf(graph: Graph, classes: readonly LayerClass[]): Leaders {
  const layers = operatorsByLayer(graph.nodes.filter(({ phase }) => phase !== 'recompute'));
  const operators = new Map<string, string>();
  const tensors = new Map<string, string>();
  for (const { name, instances } of classes) {
    const first = layers.get(name) ?? [];
    for (const instance of instances) {
      const nodes = layers.get(instance) ?? [];
      if (instance === name || nodes.length !== first.length) continue;
      nodes.forEach((node, index) => {
        const leader = first[index] as Node;
        operators.set(node.name, leader.name);
        node.outputs.forEach((output, result) => {
          const leading = leader.outputs[result];
          if (output !== null && leading) tensors.set(output, leading);
        });
      });
    }
  }
  const clones = new Map(
    graph.nodes.flatMap((node) => (node.phase === 'recompute' ? [[node.forward, node] as const] : [])),
  );
  for (const { forward, outputs } of clones.values()) {
    const leader = clones.get(operators.get(forward ?? '') ?? null);
    outputs.forEach((output, result) => {
      const leading = leader?.outputs[result];
      if (output !== null && leading) tensors.set(output, leading);
    });
  }
  return { operators, tensors };
}

export interface Leaders {
  readonly operators: ReadonlyMap<string, string>;
  readonly tensors: ReadonlyMap<string, string>;
}
