/**
 * @file A model with fewer repeated layers: two of each class in every part of a pipeline. A run of layers is removed if the
 * layer before it and its last layer are of one class, so that readers of the run read the same tensors of the layer before.
 */
import { type Graph, type Node, typeOf } from '../../ir/graph.js';

/** Layers that are removed: readers of the last of them read `after` instead. */
export interface RemovedLayers {
  readonly after: string;
  readonly layers: readonly string[];
}

/** A layer with its place in the pipeline. */
export interface PlacedLayer {
  readonly name: string;
  /** Equal for layers that the plan treats alike. */
  readonly kind: string;
  /** The part of the rehearsal's pipeline; null where it has operators in several. */
  readonly part: number | null;
}

/** How many layers of a class each part keeps. */
const LAYERS_PER_PART = 2;

/** The runs that can be removed; `layers` are in the model's order. */
export function layerRuns(forward: Graph, layers: readonly PlacedLayer[]): readonly RemovedLayers[] {
  const counts = new Map<string, number>();
  const key = ({ kind, part }: PlacedLayer) => `${part} ${kind}`;
  for (const layer of layers) counts.set(key(layer), (counts.get(key(layer)) ?? 0) + 1);
  const runs: RemovedLayers[] = [];
  let at = 0;
  while (at < layers.length) {
    const end = longestRun(forward, layers, at, counts, key);
    if (end > at) {
      const taken = layers.slice(at + 1, end + 1);
      for (const layer of taken) counts.set(key(layer), (counts.get(key(layer)) ?? 0) - 1);
      runs.push({ after: (layers[at] as PlacedLayer).name, layers: taken.map(({ name }) => name) });
    }
    at = end + 1;
  }
  return runs;
}

/** The last layer of the longest run after layer `at` that can be removed; `at` if there is none. */
function longestRun(
  forward: Graph,
  layers: readonly PlacedLayer[],
  at: number,
  counts: ReadonlyMap<string, number>,
  key: (layer: PlacedLayer) => string,
): number {
  const first = layers[at] as PlacedLayer;
  if (first.part === null) return at;
  const taken = new Map<string, number>();
  let best = at;
  for (let end = at + 1; end < layers.length; end++) {
    const layer = layers[end] as PlacedLayer;
    if (layer.part !== first.part) break;
    taken.set(key(layer), (taken.get(key(layer)) ?? 0) + 1);
    if (key(layer) !== key(first)) continue;
    if ([...taken].every(([name, count]) => (counts.get(name) ?? 0) - count >= LAYERS_PER_PART)) best = end;
  }
  for (let end = best; end > at; end--) {
    if (key(layers[end] as PlacedLayer) !== key(first)) continue;
    const run = { after: first.name, layers: layers.slice(at + 1, end + 1).map(({ name }) => name) };
    if (replacedTensors(forward, run)) return end;
  }
  return at;
}

/** The forward graph without the layers of a run. @throws Error (an internal error) for a run that cannot be removed */
export function withoutLayers(graph: Graph, run: RemovedLayers): Graph {
  const replaced = replacedTensors(graph, run);
  if (!replaced) throw new Error(`layers ${run.layers.join(', ')} cannot be taken out`);
  const gone = new Set(run.layers);
  const name = (tensor: string | null) => (tensor === null ? null : (replaced.get(tensor) ?? tensor));
  const nodes = graph.nodes
    .filter(({ layer }) => layer === null || !gone.has(layer))
    .map((node) => ({ ...node, inputs: node.inputs.map(name) }));
  const made = new Set(nodes.flatMap(({ outputs }) => outputs));
  const read = new Set<string | null>(nodes.flatMap(({ inputs }) => inputs));
  const inputs = graph.inputs.filter((input) => read.has(input) || graph.outputs.includes(input));
  const weights = new Map([...graph.weights].filter(([weight]) => read.has(weight) || graph.outputs.includes(weight)));
  const outputs = graph.outputs.filter((output) => made.has(output) || inputs.includes(output) || weights.has(output));
  const names = new Set<string | null>([...inputs, ...weights.keys(), ...made]);
  return {
    ...graph,
    nodes,
    inputs,
    outputs,
    weights,
    tensors: new Map([...graph.tensors].filter(([tensor]) => names.has(tensor))),
    batch: graph.batch.filter(({ input }) => inputs.includes(input)),
  };
}

/** For each tensor of the run that is read after it, the tensor of the layer before; null if one of them has none. */
function replacedTensors(graph: Graph, { after, layers }: RemovedLayers): ReadonlyMap<string, string> | null {
  const gone = new Set(layers);
  const [before, last] = [operatorsOf(graph, after), operatorsOf(graph, layers.at(-1) ?? '')];
  if (before.length !== last.length) return null;
  const likes = new Map<string, string>();
  for (const [index, { outputs }] of last.entries())
    outputs.forEach((output, result) => {
      const like = before[index]?.outputs[result];
      if (output !== null && like) likes.set(output, like);
    });
  const made = new Set(graph.nodes.flatMap(({ layer, outputs }) => (gone.has(layer ?? '') ? outputs : [])));
  const replaced = new Map<string, string>();
  for (const { layer, inputs } of graph.nodes) {
    if (layer !== null && gone.has(layer)) continue;
    for (const input of inputs) {
      if (input === null || !made.has(input)) continue;
      const like = likes.get(input);
      if (like === undefined || !isAlike(graph, input, like)) return null;
      replaced.set(input, like);
    }
  }
  return replaced;
}

function isAlike(graph: Graph, one: string, other: string): boolean {
  const [a, b] = [typeOf(graph, one), typeOf(graph, other)];
  return a.dtype === b.dtype && a.shape.join() === b.shape.join();
}

function operatorsOf(graph: Graph, name: string): readonly Node[] {
  return graph.nodes.filter(({ layer }) => layer === name);
}
