/**
 * @file Exposed time of the reduction of gradients and the gathering of parameters, where a plan has no buckets that state it:
 * training software overlaps both with compute, gradients with the backward and parameters with the forward, and joins those of
 * a step, or of a layer in a micro-batch, into one message.
 */

import { isOfModel, isOnceAStep } from '../ir/graph.js';
import { appendTo } from '../ir/group-by.js';
import { readersOf } from '../ir/makers-and-readers.js';
import { operatorRole } from '../ir/ops/index.js';
import { remembered } from '../ir/remembered.js';
import { arrayBytes } from '../partition/buckets.js';
import { runsInStep } from '../partition/except-last.js';
import { isMatmul } from '../partition/kernels.js';
import { servedLayer } from '../partition/prefetch.js';
import {
  type CommunicationNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
} from '../partition/sharded-graph.js';
import type { Cluster } from './cluster.js';
import { collectiveSeconds } from './collective-price.js';
import { placeGroup } from './group-place.js';
import { type Overlap, overlapOf } from './overlap.js';
import { exposedSeconds, passesBeside } from './phase.js';
import { priceNode } from './price.js';
import { STEP_CONSTANTS } from './step/constants.js';

/** Exposed and hidden time of a step's collectives. */
export type Hidden = Pick<Overlap, 'exposed' | 'hidden'> & {
  /** By name of a collective in a message with others: nanoseconds of its part of the message, once. */
  readonly joined?: ReadonlyMap<string, number>;
};

/** As buckets and halves of micro-batches state, else as software overlaps. */
export function hiddenBehind(graph: ShardedGraph, cluster: Cluster): Hidden | null {
  return hiddenOn(graph)(cluster);
}

const hiddenOn = remembered((graph: ShardedGraph) =>
  remembered((cluster: Cluster) => overlapOf(graph, cluster) ?? (cluster.local ? null : dataOverlap(graph, cluster))),
);

function dataOverlap(graph: ShardedGraph, cluster: Cluster): Hidden | null {
  const waitedFor = waits(graph);
  if (waitedFor.size === 0) return null;
  const runs = runsInStep(graph);
  const joined = messageParts([...waitedFor.keys()], graph, cluster);
  const price = (node: ShardedNode) => joined.get(node.name) ?? priceNode(node, graph, cluster);
  const passes = { forward: 0, backward: 0 };
  const { pipeline, microBatches } = graph;
  const once = pipeline ? passesBeside(pipeline.chunks, pipeline.stages, microBatches?.count ?? 1) : 1;
  const moved = new Map<string, number>();
  const keyOf = (node: CommunicationNode, pass: string) => `${pass} ${isOnceAStep(node.phase)}`;
  for (const node of graph.nodes) {
    const pass = node.kind === 'communicate' ? waitedFor.get(node) : undefined;
    if (node.kind === 'communicate' && pass) {
      const key = keyOf(node, pass);
      moved.set(key, (moved.get(key) ?? 0) + price(node));
    } else if (!isOnceAStep(node.phase)) passes[node.phase === 'forward' ? 'forward' : 'backward'] += price(node);
  }
  const exposed = new Map<string, number>();
  let hidden = 0;
  for (const [node, pass] of waitedFor) {
    const seconds = moved.get(keyOf(node, pass)) ?? 0;
    if (seconds === 0) continue;
    const beside = passes[pass] * (isOnceAStep(node.phase) ? once : 1);
    const left = exposedSeconds(seconds, beside) / seconds;
    const own = runs(node) * price(node);
    // A collective that overlaps with compute slows it: both want the same processors and memory.
    const waited = Math.round(own * (left + STEP_CONSTANTS.contention * (1 - left)));
    exposed.set(node.name, waited);
    hidden += own - waited;
  }
  return { exposed, hidden, joined };
}

/** By name of a collective: its part of the nanoseconds of the message that it is in, by bytes. */
function messageParts(
  nodes: readonly CommunicationNode[],
  graph: ShardedGraph,
  cluster: Cluster,
): ReadonlyMap<string, number> {
  const messages = new Map<string, CommunicationNode[]>();
  for (const node of nodes) {
    const { collective, axes, phase, input } = node;
    const reduction = 'reduction' in collective ? collective.reduction : '';
    const layer = isOnceAStep(phase) ? '' : servedLayer(node);
    const key = JSON.stringify([collective.kind, reduction, axes, graph.tensors.get(input)?.dtype, phase, layer]);
    appendTo(messages, key, node);
  }
  return new Map(
    [...messages.values()].flatMap((members) => {
      const [first] = members as [CommunicationNode];
      const bytes = members.reduce((sum, node) => sum + arrayBytes(node, graph), 0);
      const place = placeGroup(graph.mesh, first.axes, cluster);
      const nanoseconds = 1e9 * collectiveSeconds(first.collective.kind, bytes, place, cluster);
      return members.map((node) => [
        node.name,
        bytes > 0 ? Math.round((nanoseconds * arrayBytes(node, graph)) / bytes) : 0,
      ]);
    }),
  );
}

/**
 * Collectives that nothing of the model waits for at once, and the pass that they overlap with. Those that lead only to updates
 * overlap with the backward; those that gather parameters with the pass that reads them, after an update with the forward.
 */
function waits(graph: ShardedGraph): ReadonlyMap<CommunicationNode, 'forward' | 'backward'> {
  const readers = readersOf(graph.nodes, readsOf);
  const late = new Set<ShardedNode>();
  for (const node of graph.nodes.toReversed()) {
    if (isOfModel(node.phase) || node.phase === 'recompute') continue;
    const passes =
      node.kind === 'communicate' || node.phase === 'update' || !isMatmul(node as { op: string; domain: string });
    const all = resultsOf(node).flatMap((name) => readers.get(name) ?? []);
    if (passes && all.every((reader) => reader.phase === 'update' || late.has(reader))) late.add(node);
  }
  const stored = new Set([...graph.weights.map(({ tensor }) => tensor), ...graph.state.map(({ to }) => to)]);
  const found = new Map<CommunicationNode, 'forward' | 'backward'>();
  for (const node of graph.nodes) {
    const isStored = readsOf(node).length > 0 && readsOf(node).every((name) => stored.has(name));
    if (isStored && (node.kind !== 'compute' || operatorRole(node) === 'cast' || node.fused?.kind === 'free'))
      for (const name of resultsOf(node)) stored.add(name);
    if (node.kind !== 'communicate') continue;
    if (late.has(node))
      found.set(node, node.phase === 'update' && node.collective.kind === 'all-gather' ? 'forward' : 'backward');
    else if (isStored) found.set(node, isOfModel(node.phase) ? 'forward' : 'backward');
  }
  return trains(graph) ? found : new Map();
}

/** Whether a graph is a step of training. */
export function trains({ nodes }: Pick<ShardedGraph, 'nodes'>): boolean {
  return nodes.some(({ phase }) => phase !== 'forward');
}
