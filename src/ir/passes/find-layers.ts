/**
 * @file Pass `find-layers`: which repeated layer a node belongs to, from its module path, or by structure where the file has no
 * paths that show equal layers.
 *
 * A layer is the shallowest path prefix whose last step ends in an index (layers.0, encoder_layer_3) and that has a
 * sibling: another prefix under the same parent with the same stem and another index.
 */
import type { Graph, Node } from '../graph.js';
import { appendTo } from '../group-by.js';
import { layerClasses } from '../layers.js';
import { commonPath, moduleText, outsideOfIterations } from '../onnx/module-path.js';
import { attributesKey } from './attributes-key.js';
import { repeatedLayers } from './repeated-layers.js';

/**
 * The graph with `layer` set on every node, and with a module path where a node had none but its neighbours do.
 * @param placed the graph that it was made of, whose nodes have been through the pass and keep their paths
 */
export function findLayers(unplaced: Graph, placed?: Graph): Graph {
  const graph = placeNodes(unplaced, new Set(placed?.nodes.map(({ name }) => name)));
  const siblings = new Map<string, Set<string>>();
  for (const { module } of graph.nodes) {
    module.forEach((step, depth) => {
      const stem = stemOf(step);
      if (stem === null) return;
      const key = JSON.stringify([...module.slice(0, depth), stem]);
      const found = siblings.get(key) ?? new Set<string>();
      siblings.set(key, found.add(step));
    });
  }
  // Layers that were found by structure: what was made of their operators since is in them already.
  if (placed?.nodes.some((node) => node.layer !== null && layerOf(node, siblings) === null)) return graph;
  const named = graph.nodes.map((node) => ({ ...node, layer: layerOf(node, siblings) }));
  if (placed || unplaced.nodes.every(hasPath) || haveEqualLayers({ ...graph, nodes: named }))
    return { ...graph, nodes: named };
  const repeated = repeatedLayers(graph);
  if (repeated.every((layer) => layer === null)) return { ...graph, nodes: named };
  return { ...graph, nodes: graph.nodes.map((node, place) => ({ ...node, layer: repeated[place] ?? null })) };
}

function haveEqualLayers(graph: Graph): boolean {
  const layers = layerClasses(graph, ({ attributes }) => attributesKey(attributes));
  return layers.some(({ instances }) => instances.length > 1);
}

/**
 * Nodes that an exporter's optimiser made have no path: they get the path that their neighbours have in common, up to the
 * iteration of a loop, whose nodes all have one.
 */
function placeNodes(graph: Graph, placed: ReadonlySet<string>): Graph {
  if (graph.nodes.every(hasPath)) return graph;
  const neighbours = new Map<string, (readonly string[])[]>();
  for (const node of graph.nodes) {
    if (!hasPath(node)) continue;
    for (const tensor of [...node.inputs, ...node.outputs]) {
      if (tensor === null || graph.weights.has(tensor)) continue;
      appendTo(neighbours, tensor, node.module);
    }
  }
  const nodes = graph.nodes.map((node) => {
    if (hasPath(node) || placed.has(node.name)) return node;
    const paths = [...node.inputs, ...node.outputs].flatMap((tensor) =>
      tensor === null ? [] : (neighbours.get(tensor) ?? []),
    );
    return { ...node, module: outsideOfIterations(commonPath(paths)) };
  });
  return { ...graph, nodes };
}

/** Whether the exporter says where a node is; /Add is TorchScript's name of an operator of the outermost module. */
function hasPath({ module, name }: Node): boolean {
  return module.length > 0 || name.startsWith('/');
}

function layerOf(node: Node, siblings: ReadonlyMap<string, ReadonlySet<string>>): string | null {
  const depth = node.module.findIndex((step, index) => {
    const stem = stemOf(step);
    return stem !== null && (siblings.get(JSON.stringify([...node.module.slice(0, index), stem]))?.size ?? 0) > 1;
  });
  return depth < 0 ? null : moduleText(node.module.slice(0, depth + 1));
}

/** The step without its index; null where it has none. */
function stemOf(step: string): string | null {
  return /\d$/.test(step) ? step.replace(/\d+$/, '') : null;
}
