/**
 * @file The work per micro-batch of any imported model on one rank of its tensor-parallel group: the graph is differentiated,
 * planned for those ranks and lowered; layers whose work is alike are one class.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { readShared, readTensors, readWork } from '../../cost-model/step/read-work.js';
import { NO_WORK, type PartWork } from '../../cost-model/step/work.js';
import type { LossOptions } from '../../ir/autodiff/append-loss.js';
import { drawDropout } from '../../ir/autodiff/dropout.js';
import { withLossGradients } from '../../ir/autodiff/loss-gradients.js';
import { flattenBlocks } from '../../ir/blocks/flatten-blocks.js';
import { dimensionRoles } from '../../ir/dimension-roles.js';
import { isFloating } from '../../ir/dtype.js';
import { AutoparError } from '../../ir/error.js';
import { elementCount, type Graph, type Node, typeOf } from '../../ir/graph.js';
import { firstOfLayers, type LayerRun } from '../../ir/passes/first-of-layers.js';
import type { Assignment } from '../../partition/assignment.js';
import { onlyStage } from '../../partition/lower-stages.js';
import { partition } from '../../partition/partition.js';
import type { ShardedGraph } from '../../partition/sharded-graph.js';
import { plan } from '../../search/plan.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import type { Pin } from '../../sharding-propagation/pin.js';
import { expertPins, productPins, streamPins, tablePins } from '../requests/parameter-pins.js';
import { atOtherSamples } from './at-other-samples.js';
import { type ReadWork, ranksOf, redistributorOf, scans } from './layer-classes.js';

/** What a graph's work is read for: inference, or training with a loss. */
export type Purpose = { readonly kind: 'inference' } | { readonly kind: 'training'; readonly loss: LossOptions };

/** A model's operators for a purpose, one layer of each run. */
export interface GraphOfWork {
  readonly graph: Graph;
  /** Which layers those that are left stand for, where more than themselves. */
  readonly runs: readonly LayerRun[];
  /** Tokens of a sample; null where its inputs are none. */
  readonly sequence: number | null;
}

/** @throws AutoparError where the graph has no gradient, or no output that the loss can be of */
export function graphOfWork(whole: Graph, purpose: Purpose): GraphOfWork {
  const { graph, runs } = firstOfLayers(whole);
  return {
    graph: purpose.kind === 'training' ? withGradients(graph, purpose.loss) : graph,
    runs,
    sequence: tokensOf(graph),
  };
}

/** Numbers that are looked up, along the dimension that attention or a recurrence runs over. */
function tokensOf(graph: Graph): number | null {
  const indices = graph.inputs.filter((input) => !isFloating(typeOf(graph, input).dtype));
  if (indices.length === 0) return null;
  const { inputs } = dimensionRoles(graph);
  return inputs.find(({ tensor, role }) => role === 'sequence' && indices.includes(tensor))?.size ?? null;
}

/**
 * @param known the model at another number of samples, whose layouts are taken; searched where they do not go, or it is null
 * @throws AutoparError where no plan shards the graph over `tp` ranks
 */
export async function graphWork(
  { graph, runs, sequence }: GraphOfWork,
  tp: number,
  cluster: Cluster,
  known: Pick<ReadWork, 'graph' | 'assignment'> | null = null,
): Promise<ReadWork> {
  const repeats = new Map(runs.map(({ name, instances }) => [name, instances.length]));
  const ranks = ranksOf(cluster, tp);
  const same = known && atOtherSamples(known.assignment, known.graph, graph);
  const { assignment, sharded } = same
    ? { assignment: same, sharded: partition(graph, same, redistributorOf(same.mesh, ranks)) }
    : await searched(graph, tp, ranks);
  const places = layerPlaces(graph);
  const partOf = (group: string) => places.get(group) ?? 'last';
  const parts = readWork(graph, sharded, partOf, scans(graph));
  const named = [...parts]
    .filter(([name]) => name !== 'first' && name !== 'last')
    .flatMap((layer) => Array.from({ length: repeats.get(layer[0]) ?? 1 }, () => layer));
  const layers = named.map(([, part]) => part);
  const classes = classesOf(layers.length > 0 ? layers : [NO_WORK]);
  const work = {
    first: parts.get('first') ?? NO_WORK,
    layers: classes.map(({ part, places: { length: count } }) => ({ count, part })),
    order: classes
      .flatMap(({ places: at }, index) => at.map((place) => [place, index] as const))
      .sort(([a], [b]) => a - b)
      .map(([, index]) => index),
    last: parts.get('last') ?? NO_WORK,
    boundary: boundaryOf(graph, places, repeats),
    ...readShared(graph, sharded, partOf),
  };
  const tensors = () => {
    const held = readTensors(graph, sharded, partOf, scans(graph));
    const of = (name: string) => held.get(name) ?? [];
    return {
      first: of('first'),
      layers: classes.map(({ places: [place = 0] }) => of(named[place]?.[0] ?? '')),
      last: of('last'),
    };
  };
  return { work, graph, assignment, runs, sequence, tensors };
}

