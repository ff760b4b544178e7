/**
 * @file The cost of a lowered pipeline: each list of a stage priced node by node, the schedule simulated over them, and the work
 * around it that runs once a step; and the memory of its ranks.
 */

import { isOnceAStep } from '../ir/graph.js';
import { lastForm, otherForm, runsInStep } from '../partition/except-last.js';
import { halvesIn } from '../partition/interleave.js';
import type { Liveness } from '../partition/liveness.js';
import { type LoweredStage, onlyStage } from '../partition/lower-stages.js';
import { localBytes } from '../partition/partition.js';
import { actionsOf } from '../partition/placed-actions.js';
import { lastList, listName, nodesByList, programPhases, runsOfList, UPDATE } from '../partition/program-phases.js';
import {
  type CommunicationNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type StageTransfer,
} from '../partition/sharded-graph.js';
import { inFlight } from '../schedule/in-flight.js';
import type { Schedule } from '../schedule/schedule.js';
import { type Durations, simulate, type Timeline } from '../schedule/simulate.js';
import { AXIS_ORDER, deviceCount, makeMesh, type SubAxis } from '../sharding-propagation/mesh.js';
import type { Cluster } from './cluster.js';
import { collectiveSeconds } from './collective-price.js';
import { hiddenBehind } from './data-overlap.js';
import { type GroupPlace, placeGroup } from './group-place.js';
import { launchNanoseconds } from './launches.js';
import { clustersOfStages } from './node-kinds.js';
import {
  LAUNCHES,
  memoryOf,
  OUTSIDE,
  type OutsidePrediction,
  outsideNanoseconds,
  outsideOf,
  type Prediction,
  partName,
  precisionOf,
  predict,
} from './predict.js';
import { communicatedBytes, priceNode } from './price.js';
import { runtimeSeconds } from './runtime-price.js';

/** Parts of a step of a pipeline that no node has. */
export const IDLE = 'bubble';
export const SENT = 'send(pp)';

/**
 * Prices a lowered plan, stage by stage. In a pipeline, `parts` are those of the stage that is busy longest. They sum up to
 * `stepSeconds` together with its waiting time (`bubble`) and its sends once a step (`send(pp)`).
 * @param schedule what the stages run; null for one
 * @param unshardedFlops work of the unsharded graph; left out: that of all ranks together
 * @param memory what the stages' ranks hold, where it is known
 */
export function predictStages(
  stages: readonly LoweredStage[],
  schedule: Schedule | null,
  cluster: Cluster,
  unshardedFlops?: number,
  memory = stagesMemory(stages, schedule, cluster),
): Prediction {
  if (!schedule) return predict(onlyStage(stages), cluster, unshardedFlops, memory[0]);
  const outside = stages.map(({ sharded }, stage) => outsideOf(sharded, memory[stage]?.outside));
  const { priced, perStage, sentOnce, timeline, once: updates } = simulateStages(stages, schedule, cluster);
  const [first] = stages;
  const { makespan } = timeline;
  const once = Math.max(...updates);
  const inside = makespan + once + sentOnce;
  const ranks = perStage * stages.length;
  const around = first ? outsideNanoseconds(inside * 1e9, first.sharded, cluster, ranks) / 1e9 : 0;
  const stepSeconds = inside + around;
  const busiest = priced.reduce((most, own) => (own.busySeconds > most.busySeconds ? own : most));
  const idle = inside - sentOnce - busiest.busySeconds;
  return {
    stepSeconds,
    priceLevel: 'lowered',
    precision: precisionOf(busiest.graph),
    peakBytes: memory.map(({ peakBytes }) => peakBytes),
    parts: Object.fromEntries(
      [
        ...busiest.parts,
        [IDLE, Math.max(0, idle)] as const,
        ...[[SENT, sentOnce] as const, [OUTSIDE, around] as const].filter(([, own]) => own > 0),
      ].sort(([a], [b]) => (a < b ? -1 : 1)),
    ),
    ...(busiest.hiddenSeconds === undefined ? {} : { hiddenSeconds: busiest.hiddenSeconds }),
    flopsPerRank: Math.max(...priced.map(({ flops }) => flops)),
    flopsTotal: unshardedFlops ?? ranks * Math.max(...priced.map(({ flops }) => flops)),
    bytesCommunicated: Math.max(...priced.map(({ received }) => received)),
    receivedBytes: priced.map(({ received }) => received),
    ...(outside.some((own) => own) ? { outside: outside.map((own) => own ?? NOTHING_OUTSIDE) } : {}),
  };
}

