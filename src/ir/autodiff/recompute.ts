/**
 * @file Activation checkpointing as a pass on a training graph: forward operators that the backward runs again, so that their
 * results need not be stored from one to the other.
 *
 *     forward      x ─► A ─► a ─► B ─► y            x ─► A ─► a ─► B ─► y
 *     recompute                                     x ─► A' ─► a'
 *     backward     dA(dy, x), dB(dy, a)             dA(dy, x), dB(dy, a')
 *
 * A clone has its original's attributes and operands (the random bits of a dropout depend on nothing else), its name in `forward`
 * and its group: both have one strategy. Gradients of a layer read the layer's own clones; tensors that a layer reads of other
 * layers are stored. Across layers, clones read clones of every layer of their place, so that only tensors that the place reads
 * of other places are stored.
 */
import { type Graph, isBackward, type Node, type TensorType, typeOf } from '../graph.js';
import { appendTo } from '../group-by.js';
import { makersOf } from '../makers-and-readers.js';
import { needed } from '../needed.js';
import { entryOf } from '../ops/index.js';
import { unusedName } from '../unused-name.js';

/** Where a forward operator runs, by its name: operators of different places recompute separately. null: wherever it is read. */
export type PlaceOf = (forward: string) => string | null;

const ANYWHERE: PlaceOf = () => null;

/** The forward operators that the backward runs again. */
export interface RecomputedSet {
  /** Names of forward operators. */
  readonly operators: ReadonlySet<string>;
  /** Whether tensors that one layer reads of another in its place are recomputed too. */
  readonly acrossLayers: boolean;
  /** Whether the last micro-batch of a step stores the activations that the others recompute. */
  readonly exceptLast: boolean;
}

export const NOTHING_RECOMPUTED: RecomputedSet = { operators: new Set(), acrossLayers: false, exceptLast: false };

/**
 * The graph with clones of those of the operators named whose results a gradient, or another clone, reads; unchanged where there
 * is none. Operators whose second run would give another result are not cloned: those that draw random numbers of their own, or
 * read state that the forward changes.
 */
export function withClones(
  graph: Graph,
  { operators, acrossLayers, exceptLast }: RecomputedSet,
  placeOf: PlaceOf = ANYWHERE,
): Graph {
  const chosen = new Set(clonable(graph, operators));
  if (chosen.size === 0) return graph;
  const placed = ({ forward, name }: Node) => placeOf(forward ?? name);
  const makers = makersOf(chosen);
  const readers = graph.nodes.filter((node) => chosen.has(node) || isBackward(node.phase));
  const isInside = (tensor: string, reader: Node) => {
    const maker = makers.get(tensor);
    if (maker === undefined || (maker.layer !== reader.layer && !acrossLayers)) return false;
    return placed(maker) === null || placed(maker) === placed(reader);
  };
  // Inputs of other layers stay anyway, and are read as they are; those of other places stay there.
  const outside = acrossLayers ? [] : readers;
  const kept = new Set(outside.flatMap((node) => node.inputs.filter((name) => name && !isInside(name, node))));
  const tensors = new Map(graph.tensors);
  const names = new Set(graph.nodes.map(({ name }) => name));
  const cloneOf = new Map<string, string>();
  const again = (node: Node) =>
    node.inputs.map((name) => (name !== null && isInside(name, node) ? (cloneOf.get(name) ?? name) : name));
  const clones = [...chosen].map((node): Node => {
    const inputs = again(node);
    const outputs = node.outputs.map((output) => {
      if (output === null) return null;
      const name = unusedName(tensors, `${output}/recompute`);
      tensors.set(name, typeOf(graph, output));
      if (!kept.has(output)) cloneOf.set(output, name);
      return name;
    });
    const name = unusedName(names, `${node.name}/recompute`);
    names.add(name);
    return { ...node, name, phase: 'recompute', forward: node.name, inputs, outputs };
  });
  const nodes = graph.nodes.map((node) => (isBackward(node.phase) ? { ...node, inputs: again(node) } : node));
  const read = nodes.flatMap(({ inputs }) => inputs.filter((name) => name !== null));
  const run = needed(clones, read);
  if (run.length === 0) return graph;
  const { microBatches } = graph;
  return {
    ...graph,
    nodes: beforeReaders(nodes, run),
    tensors: tensorsOf(graph, tensors, run),
    ...(microBatches && exceptLast ? { microBatches: { ...microBatches, exceptLast } } : {}),
  };
}