interface LaidOut {
  readonly assignment: Assignment;
  readonly sharded: ShardedGraph;
}

/** The cheapest layouts with parameters, experts and sequences where Megatron has them, as far as they can be. */
async function searched(graph: Graph, tp: number, ranks: Cluster): Promise<LaidOut> {
  const search = (pins: (mesh: Mesh) => readonly Pin[]) =>
    plan(graph, ranks, { degrees: { dp: 1, tp }, memoryBytes: Number.MAX_SAFE_INTEGER, operatorPins: pins });
  const pinned = async (pins: (mesh: Mesh) => readonly Pin[]) => search(pins).catch(unlessPinned);
  const usual = (mesh: Mesh) => [...tablePins(graph, mesh), ...expertPins(graph, mesh), ...streamPins(graph, mesh)];
  const first = (await pinned(usual)) ?? (await search(() => []));
  const whole = productPins(graph, first);
  const cut = whole.length === 0 ? null : await pinned((mesh) => [...usual(mesh), ...whole]);
  const { assignment, lowered } = cut ?? first;
  return { assignment, sharded: onlyStage(lowered) };
}

/** Where parameters cannot lie so, they lie as is cheapest. */
function unlessPinned(error: unknown): null {
  if (error instanceof AutoparError) return null;
  throw error;
}

function withGradients(forward: Graph, loss: LossOptions): Graph {
  // A loss of the model's own is parted into two sums, and is no block then; other blocks stay the kernels that they are.
  const opened = loss.kind === 'model-output' ? flattenBlocks(forward, 'CrossEntropy') : forward;
  return withLossGradients(drawDropout(opened, 0).graph, loss);
}

/** first, last, or the repeated layer of each group: what comes before the first layer, and what after it is in none. */
function layerPlaces(graph: Graph): ReadonlyMap<string, string> {
  const places = new Map<string, string>();
  let begun = false;
  for (const node of graph.nodes) {
    if (node.phase !== 'forward') {
      if (node.layer !== null) places.set(node.group, node.layer);
      continue;
    }
    begun ||= node.layer !== null;
    places.set(node.group, node.layer ?? (begun ? 'last' : 'first'));
  }
  return places;
}

/** Equal parts, and which of the layers they are, in the order in which they first come. */
function classesOf(
  parts: readonly PartWork[],
): readonly { readonly part: PartWork; readonly places: readonly number[] }[] {
  const classes = new Map<string, { part: PartWork; places: number[] }>();
  for (const [place, part] of parts.entries()) {
    const key = JSON.stringify(part);
    const known = classes.get(key);
    if (known) known.places.push(place);
    else classes.set(key, { part, places: [place] });
  }
  return [...classes.values()];
}

/**
 * Elements that go from one layer to the next: the most that any pair of neighbours hands on; a layer that stands for several
 * hands to the next of these what it hands on at the end. What no parameter moves (masks, rotary tables) every stage makes for
 * itself.
 */
function boundaryOf(graph: Graph, places: ReadonlyMap<string, string>, repeats: ReadonlyMap<string, number>): number {
  const makers = new Map<string, Node>();
  const moved = movedByParameters(graph);
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
      const isRepeated = (repeats.get(from) ?? 1) > 1;
      if (from === to || from === 'first' || (to === 'last' && !isRepeated)) continue;
      const set = handed.get(`${from} ${to}`) ?? new Set<string>();
      handed.set(`${from} ${to}`, set.add(input));
    }
  }
  const sums = [...handed.values()].map((names) =>
    [...names].reduce((sum, name) => sum + elementCount(typeOf(graph, name).shape), 0),
  );
  return Math.max(0, ...sums);
}

/** Tensors that some parameter has part in. */
function movedByParameters(graph: Graph): ReadonlySet<string> {
  const moved = new Set([...graph.weights].flatMap(([name, { role }]) => (role === 'parameter' ? [name] : [])));
  for (const node of graph.nodes) {
    if (!node.inputs.some((input) => input !== null && moved.has(input))) continue;
    for (const output of node.outputs) if (output !== null) moved.add(output);
  }
  return moved;
}
