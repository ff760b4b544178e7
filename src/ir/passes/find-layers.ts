/**
 * @file Pass `find-layers`: which repeated layer a node belongs to, from its module path, or by structure where the file has no
 * paths that show equal layers.
 *
 * A layer is a path prefix whose last step ends in an index (layers.0, encoder_layer_3) and that has a sibling: another prefix
 * under the same parent with the same stem and another index. The shallowest ones are the layers, but where they are unlike and
 * hold chains of ones with the same operators, as stages of a convolutional network hold blocks.
 */
import type { Graph, Node } from '../graph.js';
import { appendTo, groupBy } from '../group-by.js';
import { layerClasses, operatorsByLayer } from '../layers.js';
import { commonPath, moduleText, outsideOfIterations } from '../onnx/module-path.js';
import { madeOnce } from '../remembered.js';
import { attributesKey } from './attributes-key.js';
import { repeatedLayers } from './repeated-layers.js';

/**
 * The graph with `layer` set on every node, and with a module path where a node had none but its neighbours do.
 * @param placed the graph that it was made of, whose nodes have been through the pass and keep their paths
 */
export function findLayers(unplaced: Graph, placed?: Graph): Graph {
  const graph = placeNodes(unplaced, new Set(placed?.nodes.map(({ name }) => name)));
  const candidates = candidatesIn(graph);
  const depth = depthOf(placed ?? graph, candidates) ?? bestDepth(graph, candidates);
  const named = atDepth(graph, candidates, depth);
  // Layers that were found by structure: what was made of their operators since is in them already.
  if (placed?.nodes.some(({ layer, module }) => layer !== null && layer !== candidates(module)[depth]?.layer))
    return graph;
  if (placed || unplaced.nodes.every(hasPath) || haveEqualLayers(named)) return named;
  const repeated = repeatedLayers(graph);
  if (repeated.every((layer) => layer === null)) return named;
  return { ...graph, nodes: graph.nodes.map((node, place) => ({ ...node, layer: repeated[place] ?? null })) };
}

/** A module that has a sibling. */
interface Candidate {
  readonly layer: string;
  /** What it shares with its siblings: their parent and their stem. */
  readonly siblings: string;
  readonly index: number;
}

/** By module path: the modules on it that have siblings, the shallowest first. */
type CandidatesOf = (module: readonly string[]) => readonly Candidate[];

function candidatesIn({ nodes }: Graph): CandidatesOf {
  const numbered = new Map<string, readonly Candidate[]>();
  const found = new Map<string, Set<string>>();
  for (const { module } of nodes) {
    const path = module.join('/');
    if (numbered.has(path)) continue;
    numbered.set(path, numberedModules(module));
    for (const { siblings, layer } of numbered.get(path) ?? [])
      madeOnce(found, siblings, () => new Set<string>()).add(layer);
  }
  const withSiblings = new Map<string, readonly Candidate[]>();
  return (module) => {
    const path = module.join('/');
    return madeOnce(withSiblings, path, () =>
      (numbered.get(path) ?? numberedModules(module)).filter(({ siblings }) => (found.get(siblings)?.size ?? 0) > 1),
    );
  };
}

function numberedModules(module: readonly string[]): readonly Candidate[] {
  return module.flatMap((step, depth) => {
    const index = /\d+$/.exec(step)?.[0];
    if (index === undefined) return [];
    const siblings = JSON.stringify([...module.slice(0, depth), step.slice(0, -index.length)]);
    return [{ layer: moduleText(module.slice(0, depth + 1)), siblings, index: Number(index) }];
  });
}

function atDepth(graph: Graph, candidates: CandidatesOf, depth: number): Graph {
  const nodes = graph.nodes.map((node) => ({ ...node, layer: candidates(node.module)[depth]?.layer ?? null }));
  return { ...graph, nodes };
}

/** The depth among candidates of layers that a graph has already; null if it has none. */
function depthOf({ nodes }: Graph, candidates: CandidatesOf): number | null {
  for (const { layer, module } of nodes) {
    const depth = layer === null ? -1 : candidates(module).findIndex((candidate) => candidate.layer === layer);
    if (depth >= 0) return depth;
  }
  return null;
}

/** The shallowest depth, unless no layer there has an equal one and most operators are in chains of a deeper one. */
function bestDepth(graph: Graph, candidates: CandidatesOf): number {
  const deepest = graph.nodes.reduce((most, { module }) => Math.max(most, candidates(module).length), 0);
  if (deepest < 2 || haveEqualLayers(atDepth(graph, candidates, 0))) return 0;
  for (let depth = 1; depth < deepest; depth++)
    if (operatorsInChains(graph, candidates, depth) > graph.nodes.length / 2) return depth;
  return 0;
}

/**
 * How many operators are in siblings each of which reads what the one before computes, unlike experts; none unless two siblings
 * of a chain have the same operators, unlike a convolution and what follows it inside of a block.
 */
function operatorsInChains(graph: Graph, candidates: CandidatesOf, depth: number): number {
  const layered = atDepth(graph, candidates, depth);
  const makers = new Map(layered.nodes.flatMap(({ layer, outputs }) => outputs.map((name) => [name, layer] as const)));
  const candidateOf = ({ module }: Node) => candidates(module)[depth];
  const indexOf = ([first]: readonly Node[]) => (first && candidateOf(first)?.index) ?? 0;
  const siblings = groupBy(layered.nodes, (node) => candidateOf(node)?.siblings ?? null);
  const chains = [...siblings.values()]
    .map((nodes) => [...operatorsByLayer(nodes).values()].sort((a, b) => indexOf(a) - indexOf(b)))
    .filter((members) =>
      members.every((own, place) => {
        const before = members[place - 1]?.[0]?.layer;
        return before === undefined || own.some(({ inputs }) => inputs.some((name) => makers.get(name) === before));
      }),
    );
  const kindOf = (own: readonly Node[]) => own.map(({ op, domain }) => `${domain}:${op}`).join();
  const hasAlike = chains.some((members) => new Set(members.map(kindOf)).size < members.length);
  return hasAlike ? chains.flat(2).length : 0;
}

function haveEqualLayers(graph: Graph): boolean {
  const classes = layerClasses(graph, ({ attributes }) => attributesKey(attributes));
  return classes.some(({ instances }) => instances.length > 1);
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
