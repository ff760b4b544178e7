/**
 * @file Classes of repeated layers: layers whose operators correspond one to one and share their strategies. plan.json
 * spells out the first layer of a class; the others take its entries by position.
 */
import type { Graph, Node } from '../ir/graph.js';

export interface LayerClass {
  /** Name of the first layer. */
  readonly name: string;
  /** All layers of the class, the first included. */
  readonly instances: readonly string[];
}

/** Operators of each layer, in graph order, without clones of what is recomputed, which some layers of a class may have. */
function operatorsByLayer(graph: Graph): ReadonlyMap<string, readonly Node[]> {
  const layers = new Map<string, Node[]>();
  for (const node of graph.nodes) {
    if (node.layer === null || node.phase === 'recompute') continue;
    const list = layers.get(node.layer);
    if (list) list.push(node);
    else layers.set(node.layer, [node]);
  }
  return layers;
}

/** Number of operators of a layer. */
export function operatorCount(graph: Graph, layer: string): number {
  return operatorsByLayer(graph).get(layer)?.length ?? 0;
}

/** Layers of equal structure whose operators have equal `describe`; only classes of at least two layers. */
export function layerClasses(graph: Graph, describe: (node: Node) => string): readonly LayerClass[] {
  const classes = new Map<string, string[]>();
  for (const [layer, nodes] of operatorsByLayer(graph)) {
    const signature = JSON.stringify(nodes.map((node) => [node.op, node.domain, typesOf(graph, node), describe(node)]));
    const list = classes.get(signature);
    if (list) list.push(layer);
    else classes.set(signature, [layer]);
  }
  return [...classes.values()]
    .filter((instances) => instances.length > 1)
    .map((instances) => ({ name: instances[0] as string, instances }));
}

/**
 * For each operator and computed tensor of a layer that is not the first of its class: the one of the first layer. Clones of
 * operators have their tensors in it, where the first layer's have clones too.
 * A layer that the graph lacks, or whose operators do not correspond, contributes nothing.
 */
export function leadersOf(graph: Graph, classes: readonly LayerClass[]): Leaders {
  const layers = operatorsByLayer(graph);
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

function typesOf(graph: Graph, node: Node): readonly unknown[] {
  return [...node.inputs, ...node.outputs].map((name) => {
    const type = name === null ? undefined : graph.tensors.get(name);
    return type ? [type.dtype, ...type.shape] : null;
  });
}
