/**
 * @file Pass `first-of-layers`: a model with runs of equal layers in a row replaced by the first of each run. The cost of a
 * layer is computed once, however many follow it; a model of a hundred layers is searched like one of two.
 *
 * Layers are equal where their operators, attributes, types and inner wiring are; a run of them is in a row where each reads
 * the layer before it at the same places (or tensors that all of them read: a mask, rotary tables) and nothing else reads it.
 */
import type { Graph, Node } from '../graph.js';
import { type LayerClass, operatorsByLayer } from '../layers.js';
import { structureOf, typeKey } from '../structure-key.js';
import { withOperands } from '../with-operands.js';

/**
 * The graph with one layer for each run; graphs with state, and layers without repetition, stay as they are. Results that only
 * layers left out make (a cache) are not outputs any more.
 */
export function firstOfLayers(graph: Graph): { readonly graph: Graph; readonly runs: readonly LayerClass[] } {
  const layers = [...operatorsByLayer(graph.nodes)].map(([name, nodes]) => layerOf(name, nodes, graph));
  if (graph.state.length > 0 || graph.microBatches || layers.length < 2) return { graph, runs: [] };
  const readers = readersOf(graph);
  const runs: UnnamedLayer[][] = [];
  for (let from = 0; from < layers.length; ) {
    const run = runFrom(from, layers, readers);
    if (run.length > 1) runs.push(run);
    from += run.length;
  }
  return {
    graph: runs.length === 0 ? graph : without(graph, runs),
    runs: runs.map((run) => ({ name: (run[0] as UnnamedLayer).name, instances: run.map(({ name }) => name) })),
  };
}

/** One layer, seen apart from its names. */
interface UnnamedLayer {
  readonly name: string;
  readonly nodes: readonly Node[];
  readonly signature: string;
  /** Tensors that it reads and does not make, weights left out, in the order in which it first does. */
  readonly externals: readonly string[];
  /** Tensors that it makes, by their places in its structure. */
  readonly makes: ReadonlyMap<string, number>;
}

function layerOf(name: string, nodes: readonly Node[], graph: Graph): UnnamedLayer {
  const { key, places } = structureOf(nodes, (tensor, body) => {
    const { weights, tensors } = body ?? graph;
    return [weights.get(tensor)?.role ?? null, typeKey(tensors.get(tensor) ?? null)];
  });
  const outputs = nodes.flatMap((node) => node.outputs.flatMap((output) => output ?? []));
  const makes = new Map(outputs.map((output) => [output, places.get(output) as number]));
  const externals = [...places.keys()].filter((tensor) => !makes.has(tensor) && !graph.weights.has(tensor));
  return { name, nodes, signature: key, externals, makes };
}

function readersOf(graph: Graph): ReadonlyMap<string, ReadonlySet<string | null>> {
  const readers = new Map<string, Set<string | null>>();
  for (const node of graph.nodes) {
    for (const input of node.inputs) {
      if (input === null) continue;
      const set = readers.get(input) ?? new Set();
      readers.set(input, set.add(node.layer));
    }
  }
  return readers;
}

/** The longest run that begins with a layer. */
function runFrom(
  from: number,
  layers: readonly UnnamedLayer[],
  readers: ReadonlyMap<string, ReadonlySet<string | null>>,
): UnnamedLayer[] {
  const first = layers[from] as UnnamedLayer;
  const run = [first];
  let links: string | null = null;
  for (const layer of layers.slice(from + 1)) {
    const before = run.at(-1) as UnnamedLayer;
    const found = linksOf(layer, before, first);
    if (layer.signature !== first.signature || found === null || found !== (links ?? found)) break;
    const handsOnOnly = [...before.makes.keys()].every((tensor) =>
      [...(readers.get(tensor) ?? [])].every((reader) => reader === before.name || reader === layer.name),
    );
    if (!handsOnOnly) break;
    links = found;
    run.push(layer);
  }
  return run;
}

/** The sources of a layer's operands: places in the layer before, or operands of the first layer too; null for others. */
function linksOf(layer: UnnamedLayer, before: UnnamedLayer, first: UnnamedLayer): string | null {
  const links = layer.externals.map((tensor, index) =>
    tensor === first.externals[index] ? 'shared' : before.makes.get(tensor),
  );
  return links.every((link) => link !== undefined) && links.some((link) => link !== 'shared') ? links.join(' ') : null;
}

/** The graph with only the first layer of each run; readers of the last one read the first. */
function without(graph: Graph, runs: readonly (readonly UnnamedLayer[])[]): Graph {
  const dropped = new Set<string>();
  const renamed = new Map<string, string>();
  for (const run of runs) {
    const [first, ...others] = run as readonly [UnnamedLayer, ...UnnamedLayer[]];
    const byPlace = new Map([...first.makes].map(([tensor, place]) => [place, tensor]));
    for (const { name } of others) dropped.add(name);
    for (const [tensor, place] of others.at(-1)?.makes ?? []) renamed.set(tensor, byPlace.get(place) as string);
  }
  const nodes = graph.nodes
    .filter(({ layer }) => layer === null || !dropped.has(layer))
    .map((node) => rewired(node, renamed));
  const made = new Set([...graph.inputs, ...nodes.flatMap(({ outputs }) => outputs)]);
  const read = new Set(nodes.flatMap(({ inputs }) => inputs));
  const outputs = [...new Set(graph.outputs.map((output) => renamed.get(output) ?? output))].filter(
    (output) => made.has(output) || graph.weights.has(output),
  );
  const weights = new Map([...graph.weights].filter(([name]) => read.has(name) || outputs.includes(name)));
  const tensors = new Map([...graph.tensors].filter(([name]) => made.has(name) || weights.has(name)));
  return { ...graph, nodes, outputs, weights, tensors };
}

/** A node that reads tensors by their new names. */
function rewired(node: Node, renamed: ReadonlyMap<string, string>): Node {
  const inputs = node.inputs.map((input) => (input === null ? null : (renamed.get(input) ?? input)));
  return inputs.some((input, index) => input !== node.inputs[index]) ? withOperands(node, inputs) : node;
}
