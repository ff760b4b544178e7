/**
 * @file The work per micro-batch of any imported model on one rank of its tensor-parallel group: the graph is differentiated,
 * planned for those ranks and lowered; layers with equal work are one class.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { deviceLevels } from '../../cost-model/levels.js';
import { resharderOn } from '../../cost-model/resharder-on.js';
import type { PartTensors } from '../../cost-model/step/largest-tensors.js';
import { type ModelParts, readShared, readTensors, readWork } from '../../cost-model/step/read-work.js';
import { type ModelWork, NO_WORK, type PartWork } from '../../cost-model/step/work.js';
import type { LossOptions } from '../../ir/autodiff/append-loss.js';
import { drawDropout } from '../../ir/autodiff/dropout.js';
import { withLossGradients } from '../../ir/autodiff/loss-gradients.js';
import { inMixedPrecision, type LowType } from '../../ir/autodiff/mixed-precision.js';
import { tokensOf } from '../../ir/dimension-roles.js';
import { byteLength } from '../../ir/dtype.js';
import { nullIfRefused } from '../../ir/error.js';
import { flattenRegions } from '../../ir/fused-regions/flatten-regions.js';
import { elementCount, type Graph, type Node, typeOf } from '../../ir/graph.js';
import { groupBy } from '../../ir/group-by.js';
import { reached } from '../../ir/needed.js';
import { moduleText } from '../../ir/onnx/module-path.js';
import { firstOfLayers } from '../../ir/passes/first-of-layers.js';
import type { Assignment } from '../../partition/assignment.js';
import { forwardGroups } from '../../partition/kernels.js';
import { onlyStage } from '../../partition/lower-stages.js';
import { partition } from '../../partition/partition.js';
import type { ShardedGraph } from '../../partition/sharded-graph.js';
import { plan } from '../../search/plan.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import type { Pin } from '../../sharding-propagation/pin.js';
import { expertPins, matmulPins, streamPins, tablePins } from '../requests/parameter-pins.js';
import { atOtherSamples } from './at-other-samples.js';

/** The purpose that a graph's work is read for: inference, or training with a loss. */
export type Purpose = { readonly kind: 'inference' } | TrainingPurpose;

interface TrainingPurpose {
  readonly kind: 'training';
  readonly loss: LossOptions;
  /** A program is planned that computes matmuls in this type. */
  readonly program?: LowType;
}

/** A model's operators for a purpose, one layer of each run. */
export interface GraphOfWork {
  readonly graph: Graph;
  /** For each layer of the model, in order, the one of the graph that stands for it. */
  readonly standIns: ReadonlyMap<string, string>;
  /** Weights that several layers read. */
  readonly shared: ReadonlySet<string>;
  /** Tokens of a sample; null where its inputs are not tokens. */
  readonly sequence: number | null;
  /** Stored activations of programs in 16 bit; null where none is planned. */
  readonly stored: StoredByPrograms | null;
}

/** Activations that 16-bit programs store, relative to all in 16 bit: of each part, and of what a layer sends to the next. */
export interface StoredByPrograms {
  readonly parts: ReadonlyMap<string, number>;
  readonly boundary: number;
}

/** A model's work, and the graph that it was read off. */
export interface ReadWork {
  readonly work: ModelWork;
  /** One layer of each run, with gradients where it is trained. */
  readonly graph: Graph;
  /** How its operators are sharded over the tensor-parallel ranks. */
  readonly assignment: Assignment;
  /** Tokens of a sample; null where its inputs are not tokens. */
  readonly sequence: number | null;
  /** The tensors that its parts hold, by name; computed on demand. */
  readonly tensors: () => PartTensors;
}

/**
 * @param low the type that matmuls compute in: other operators compute in float32, with casts between
 * @throws AutoparError where the graph has no gradient, or no output that the loss can use
 */
export function graphOfWork(whole: Graph, purpose: Purpose, low?: LowType): GraphOfWork {
  const { graph: forward, standIns } = firstOfLayers(withOnlyLayer(whole));
  const graph = low === undefined ? forward : inMixedPrecision(forward, low);
  return {
    graph: purpose.kind === 'training' ? withGradients(graph, purpose.loss) : graph,
    standIns,
    shared: sharedWeights(whole),
    sequence: tokensOf(graph),
    stored: null,
  };
}

