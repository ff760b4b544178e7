/**
 * @file The cost of a lowered plan: step time as a sum of named parts, memory by liveness, bytes on the wire.
 */
import { type DType, isFloating } from '../ir/dtype.js';
import { isOnceAStep, runsPerStep } from '../ir/graph.js';
import { lastForm, runsInStep } from '../partition/except-last.js';
import { type Liveness, liveness, type OuterBytes } from '../partition/liveness.js';
import type { StageAction } from '../partition/placed-actions.js';
import { rankMemory } from '../partition/rank-memory.js';
import type { CommunicationNode, ShardedGraph, ShardedNode } from '../partition/sharded-graph.js';
import type { SubAxis } from '../sharding-propagation/mesh.js';
import type { PlanPrediction } from '../strategy/plan.js';
import type { Cluster } from './cluster.js';
import { hiddenBehind, trains } from './data-overlap.js';
import { fusesRegions } from './device.js';
import { DEVICE_OVERHEAD, fixedBytesAmong } from './hardware.js';
import { launchNanoseconds } from './launches.js';
import { type MovedBytes, movedBytes } from './move-price.js';
import { outsideSeconds } from './phase.js';
import { communicatedBytes, priceNode } from './price.js';
import { runtimeSeconds } from './runtime-price.js';

/** The price of a plan as plan.json records it (`predicted`). */
export interface Prediction extends PlanPrediction {
  /** Prices are those of the sharded graphs themselves. */
  readonly priceLevel: 'lowered';
  /** The format that most of the arithmetic is in, and is priced in: fp32, fp16, bf16. */
  readonly precision: string;
}

/** Bytes that a rank keeps in another memory, and moves there and back in a step. */
export type OutsidePrediction = {
  readonly [Memory in keyof MovedBytes]: MovedBytes[Memory] & { readonly peakBytes: number };
};

/**
 * Prices a sharded graph. `stepSeconds` is the sum of `parts`: `priceNode` over its nodes, less the time hidden behind compute,
 * and time around the nodes, which the search leaves out: launches and framework overhead, or for ranks of this machine the
 * runtime's own work (`runtimeSeconds`).
 * @param unshardedFlops work of the unsharded graph; left out: that of all ranks together
 */
export function predict(
  graph: ShardedGraph,
  cluster: Cluster,
  unshardedFlops?: number,
  memory = memoryOf(graph, cluster),
): Prediction {
  const parts = new Map<string, number>();
  let nanoseconds = 0;
  let flopsPerRank = 0;
  let bytesCommunicated = 0;
  const overlap = hiddenBehind(graph, cluster);
  const runsOf = runsInStep(graph);
  for (const node of graph.nodes) {
    const runs = runsOf(node);
    const waited = node.kind === 'communicate' ? overlap?.exposed.get(node.name) : undefined;
    const price = waited ?? runs * priceNode(node, graph, cluster);
    const part = partName(node, graph);
    nanoseconds += price;
    parts.set(part, (parts.get(part) ?? 0) + price);
    if (node.kind === 'compute') flopsPerRank += runs * node.flops;
    bytesCommunicated += runs * communicatedBytes(node, graph);
  }
  const around = cluster.local ? Object.entries(runtimeSeconds(graph, cluster.device)) : [];
  for (const [part, seconds] of around) {
    nanoseconds += seconds * 1e9;
    parts.set(part, seconds * 1e9);
  }
  const ranks = graph.mesh.axes.reduce((product, axis) => product * axis.size, 1);
  const micro = graph.nodes.filter(({ phase }) => !isOnceAStep(phase));
  const isHidden = ({ name }: CommunicationNode) => overlap?.exposed.has(name) ?? false;
  const launches = Math.round((graph.microBatches?.count ?? 1) * launchNanoseconds(micro, graph, cluster, isHidden));
  const beyond = { [LAUNCHES]: launches, [OUTSIDE]: outsideNanoseconds(nanoseconds + launches, graph, cluster, ranks) };
  for (const [part, more] of Object.entries(beyond)) {
    nanoseconds += more;
    if (more > 0) parts.set(part, more);
  }
  const outside = outsideOf(graph, memory.outside);
  return {
    stepSeconds: nanoseconds / 1e9,
    priceLevel: 'lowered',
    precision: precisionOf(graph),
    peakBytes: [memory.peakBytes],
    parts: Object.fromEntries([...parts].sort(byName).map(([part, sum]) => [part, sum / 1e9])),
    ...(overlap ? { hiddenSeconds: overlap.hidden / 1e9 } : {}),
    flopsPerRank,
    flopsTotal: unshardedFlops ?? flopsPerRank * ranks,
    bytesCommunicated,
    ...(outside ? { outside: [outside] } : {}),
  };
}

/** Parts of a step that no node has: time that the host's launches add, and framework overhead. */
export const LAUNCHES = 'launches';
export const OUTSIDE = 'outside the model';

