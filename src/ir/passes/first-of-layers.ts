/**
 * @file Pass `first-of-layers`: a model with runs of equal layers in a row replaced by the first of each run. What one layer
 * costs is found once, however many follow it; a model of a hundred layers is searched like one of two.
 *
 * Layers are equal where their operators, attributes, types and inner wiring are; a run of them is in a row where each reads
 * the layer before it at the same places (or what all of them read: a mask, rotary tables) and nothing else reads it.
 */
import type { AttributeValue, Graph, Node } from '../graph.js';
import { attributesKey } from './attributes-key.js';

/** A layer that stands for those that follow it. */
export interface LayerRun {
  /** The layer that is left. */
  readonly name: string;
  /** All layers of the run in order, that one first. */
  readonly instances: readonly string[];
}

/**
 * The graph with one layer for each run; graphs with state, and layers without repetition, stay as they are. Results that only
 * layers left out make (a cache) are no outputs any more.
 */
export function firstOfLayers(graph: Graph): { readonly graph: Graph; readonly runs: readonly LayerRun[] } {
  const layers = layersOf(graph);
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
  /** By tensor that it makes: `node.result`. */
  readonly makes: ReadonlyMap<string, string>;
}

function layersOf(graph: Graph): readonly UnnamedLayer[] {
  const byName = new Map<string, Node[]>();
  for (const node of graph.nodes) {
    if (node.layer === null) continue;
    const list = byName.get(node.layer);
    if (list) list.push(node);
    else byName.set(node.layer, [node]);
  }
  return [...byName].map(([name, nodes]) => layerOf(name, nodes, graph));
}

function layerOf(name: string, nodes: readonly Node[], graph: Graph): UnnamedLayer {
  const makes = new Map<string, string>();
  const externals: string[] = [];
  const weights: string[] = [];
  const placeOf = (tensor: string | null): unknown => {
    if (tensor === null) return null;
    const own = makes.get(tensor);
    if (own !== undefined) return own;
    const type = graph.tensors.get(tensor);
    const list = graph.weights.has(tensor) ? weights : externals;
    if (!list.includes(tensor)) list.push(tensor);
    const kind = graph.weights.get(tensor)?.role ?? 'external';
    return [kind, list.indexOf(tensor), type?.dtype, type?.shape];
  };
  const parts = nodes.map((node, position) => {
    const inputs = node.inputs.map(placeOf);
    node.outputs.forEach((output, result) => {
      if (output !== null) makes.set(output, `${position}.${result}`);
    });
    const types = node.outputs.map((output) => (output === null ? null : graph.tensors.get(output)));
    return [node.domain, node.op, attributesOf(node), inputs, types.map((type) => type && [type.dtype, type.shape])];
  });
  return { name, nodes, signature: JSON.stringify(parts), externals, makes };
}

/** Attributes, and of a block what it stands for. */
function attributesOf({ attributes, body }: Node): unknown {
  return [
    attributesKey(attributes as Readonly<Record<string, AttributeValue>>),
    body?.nodes.map((node) => [node.op, attributesOf(node)]) ?? null,
  ];
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

/** Where a layer gets its operands from: places in the layer before, or what the first layer reads too; null for others. */
function linksOf(layer: UnnamedLayer, before: UnnamedLayer, first: UnnamedLayer): string | null {
  const links = layer.externals.map((tensor, index) =>
    tensor === first.externals[index] ? 'shared' : before.makes.get(tensor),
  );
  return links.every((link) => link !== undefined) && links.some((link) => link !== 'shared') ? links.join(' ') : null;
}

/** The graph without all but the first layer of each run; who reads the last one reads the first. */
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

/** A node, and what a block stands for, reading tensors by their new names. */
function rewired(node: Node, renamed: ReadonlyMap<string, string>): Node {
  if (!node.inputs.some((input) => input !== null && renamed.has(input))) return node;
  const nameOf = (name: string) => renamed.get(name) ?? name;
  const inputs = node.inputs.map((input) => (input === null ? null : nameOf(input)));
  const { body } = node;
  if (!body) return { ...node, inputs };
  return {
    ...node,
    inputs,
    body: {
      ...body,
      inputs: body.inputs.map(nameOf),
      nodes: body.nodes.map((inner) => rewired(inner, renamed)),
      tensors: new Map([...body.tensors].map(([name, type]) => [nameOf(name), type])),
    },
  };
}