/**
 * Activations that a program stores in the precision that it is planned in. Prices of layers follow transformer software, whose
 * kernels store everything in 16 bit. Programs compute normalisations, sums and losses in float32, like PyTorch's autocast, and
 * store these results. The ratio hardly depends on the number of samples.
 * @param of `whole`, as it is read for the purpose
 * @throws AutoparError as `graphOfWork`
 */
export async function storedByPrograms(
  of: GraphOfWork,
  whole: Graph,
  purpose: Purpose,
  cluster: Cluster,
): Promise<StoredByPrograms | null> {
  if (purpose.kind === 'inference' || !purpose.program) return null;
  const mixed = await storedBytes(graphOfWork(whole, purpose, purpose.program), cluster);
  const plain = await storedBytes(of, cluster);
  // Twice the ratio of bytes in 16 bit to bytes with all in float32.
  const times = (own: number, other: number) => (other === 0 ? 1 : (2 * own) / other);
  const parts = [...plain.parts].map(
    ([part, bytes]) => [part, times(mixed.parts.get(part) ?? bytes / 2, bytes)] as const,
  );
  return { parts: new Map(parts), boundary: times(mixed.boundary, plain.boundary) };
}

/** Bytes of stored activations of each part on a single rank, and bytes that a layer sends to the next, in their own types. */
async function storedBytes(
  of: GraphOfWork,
  cluster: Cluster,
): Promise<{ readonly parts: ReadonlyMap<string, number>; readonly boundary: number }> {
  const { graph } = of;
  const { sharded } = await searched(graph, 1, ranksOf(cluster, 1));
  const { places, parts } = partsOf(of);
  // Casts of weights exist only while a layer runs and are not stored activations.
  const fed = reached(graph.nodes, graph.inputs).tensors;
  const bytes = (name: string, elements: number) => byteLength(sharded.tensors.get(name)?.dtype ?? 'float32', elements);
  const sums = [...readTensors(graph, sharded, parts)].map(([part, held]) => {
    const kept = held.filter(({ tensor, kind, mask }) => kind === 'activation' && !mask && fed.has(tensor));
    return [part, kept.reduce((sum, { tensor, elements }) => sum + bytes(tensor, elements), 0)] as const;
  });
  const sizeOf = (name: string) => {
    const { dtype, shape } = typeOf(graph, name);
    return byteLength(dtype, elementCount(shape));
  };
  return { parts: new Map(sums), boundary: boundaryOf(of, places, sizeOf) };
}

/** A layer without equals is a layer too, where it is the only module with a number (layers.0). */
function withOnlyLayer(graph: Graph): Graph {
  if (graph.nodes.some(({ layer }) => layer !== null)) return graph;
  const layerOf = ({ module }: Node) => {
    const depth = module.findIndex((step) => /\d$/.test(step));
    return depth < 0 ? null : moduleText(module.slice(0, depth + 1));
  };
  const layers = graph.nodes.map(layerOf);
  if (new Set(layers.filter((layer) => layer !== null)).size !== 1) return graph;
  return { ...graph, nodes: graph.nodes.map((node, index) => ({ ...node, layer: layers[index] ?? null })) };
}

function sharedWeights({ nodes, weights }: Graph): ReadonlySet<string> {
  const readIn = new Map<string, string>();
  const shared = new Set<string>();
  for (const { inputs, layer } of nodes) {
    for (const input of inputs) {
      if (input === null || layer === null || !weights.has(input)) continue;
      if ((readIn.get(input) ?? layer) !== layer) shared.add(input);
      readIn.set(input, layer);
    }
  }
  return shared;
}

/**
 * @param known the model at another number of samples, whose layouts are reused; a search where they do not fit, or it is null
 * @throws AutoparError where no plan shards the graph over `tp` ranks
 */