/** In the graph's order. */
function clonable(graph: Graph, operators: ReadonlySet<string>): readonly Node[] {
  const makers = makersOf(graph.nodes);
  const moving = new Set(
    graph.state.flatMap(({ input, output }) => (makers.get(output)?.phase === 'update' ? [] : [input])),
  );
  return graph.nodes.filter(
    (node) =>
      node.phase === 'forward' &&
      operators.has(node.name) &&
      isRepeatable(node) &&
      !node.inputs.some((input) => input !== null && moving.has(input)),
  );
}

/** Whether running an operator twice gives the same result. */
function isRepeatable({ op, domain }: Node): boolean {
  const entry = entryOf(op, domain);
  return entry !== undefined && entry.unproven === undefined && entry.training?.kind !== 'dropout';
}

/** Puts clones before the first gradient that reads one, together with the other clones of its layer. */
function beforeReaders(nodes: readonly Node[], clones: readonly Node[]): readonly Node[] {
  const makers = makersOf(clones);
  const ofLayer = new Map<string, Node[]>();
  for (const clone of clones) if (clone.layer !== null) appendTo(ofLayer, clone.layer, clone);
  const placed = new Set<Node>();
  const before = (node: Node): readonly Node[] => {
    const found = new Set<Node>();
    const waiting = node.inputs.flatMap((name) => makers.get(name) ?? []);
    if (waiting.length > 0 && node.layer !== null) waiting.push(...(ofLayer.get(node.layer) ?? []));
    for (let clone = waiting.pop(); clone; clone = waiting.pop()) {
      if (placed.has(clone)) continue;
      placed.add(clone);
      found.add(clone);
      waiting.push(...clone.inputs.flatMap((name) => makers.get(name) ?? []));
    }
    return found.size === 0 ? [] : clones.filter((clone) => found.has(clone));
  };
  return nodes.flatMap((node) => (isBackward(node.phase) ? [...before(node), node] : [node]));
}

function tensorsOf(
  { tensors }: Graph,
  all: ReadonlyMap<string, TensorType>,
  clones: readonly Node[],
): ReadonlyMap<string, TensorType> {
  const made = new Set(clones.flatMap(({ outputs }) => outputs));
  return new Map([...all].filter(([name]) => tensors.has(name) || made.has(name)));
}

/** By tensor that a clone makes: the one that its original makes. */
export function originalTensors(graph: Graph): ReadonlyMap<string, string> {
  const clones = graph.nodes.filter(({ phase }) => phase === 'recompute');
  if (clones.length === 0) return new Map();
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  return new Map(
    clones.flatMap(({ forward, outputs }) =>
      outputs.flatMap((name, index) => {
        const original = nodes.get(forward ?? '')?.outputs[index];
        return name === null || !original ? [] : [[name, original] as const];
      }),
    ),
  );
}

/** The graph before `withClones`. */
export function withoutClones(graph: Graph): Graph {
  const originals = originalTensors(graph);
  if (originals.size === 0) return graph;
  const nodes = graph.nodes
    .filter(({ phase }) => phase !== 'recompute')
    .map((node) => ({ ...node, inputs: node.inputs.map((name) => (name && originals.get(name)) ?? name) }));
  const tensors = new Map([...graph.tensors].filter(([name]) => !originals.has(name)));
  if (!graph.microBatches) return { ...graph, nodes, tensors };
  const { exceptLast: _, ...microBatches } = graph.microBatches;
  return { ...graph, nodes, tensors, microBatches };
}

/** Names of the operators that have clones. */
export function clonedOperators({ nodes }: Graph): ReadonlySet<string> {
  return new Set(nodes.flatMap(({ phase, forward }) => (phase === 'recompute' && forward !== null ? [forward] : [])));
}