/** The stages priced, the schedule simulated over them, and the seconds of what runs once a step. */
export function simulateStages(
  stages: readonly LoweredStage[],
  schedule: Schedule,
  cluster: Cluster,
  onSend?: Durations['onSend'],
): SimulatedStages {
  const clusters = clustersOf(stages, cluster);
  const priced = stages.map(({ sharded }, stage) => priceStage(sharded, clusters[stage] as Cluster));
  const [first] = stages;
  const perStage = first ? deviceCount(first.sharded.mesh) : 1;
  const seconds = (bytes: number) => sendSeconds(bytes, stages.length, perStage, cluster);
  const sent = stages.map(({ sharded }) => sentBytes(sharded));
  const durations: Durations = {
    compute: (stage, chunk, phase) => priced[stage]?.lists.get(listName(phase, chunk)) ?? 0,
    last: (stage, chunk, phase) => {
      const { graph, lists } = priced[stage] as PricedStage;
      const name = listName(phase, chunk);
      return lists.get(graph.microBatches?.exceptLast ? lastList(name) : name) ?? 0;
    },
  };
  const timeline = simulate(schedule, {
    ...durations,
    transfer: (from, to, phase) =>
      seconds((sent[from]?.get(sentKey(to, phase === 'forward')) ?? 0) / schedule.virtualStages),
    ...(onSend ? { onSend } : {}),
  });
  const sentOnce = Math.max(...stages.map(({ sharded }) => seconds(onceBytes(sharded))));
  return {
    ...{ priced, perStage, timeline, sentOnce },
    once: priced.map(({ lists }) => lists.get(UPDATE) ?? 0),
    waitedSeconds: () => timeline.makespan - simulate(schedule, durations).makespan + sentOnce,
  };
}

/** The cluster of each stage: the nodes that the stage runs on. Stages are the outermost axis. */
export function clustersOf(stages: readonly LoweredStage[], cluster: Cluster): readonly Cluster[] {
  const [first] = stages;
  return first ? clustersOfStages(cluster, stages.length, deviceCount(first.sharded.mesh)) : [];
}

interface SimulatedStages {
  readonly priced: readonly PricedStage[];
  readonly perStage: number;
  readonly timeline: Timeline;
  /** Seconds of each stage's update. */
  readonly once: readonly number[];
  /** Seconds of the sends once a step. */
  readonly sentOnce: number;
  /** Seconds that the step is longer by than if nothing took time to reach another stage. */
  readonly waitedSeconds: () => number;
}

/** Seconds in which a rank's bytes reach the same rank of the next stage. */
export function sendSeconds(bytes: number, stages: number, ranksPerStage: number, cluster: Cluster): number {
  if (bytes === 0 || stages === 1) return 0;
  return collectiveSeconds('permute', bytes, placeStages(stages, ranksPerStage, cluster), cluster);
}

/** The levels of the cluster that equal ranks of all stages span. */
export function placeStages(stages: number, ranksPerStage: number, cluster: Cluster): GroupPlace {
  const [outermost, inner] = AXIS_ORDER;
  const mesh = makeMesh([
    [outermost, stages],
    [inner, ranksPerStage],
  ]);
  const axes = mesh.axes[0]?.subAxes.map(({ name }) => name) ?? [];
  return placeGroup(mesh, axes, cluster);
}

/** The sends of a stage to others, with the bytes that one rank sends in a step, and their seconds. */
export function sendsInStep(
  sharded: ShardedGraph,
  stages: number,
  cluster: Cluster,
): readonly (StageTransfer & { readonly bytes: number; readonly seconds: number })[] {
  return (sharded.pipeline?.sends ?? []).map((send) => {
    const [bytes, runs] = [bytesOf(sharded, send.tensor), transfersInStep(send, sharded)];
    const seconds = sendSeconds(bytes, stages, deviceCount(sharded.mesh), cluster);
    return { ...send, bytes: runs * bytes, seconds: runs * seconds };
  });
}