export async function graphWork(
  of: GraphOfWork,
  tp: number,
  cluster: Cluster,
  known: Pick<ReadWork, 'graph' | 'assignment'> | null = null,
): Promise<ReadWork> {
  const { graph, standIns, sequence, stored } = of;
  const ranks = ranksOf(cluster, tp);
  const same = known && atOtherSamples(known.assignment, known.graph, graph);
  const { assignment, sharded } = same
    ? { assignment: same, sharded: partition(graph, same, resharderOn(ranks, same.mesh, true)) }
    : await searched(graph, tp, ranks);
  const { places, parts: ofParts } = partsOf(of);
  const works = new Map(
    [...readWork(graph, sharded, ofParts)].map(([name, part]): [string, PartWork] => [
      name,
      stored ? { ...part, storedByPrograms: stored.parts.get(name) ?? 1 } : part,
    ]),
  );
  const named = [...standIns.values()].flatMap((name) => {
    const part = works.get(name);
    return part ? [[name, part] as const] : [];
  });
  const layers = named.map(([, part]) => part);
  const classes = classesOf(layers.length > 0 ? layers : [NO_WORK]);
  const order = classes
    .flatMap(({ places: at }, index) => at.map((place) => [place, index] as const))
    .sort(([a], [b]) => a - b)
    .map(([, index]) => index);
  const work = {
    first: works.get('first') ?? NO_WORK,
    layers: classes.map(({ part, places: { length: count } }) => ({ count, part })),
    ...(inTurns(order) ? { order } : {}),
    last: works.get('last') ?? NO_WORK,
    boundary: boundaryOf(of, places, (name) => elementCount(typeOf(graph, name).shape)),
    ...(stored ? { boundaryOfPrograms: stored.boundary } : {}),
    ...readShared(graph, sharded, ofParts.partOf),
  };
  const tensors = () => {
    const tensorsOf = readTensors(graph, sharded, ofParts);
    const held = (name: string) => tensorsOf.get(name) ?? [];
    return {
      first: held('first'),
      layers: classes.map(({ places: [place = 0] }) => held(named[place]?.[0] ?? '')),
      last: held('last'),
    };
  };
  return { work, graph, assignment, sequence, tensors };
}

/** The part that each operator and each weight belongs to, and the places of operators. */
function partsOf({ graph, shared }: GraphOfWork): {
  readonly places: ReadonlyMap<string, string>;
  readonly parts: ModelParts;
} {
  const places = layerPlaces(graph);
  const partOf = (group: string) => places.get(group) ?? 'last';
  // A stage that begins with a later layer has its own copy, which is small or one table for all.
  const holderOf = (weight: string) => (shared.has(weight) ? 'first' : undefined);
  return { places, parts: { partOf, inScan: scans(graph), holderOf } };
}

/** The ranks of a tensor-parallel group: as many devices in one node. */
function ranksOf({ device }: Cluster, tp: number): Cluster {
  return { nodes: 1, perNode: tp, device, levels: deviceLevels(device, 1, tp), local: false };
}

/** Groups of the part of a state-space layer that has kernels of its own. */
function scans(graph: Graph): (group: string) => boolean {
  const inside = new Set(graph.nodes.filter(({ module }) => module.includes('scan')).map(({ group }) => group));
  return (group) => inside.has(group);
}

interface LaidOut {
  readonly assignment: Assignment;
  readonly sharded: ShardedGraph;
}

/** The cheapest layouts with parameters, experts and sequences sharded as in Megatron, as far as possible. */
async function searched(graph: Graph, tp: number, ranks: Cluster): Promise<LaidOut> {
  const search = (pins: (mesh: Mesh) => readonly Pin[]) =>
    plan(graph, ranks, { degrees: { dp: 1, tp }, memoryBytes: Number.MAX_SAFE_INTEGER, operatorPins: pins });
  // Parameters that cannot be sharded as pinned are sharded in the cheapest way.
  const pinned = async (pins: (mesh: Mesh) => readonly Pin[]) => search(pins).catch(nullIfRefused);
  const usual = (mesh: Mesh) => [...tablePins(graph, mesh), ...expertPins(graph, mesh), ...streamPins(graph, mesh)];
  const first = (await pinned(usual)) ?? (await search(() => []));
  const whole = matmulPins(graph, first);
  const cut = whole.length === 0 ? null : await pinned((mesh) => [...usual(mesh), ...whole]);
  const { assignment, lowered } = cut ?? first;
  return { assignment, sharded: onlyStage(lowered) };
}

