/**
 * @file Predicted memory of the ranks of each stage of a lowered plan over a step: the walks that count the peak
 * (partition/liveness.ts, rank-memory.ts), at the times of the nodes that run.
 */
import { runsInStep } from '../partition/except-last.js';
import { livenessByNode } from '../partition/liveness.js';
import type { LoweredStage } from '../partition/lower-stages.js';
import { actionsOf, type StageAction } from '../partition/placed-actions.js';
import { computeLists, nodesByList, UPDATE, usualList } from '../partition/program-phases.js';
import { type ActionMemory, rankMemoryByAction } from '../partition/rank-memory.js';
import type { ShardedGraph, ShardedNode } from '../partition/sharded-graph.js';
import type { Schedule } from '../schedule/schedule.js';
import type { Cluster } from './cluster.js';
import { hiddenBehind } from './data-overlap.js';
import { fusesRegions } from './device.js';
import { clustersOf, savedBytes, simulateStages } from './predict-stages.js';
import { priceNode } from './price.js';

/** From each moment on so many bytes, until the next; seconds from the step's beginning. */
export type MemoryOverTime = readonly (readonly [seconds: number, bytes: number])[];

/**
 * Memory per stage. For pipelines on other clusters it is the walk of one micro-batch and, beside it, the stored activations of
 * the others in flight, as in `stagesMemory`. Takes time linear in nodes and micro-batches.
 */
export function memoryOverTime(
  stages: readonly LoweredStage[],
  schedule: Schedule | null,
  cluster: Cluster,
): readonly MemoryOverTime[] {
  const simulated = schedule && simulateStages(stages, schedule, cluster);
  const actions = actionsOf(stages, schedule?.actions);
  const clusters = clustersOf(stages, cluster);
  return stages.map(({ sharded }, stage) => {
    const own = actions[stage] ?? [];
    const held = cluster.local ? rankMemoryByAction(sharded, own) : memoryBeside(sharded, own, cluster);
    const { timeline, once } = simulated ?? {};
    const spans = timeline
      ? scheduledSpans(sharded, own, timeline.starts[stage], timeline.ends[stage], once?.[stage] ?? 0)
      : null;
    return thinned(curveOf(held, spans, secondsFor(sharded, clusters[stage] as Cluster)));
  });
}

/** Seconds that nodes take in one run, without communication that compute hides. */
function secondsFor(graph: ShardedGraph, cluster: Cluster): (nodes: ActionMemory['nodes']) => number {
  const exposed = hiddenBehind(graph, cluster)?.exposed;
  const runsOf = runsInStep(graph);
  const nanoseconds = (node: ShardedNode) => {
    const waited = node.kind === 'communicate' ? exposed?.get(node.name) : undefined;
    return waited === undefined ? priceNode(node, graph, cluster) : waited / runsOf(node);
  };
  return (nodes) => nodes.reduce((sum, node) => sum + nanoseconds(node), 0) / 1e9;
}

/** A walk of one micro-batch under every action, beside the stored activations of the others in flight. */
function memoryBeside(
  graph: ShardedGraph,
  actions: readonly StageAction[],
  cluster: Cluster,
): readonly (readonly ActionMemory[])[] {
  const parts = livenessByNode(graph, fusesRegions(cluster.device));
  const byNode = new Map(graph.nodes.map((node, index) => [node, parts[index]]));
  const chunks = graph.pipeline?.chunks ?? 1;
  const saved = graph.pipeline ? savedBytes(graph) / chunks : 0;
  const lists = nodesByList(graph);
  const others = inFlightBeside(graph, actions);
  const { interleave = 1 } = graph;
  return actions.map(({ list, microBatch }, index) => {
    const halves = microBatch === null ? 1 : interleave;
    const kept = Math.ceil((others[index] ?? 0) * saved);
    return (lists.get(usualList(list)) ?? []).map((node) => {
      const { mostBytes = 0, endBytes = 0 } = byNode.get(node) ?? {};
      return { nodes: Array<ShardedNode>(halves).fill(node), mostBytes: mostBytes + kept, endBytes: endBytes + kept };
    });
  });
}

/** Per action, the chunks of other micro-batches between their forward and the last phase that reads its stored activations. */
function inFlightBeside({ pipeline }: ShardedGraph, actions: readonly StageAction[]): readonly number[] {
  if (!pipeline) return [];
  const lists = computeLists(pipeline);
  const lastPhase = lists.at(-1)?.does;
  const does = new Map(lists.map((list) => [list.phase, list.does]));
  const flying = new Map<number | null, number>();
  let all = 0;
  return actions.map(({ list, microBatch }) => {
    const phase = does.get(usualList(list));
    const own = flying.get(microBatch) ?? 0;
    const others = all - own;
    const change = phase === undefined ? 0 : phase === 'forward' ? 1 : phase === lastPhase ? -1 : 0;
    flying.set(microBatch, own + change);
    all += change;
    return others;
  });
}

interface TimedAction {
  readonly from: number;
  readonly until: number;
}

/** When each action runs: those of the schedule as simulated, the update behind them, transfers in no time. */
function scheduledSpans(
  { pipeline }: ShardedGraph,
  actions: readonly StageAction[],
  starts: Float64Array | undefined,
  ends: Float64Array | undefined,
  updateSeconds: number,
): readonly TimedAction[] {
  const computed = new Set(pipeline ? computeLists(pipeline).map(({ phase }) => phase) : []);
  let [next, now] = [0, 0];
  return actions.map(({ list, microBatch }) => {
    const isScheduled = microBatch !== null && computed.has(usualList(list));
    const from = isScheduled ? (starts?.[next] ?? now) : now;
    now = isScheduled ? (ends?.[next] ?? now) : list === UPDATE ? now + updateSeconds : now;
    if (isScheduled) next += 1;
    return { from, until: now };
  });
}

/** @param spans where actions have their times; null where they run one after the other, as long as their nodes take */
function curveOf(
  held: readonly (readonly ActionMemory[])[],
  spans: readonly TimedAction[] | null,
  secondsFor: (nodes: ActionMemory['nodes']) => number,
): MemoryOverTime {
  const points: (readonly [number, number])[] = [];
  let now = 0;
  for (const [index, parts] of held.entries()) {
    const seconds = parts.map(({ nodes }) => secondsFor(nodes));
    const own = seconds.reduce((sum, each) => sum + each, 0);
    const span = spans?.[index] ?? { from: now, until: now + own };
    const scale = own > 0 ? (span.until - span.from) / own : 0;
    now = span.from;
    for (const [at, { mostBytes }] of parts.entries()) {
      points.push([now, mostBytes]);
      now += (seconds[at] ?? 0) * scale;
    }
    now = span.until;
    const last = parts.at(-1);
    if (last) points.push([now, last.endBytes]);
  }
  return points;
}

/** Points of a curve: a picture shows no more. */
const MOST_POINTS = 1000;

/** Among neighbours in time only the fullest is left. */
function thinned(points: MemoryOverTime): MemoryOverTime {
  if (points.length <= MOST_POINTS) return points;
  const end = points.at(-1)?.[0] ?? 0;
  const bins = new Map<number, readonly [number, number]>();
  for (const [seconds, bytes] of points) {
    const bin = Math.floor((MOST_POINTS * seconds) / (end || 1));
    const [from, most] = bins.get(bin) ?? [seconds, 0];
    bins.set(bin, [from, Math.max(most, bytes)]);
  }
  return [...bins.values()];
}