/** Nanoseconds of framework overhead in a step; 0 for ranks of this machine, whose runtime's price includes them. */
export function outsideNanoseconds(inside: number, graph: ShardedGraph, cluster: Cluster, ranks: number): number {
  if (cluster.local) return 0;
  return Math.round(1e9 * outsideSeconds(inside / 1e9, { trains: trains(graph), nodes: ranks / cluster.perNode }));
}

/** Undefined where all tensors are on the device. */
export function outsideOf(graph: ShardedGraph, peaks: OuterBytes | undefined): OutsidePrediction | undefined {
  const moved = movedBytes(graph);
  if (!moved || !peaks) return undefined;
  return {
    host: { peakBytes: peaks.host, ...moved.host },
    disk: { peakBytes: peaks.disk, ...moved.disk },
  };
}

/** The format that most of a plan's arithmetic is in, and is priced in. */
export function precisionOf({ nodes, tensors }: ShardedGraph): string {
  const flops = new Map<DType, number>();
  for (const node of nodes) {
    const [output] = node.kind === 'compute' ? node.outputs : [];
    const dtype = output ? tensors.get(output)?.dtype : undefined;
    if (node.kind === 'compute' && dtype && isFloating(dtype)) flops.set(dtype, (flops.get(dtype) ?? 0) + node.flops);
  }
  const [[dtype] = ['float32' as const]] = [...flops].sort((a, b) => b[1] - a[1]);
  return SHORT[dtype] ?? dtype;
}

const SHORT: Readonly<Partial<Record<DType, string>>> = { float32: 'fp32', float16: 'fp16', bfloat16: 'bf16' };

/** Price of a step of a sharded graph in integer nanoseconds: the number that the search minimises. */
export function priceGraph(graph: ShardedGraph, cluster: Cluster): number {
  return graph.nodes.reduce((sum, node) => sum + runsPerStep(node.phase, graph) * priceNode(node, graph, cluster), 0);
}

/**
 * Peak memory of a rank: under the bundled runtime on this machine, by plain liveness elsewhere.
 * @param actions what it runs in a step; required for a stage of a pipeline
 * @param behind axes on which it is not the first rank; left out: the rank that holds most
 */
export function memoryOf(
  graph: ShardedGraph,
  cluster: Cluster,
  actions?: readonly StageAction[],
  behind?: ReadonlySet<SubAxis>,
): Liveness {
  if (cluster.local) return rankMemory(graph, actions, behind);
  const forms = graph.microBatches?.exceptLast ? [graph, lastForm(graph)] : [graph];
  const [first, last] = forms.map((form) => liveness(form, fusesRegions(cluster.device), behind));
  return last && first && last.peakBytes > first.peakBytes ? last : (first as Liveness);
}

/** Bytes that a plan's tensors may take on one device; undefined where no limit applies (ranks of this machine). */
export function usableBytes(cluster: Cluster): number | undefined {
  return cluster.local ? undefined : bytesForTensors(cluster.device.memoryBytes, cluster);
}

type DeviceCount = Pick<Cluster, 'local' | 'nodes' | 'perNode'>;

/** Bytes of each device of a cluster that are never its tensors'; none on ranks of this machine. */
export function fixedBytes({ local, nodes, perNode }: DeviceCount): number {
  return local ? 0 : fixedBytesAmong(nodes * perNode);
}

/** Bytes that tensors may take of so many of a device. */
export function bytesForTensors(deviceBytes: number, cluster: DeviceCount): number {
  if (cluster.local) return deviceBytes;
  return Math.floor((deviceBytes - fixedBytes(cluster)) / (1 + DEVICE_OVERHEAD.fragmentation));
}

/** Bytes of a device whose tensors take so many. */
export function deviceBytes(tensors: number, cluster: DeviceCount): number {
  if (cluster.local) return tensors;
  return Math.ceil(tensors * (1 + DEVICE_OVERHEAD.fragmentation)) + fixedBytes(cluster);
}

/** `compute`, a collective and the mesh axes that it runs over: `all-reduce(tp)`, or a copy: `load(host)`. */
export function partName(node: ShardedNode, { mesh, tensors }: Pick<ShardedGraph, 'mesh' | 'tensors'>): string {
  if (node.kind === 'compute') return 'compute';
  if (node.kind === 'move') {
    const to = tensors.get(node.output)?.place;
    return to ? `store(${to})` : `load(${tensors.get(node.input)?.place})`;
  }
  const axes = mesh.axes.filter((axis) => axis.subAxes.some((sub) => node.axes.includes(sub.name)));
  return `${node.collective.kind}(${axes.map((axis) => axis.name).join(',')})`;
}

function byName(a: readonly [string, number], b: readonly [string, number]): number {
  return a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0;
}
