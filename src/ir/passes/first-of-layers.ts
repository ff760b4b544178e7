/**
 * @file Pass `first-of-layers`: a model with runs of equal layers in a row replaced by the first of each run. The cost of a
 * layer is computed once, however many follow it; a model of a hundred layers is searched like one of two. Where kinds of layers
 * alternate, as local and global attention do, several layers together are the unit of a run.
 *
 * Units are equal where their operators, attributes, types and inner wiring are; a run of them is in a row where each reads
 * the unit before it at the same places (or tensors that all of them read: a mask, rotary tables) and nothing else reads it.
 */
import type { Graph, Node } from '../graph.js';
import { operatorsByLayer } from '../layers.js';
import { structureOf, typeKey } from '../structure-key.js';
import { withOperands } from '../with-operands.js';

/** The most layers of a unit: rounds of models in use have two to eight. */
const LONGEST_UNIT = 12;

/**
 * The graph with one unit for each run; graphs with state, and layers without repetition, stay as they are. Results that only
 * layers left out make (a cache) are not outputs any more. `standIns`: for each layer, in order, the one that stands for it.
 */
export function firstOfLayers(graph: Graph): { readonly graph: Graph; readonly standIns: ReadonlyMap<string, string> } {
  const standIns = new Map([...operatorsByLayer(graph.nodes).keys()].map((layer) => [layer, layer]));
  if (graph.state.length > 0 || graph.microBatches) return { graph, standIns };
  let shortened = graph;
  let layers = layersOf(graph);
  for (let size = 1; size <= LONGEST_UNIT; size++) {
    const runs = runsOf(shortened, layers, size);
    if (runs.length === 0) continue;
    shortened = without(shortened, runs);
    layers = layersOf(shortened);
    const firsts = new Map(
      runs.flatMap(([first, ...others]) =>
        others.flatMap((unit) => unit.layers.map((layer, place) => [layer, first?.layers[place] ?? layer] as const)),
      ),
    );
    for (const [layer, own] of standIns) standIns.set(layer, firsts.get(own) ?? own);
  }
  return { graph: shortened, standIns };
}

/** Layers in a row, seen apart from their names. */
interface Unit {
  readonly layers: readonly string[];
  readonly signature: string;
  /** Tensors that it reads and does not make, weights left out, in the order in which it first does. */
  readonly externals: readonly string[];
  /** Tensors that it makes, by their places in its structure. */
  readonly makes: ReadonlyMap<string, number>;
}

/** The layers of a graph in order, each a unit of its own, and the layers that read each tensor. */
interface Layers {
  readonly operators: readonly (readonly [name: string, nodes: readonly Node[]])[];
  readonly alone: readonly Unit[];
  readonly readers: ReadonlyMap<string, ReadonlySet<string | null>>;
}

function layersOf(graph: Graph): Layers {
  const operators = [...operatorsByLayer(graph.nodes)];
  return { operators, alone: operators.map((layer) => unitOf([layer], graph)), readers: readersOf(graph) };
}

/** Runs of at least two units of so many layers. */
function runsOf(graph: Graph, { operators, alone, readers }: Layers, size: number): readonly (readonly Unit[])[] {
  const unitAt = (from: number) =>
    size === 1 ? (alone[from] as Unit) : unitOf(operators.slice(from, from + size), graph);
  // Units are made where their layers repeat one by one, which few do.
  const repeats = (from: number) =>
    from + 2 * size <= alone.length &&
    alone.slice(from, from + size).every(({ signature }, place) => signature === alone[from + size + place]?.signature);
  const runs: Unit[][] = [];
  for (let from = 0; from < alone.length; ) {
    const run = repeats(from) ? [unitAt(from)] : [];
    while (run.length > 0 && repeats(from + (run.length - 1) * size)) {
      const next = unitAt(from + run.length * size);
      if (!follows(next, run, readers)) break;
      run.push(next);
    }
    if (run.length > 1) runs.push(run);
    from += run.length > 1 ? run.length * size : 1;
  }
  return runs;
}

function unitOf(layers: Layers['operators'], graph: Graph): Unit {
  const nodes = layers.flatMap(([, own]) => own);
  const { key, places } = structureOf(nodes, (tensor, body) => {
    const { weights, tensors } = body ?? graph;
    return [weights.get(tensor)?.role ?? null, typeKey(tensors.get(tensor) ?? null)];
  });
  const outputs = nodes.flatMap((node) => node.outputs.flatMap((output) => output ?? []));
  const makes = new Map(outputs.map((output) => [output, places.get(output) as number]));
  const externals = [...places.keys()].filter((tensor) => !makes.has(tensor) && !graph.weights.has(tensor));
  return { layers: layers.map(([name]) => name), signature: key, externals, makes };
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

/** Whether a unit continues a run: it is equal, and reads the last one of the run as that reads the one before. */
function follows(next: Unit, run: readonly Unit[], readers: ReadonlyMap<string, ReadonlySet<string | null>>): boolean {
  const [first, second] = run as readonly [Unit, Unit | undefined];
  const last = run.at(-1) as Unit;
  const links = linksOf(next, last, first);
  if (next.signature !== first.signature || links === null) return false;
  if (second && links !== linksOf(second, first, first)) return false;
  const near = new Set<string | null>([...last.layers, ...next.layers]);
  return [...last.makes.keys()].every((tensor) => [...(readers.get(tensor) ?? [])].every((reader) => near.has(reader)));
}

/** The sources of a unit's operands: places in the unit before, or operands of the first unit too; null for others. */
function linksOf(unit: Unit, before: Unit, first: Unit): string | null {
  const links = unit.externals.map((tensor, index) =>
    tensor === first.externals[index] ? 'shared' : before.makes.get(tensor),
  );
  return links.every((link) => link !== undefined) && links.some((link) => link !== 'shared') ? links.join(' ') : null;
}

/** The graph with only the first unit of each run; readers of the last one read the first. */
function without(graph: Graph, runs: readonly (readonly Unit[])[]): Graph {
  const dropped = new Set<string>();
  const renamed = new Map<string, string>();
  for (const run of runs) {
    const [first, ...others] = run as readonly [Unit, ...Unit[]];
    const byPlace = new Map([...first.makes].map(([tensor, place]) => [place, tensor]));
    for (const layer of others.flatMap(({ layers }) => layers)) dropped.add(layer);
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