function transfersInStep({ when }: StageTransfer, { microBatches }: ShardedGraph): number {
  return when === 'micro' ? (microBatches?.count ?? 1) : 1;
}

/** Bytes of a stage that keeps all on its devices. */
const NOTHING = { peakBytes: 0, storedBytes: 0, loadedBytes: 0 };
const NOTHING_OUTSIDE: OutsidePrediction = { host: NOTHING, disk: NOTHING };

interface PricedStage {
  readonly graph: ShardedGraph;
  /** Seconds of one run of each list. */
  readonly lists: ReadonlyMap<string, number>;
  /** Seconds of a step. */
  readonly busySeconds: number;
  readonly parts: readonly (readonly [string, number])[];
  readonly hiddenSeconds?: number;
  readonly flops: number;
  /** Bytes that one rank receives in a step. */
  readonly received: number;
}

function priceStage(graph: ShardedGraph, cluster: Cluster): PricedStage {
  const last = graph.microBatches?.exceptLast ? lastForm(graph) : null;
  const phases = programPhases(graph).flatMap((list) =>
    last && list.runs === 'micro'
      ? [
          { name: list.phase, list, form: graph },
          { name: lastList(list.phase), list: { ...list, isLast: true as const }, form: last },
        ]
      : [{ name: list.phase, list, form: graph }],
  );
  const parts = new Map<string, number>();
  const lists = new Map<string, number>();
  let [flops, received] = [0, 0];
  const overlap = hiddenBehind(graph, cluster);
  const isHidden = ({ name }: CommunicationNode) => overlap?.exposed.has(name) ?? false;
  const runsOf = runsInStep(graph);
  for (const { name, list, form } of phases) {
    const runs = runsOfList(list, graph);
    const each = halvesIn(list.runs, graph).length;
    const nodes = nodesByList(form).get(list.phase) ?? [];
    let seconds = (each * launchNanoseconds(nodes, graph, cluster, isHidden)) / 1e9;
    if (seconds > 0) parts.set(LAUNCHES, (parts.get(LAUNCHES) ?? 0) + runs * seconds);
    for (const node of nodes) {
      const waited = node.kind === 'communicate' ? overlap?.exposed.get(node.name) : undefined;
      const own = (each * (waited === undefined ? priceNode(node, graph, cluster) : waited / runsOf(node))) / 1e9;
      const part = partName(node, graph);
      seconds += own;
      parts.set(part, (parts.get(part) ?? 0) + runs * own);
      if (node.kind === 'compute') flops += runs * each * node.flops;
      received += runs * each * communicatedBytes(node, graph);
    }
    lists.set(name, seconds);
  }
  for (const receive of graph.pipeline?.receives ?? [])
    received += transfersInStep(receive, graph) * bytesOf(graph, receive.tensor);
  const around = cluster.local ? Object.entries(runtimeSeconds(graph, cluster.device)) : [];
  // Lists that only send or receive are no part of the simulated time.
  const micro = phases.filter(
    ({ list, form }) => list.runs === 'micro' && (nodesByList(form).get(list.phase) ?? []).length > 0,
  );
  const times = micro.reduce((sum, { list }) => sum + runsOfList(list, graph), 0);
  for (const [part, seconds] of around) {
    parts.set(part, seconds);
    for (const { name } of micro) lists.set(name, (lists.get(name) ?? 0) + seconds / times);
  }
  const busySeconds = phases.reduce((sum, { name, list }) => sum + runsOfList(list, graph) * (lists.get(name) ?? 0), 0);
  const hidden = overlap ? { hiddenSeconds: overlap.hidden / 1e9 } : {};
  return { graph, lists, busySeconds, parts: [...parts], ...hidden, flops, received };
}