function withGradients(forward: Graph, loss: LossOptions): Graph {
  // A loss of the model's own is split into two sums, and is not a region then; other regions stay single kernels.
  const opened = loss.kind === 'model-output' ? flattenRegions(forward, 'CrossEntropy') : forward;
  return withLossGradients(drawDropout(opened, 0).graph, loss);
}

/**
 * The part of each group: its repeated layer, `first` (before the first layer), or `last` (after it and in no layer). Gradients
 * are in the part of their operator, and sums of gradients where these are made: for a tensor that one layer sends to the next,
 * in the next.
 */
function layerPlaces(graph: Graph): ReadonlyMap<string, string> {
  const groups = forwardGroups(graph);
  const places = new Map<string, string>();
  const makers = new Map<string, string>();
  let begun = false;
  const placeOf = ({ name, phase, group, layer, inputs }: Node): string => {
    if (phase === 'forward') return layer ?? (begun ? 'last' : 'first');
    const own = groups.get(name) ?? group;
    if (own !== group) return places.get(own) ?? 'last';
    return inputs.flatMap((input) => makers.get(input ?? '') ?? [])[0] ?? 'last';
  };
  for (const node of graph.nodes) {
    begun ||= node.layer !== null;
    const place = placeOf(node);
    places.set(node.group, place);
    for (const output of node.outputs) if (output !== null) makers.set(output, place);
  }
  return places;
}

/** Whether layers of one class do not all follow one another. */
function inTurns(order: readonly number[]): boolean {
  return order.some((own, layer) => layer > 0 && own < (order[layer - 1] as number));
}

/** Classes of equal parts, with the places of their layers, in order of first occurrence. */
function classesOf(
  parts: readonly PartWork[],
): readonly { readonly part: PartWork; readonly places: readonly number[] }[] {
  const classes = groupBy(parts.entries(), ([, part]) => JSON.stringify(part));
  return [...classes.values()].map((own) => ({ part: own[0]?.[1] ?? NO_WORK, places: own.map(([place]) => place) }));
}

/**
 * The size of the tensors that one layer sends to the next: the maximum over all pairs of neighbours. A layer that stands for
 * several sends to the next of these what it sends at the end. Tensors that depend on no parameter (masks, rotary tables) are not
 * sent: every stage computes them itself.
 */
function boundaryOf(
  { graph, standIns }: GraphOfWork,
  places: ReadonlyMap<string, string>,
  sizeOf: (tensor: string) => number,
): number {
  const several = new Set([...standIns].flatMap(([layer, own]) => (layer === own ? [] : [own])));
  const makers = new Map<string, Node>();
  const parameters = [...graph.weights].flatMap(([name, { role }]) => (role === 'parameter' ? [name] : []));
  const moved = reached(graph.nodes, parameters).tensors;
  for (const node of graph.nodes) {
    if (node.phase !== 'forward') continue;
    for (const output of node.outputs) if (output !== null) makers.set(output, node);
  }
  const handed = new Map<string, Set<string>>();
  for (const node of graph.nodes) {
    if (node.phase !== 'forward') continue;
    const to = places.get(node.group) ?? '';
    for (const input of node.inputs) {
      const maker = input === null ? undefined : makers.get(input);
      const from = maker ? (places.get(maker.group) ?? '') : '';
      if (!maker || input === null || !moved.has(input)) continue;
      const isRepeated = several.has(from);
      if (from === to || from === 'first' || (to === 'last' && !isRepeated)) continue;
      const set = handed.get(`${from} ${to}`) ?? new Set<string>();
      handed.set(`${from} ${to}`, set.add(input));
    }
  }
  const sums = [...handed.values()].map((names) => [...names].reduce((sum, name) => sum + sizeOf(name), 0));
  return Math.max(0, ...sums);
}