/** Bytes that one rank sends in a micro-batch, by `sentKey`. */
function sentBytes(graph: ShardedGraph): ReadonlyMap<string, number> {
  const sends = graph.pipeline?.sends.filter(({ when }) => when === 'micro') ?? [];
  const forward = new Set(graph.nodes.filter(({ phase }) => phase === 'forward').flatMap(resultsOf));
  const bytes = new Map<string, number>();
  const { interleave = 1 } = graph;
  for (const { stage, tensor } of sends) {
    const key = sentKey(stage, forward.has(tensor));
    bytes.set(key, (bytes.get(key) ?? 0) + interleave * bytesOf(graph, tensor));
  }
  return bytes;
}

/** The key of sends to a stage in the forward, or in the backward. */
function sentKey(stage: number, isForward: boolean): string {
  return `${isForward ? 'forward' : 'backward'} to ${stage}`;
}

/** Bytes that a stage sends and receives once a step. */
function onceBytes(graph: ShardedGraph): number {
  const { sends = [], receives = [] } = graph.pipeline ?? {};
  const isOnce = ({ when }: StageTransfer) => when !== 'micro';
  return [...sends, ...receives].filter(isOnce).reduce((sum, { tensor }) => sum + bytesOf(graph, tensor), 0);
}

/**
 * Peak memory of each stage's ranks, where a schedule states what they run. On this machine ranks are counted action by action;
 * elsewhere it is the walk of one micro-batch and, beside it, the stored activations of the others in flight.
 * @param behind axes on which it is not the first rank
 */
export function stagesMemory(
  stages: readonly LoweredStage[],
  schedule: Schedule | null,
  cluster: Cluster,
  behind?: ReadonlySet<SubAxis>,
): readonly Liveness[] {
  if (!schedule) return [memoryOf(onlyStage(stages), cluster, undefined, behind)];
  const actions = cluster.local ? actionsOf(stages, schedule.actions) : [];
  const inFlightOf = inFlight(schedule);
  return stages.map(({ sharded }, stage) => {
    if (cluster.local) return memoryOf(sharded, cluster, actions[stage], behind);
    return besideOthers(sharded, cluster, Math.max(0, (inFlightOf[stage] ?? 1) / schedule.virtualStages - 1), behind);
  });
}

/** Memory of a micro-batch beside `others` in flight. The last of a step may store more activations than they do. */
function besideOthers(
  sharded: ShardedGraph,
  cluster: Cluster,
  others: number,
  behind?: ReadonlySet<SubAxis>,
): Liveness {
  const saved = savedBytes(sharded);
  const last = sharded.microBatches?.exceptLast ? lastForm(sharded) : null;
  const beside = (form: ShardedGraph, bytes: number): Liveness => {
    const own = memoryOf(form, cluster, undefined, behind);
    const kept = Math.ceil(bytes);
    if (kept === 0) return own;
    const held = () => new Map([...own.bytesByTensor(), [OTHERS, kept] as const]);
    return { ...own, peakBytes: own.peakBytes + kept, bytesByTensor: held };
  };
  if (!last) return beside(sharded, others * saved);
  const early = beside(otherForm(sharded), others * saved + Math.min(1, others) * (savedBytes(last) - saved));
  const late = beside(last, others * saved);
  return early.peakBytes < late.peakBytes ? late : early;
}

/** Stored activations of the micro-batches in flight beside one. */
const OTHERS = 'activations of other micro-batches';

/** Stored activations of a micro-batch, of both halves where it has them. */
export function savedBytes(graph: ShardedGraph): number {
  const forward = graph.nodes.filter(({ phase }) => phase === 'forward');
  const readForward = new Set(forward.flatMap(readsOf));
  const made = new Set([
    ...forward.flatMap(resultsOf),
    ...(graph.pipeline?.receives ?? []).flatMap(({ tensor }) => (readForward.has(tensor) ? [tensor] : [])),
  ]);
  const later = graph.nodes.filter(({ phase }) => phase !== 'forward' && !isOnceAStep(phase));
  const saved = new Set(later.flatMap(readsOf).filter((name) => made.has(name)));
  const { interleave = 1 } = graph;
  return interleave * [...saved].reduce((sum, name) => sum + bytesOf(graph, name), 0);
}

function bytesOf(graph: ShardedGraph, name: string): number {
  const tensor = graph.tensors.get(name);
  return tensor ? localBytes(tensor) : 0;
}
