/**
 * @file Memory of a sharded graph by exact liveness: bytes that one rank holds at each node.
 */
import { isOnceAStep, OUTER_MEMORIES, type OuterMemory } from '../ir/graph.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { axesSize, type SubAxis } from '../sharding-propagation/mesh.js';
import { type OccupancyChange, occupancy, occupancyByPart, type PartOccupancy } from './occupancy.js';
import { localBytes } from './partition.js';
import { holdsBehind, resultsOf, type ShardedGraph, type ShardedNode } from './sharded-graph.js';

export interface Liveness {
  /** Peak bytes: weights, and tensors that are live while an operator runs (its operands and results included). */
  readonly peakBytes: number;
  /** The operator of the unsharded graph that runs then; null where nothing runs. */
  readonly at: string | null;
  /** Bytes held then, by tensor. */
  readonly bytesByTensor: () => ReadonlyMap<string, number>;
  /** Peak bytes in other memories; left out where nothing is stored there. */
  readonly outside?: OuterBytes;
}

/** Stands behind the name of a tensor of a micro-batch, and before its number. */
export const OF_MICRO_BATCH = ' of micro-batch ';
const SECOND = `${OF_MICRO_BATCH}1`;

/** Bytes by memory. */
export type OuterBytes = Readonly<Record<OuterMemory, number>>;

/**
 * Exact liveness in node order. Weights stay; an input or result lives until its last reader; outputs to the end. Where a
 * micro-batch has two halves, each operator runs for one and then for the other.
 * Where the device `fusesRegions`, tensors made and read inside a fused region take no memory. `behind`: axes on which the
 * rank is not the first.
 */
export function liveness(
  graph: ShardedGraph,
  fusesRegions = false,
  behind: ReadonlySet<SubAxis> = new Set(),
): Liveness {
  const lifetimes = lifetimesOf(graph);
  const outside = outerBytes(graph, (memory) => changesOf(graph, lifetimes, fusesRegions, behind, memory).changes);
  const { changes, before, ends } = changesOf(graph, lifetimes, fusesRegions, behind);
  const fullest = occupancy(changes);
  const node = fullest.atChange < before ? undefined : graph.nodes[ends.findIndex((end) => fullest.atChange < end)];
  return { ...fullest, at: node?.origin ?? null, ...(outside ? { outside } : {}) };
}

/** Bytes held while each node runs, in node order. */
export function livenessByNode(graph: ShardedGraph, fusesRegions = false): readonly PartOccupancy[] {
  const { changes, ends } = changesOf(graph, lifetimesOf(graph), fusesRegions, new Set());
  return occupancyByPart(changes, ends);
}

/** Peak bytes in each other memory; undefined where no tensors are there. */
export function outerBytes(
  { tensors }: ShardedGraph,
  changesIn: (memory: OuterMemory) => readonly OccupancyChange[],
): OuterBytes | undefined {
  const used = new Set<OuterMemory>();
  for (const { place } of tensors.values()) if (place) used.add(place);
  if (used.size === 0) return undefined;
  const peak = (memory: OuterMemory) => (used.has(memory) ? occupancy(changesIn(memory)).peakBytes : 0);
  return Object.fromEntries(OUTER_MEMORIES.map((memory) => [memory, peak(memory)])) as OuterBytes;
}

/** When the tensors of a graph are held, in whatever memory. */
interface Lifetimes {
  /** Weights and constants, which stay. */
  readonly resident: ReadonlySet<string>;
  readonly lastUse: readonly (readonly string[])[];
  readonly held: ReadonlyMap<string, number>;
}

function lifetimesOf(graph: ShardedGraph): Lifetimes {
  const resident = new Set([...graph.weights.map((weight) => weight.tensor), ...graph.constants.keys()]);
  return { resident, lastUse: lastUses(graph, resident), held: liveThroughout(graph) };
}

/** Changes of the bytes held in one memory; the device's where it is left out. */
function changesOf(
  graph: ShardedGraph,
  { resident, lastUse, held }: Lifetimes,
  fusesRegions: boolean,
  behind: ReadonlySet<SubAxis>,
  memory?: OuterMemory,
): {
  readonly changes: readonly OccupancyChange[];
  /** Changes before the first node's. */
  readonly before: number;
  /** By node: the index behind its last change. */
  readonly ends: readonly number[];
} {
  const bytes = (name: string) => {
    const tensor = graph.tensors.get(name);
    const isThere = tensor?.place === memory && holdsBehind(graph, name, behind);
    return tensor && isThere && !(fusesRegions && tensor.inside) ? localBytes(tensor) : 0;
  };
  const cut = new Set(
    graph.inputs.flatMap(({ tensor, input }) => (graph.microBatches?.cut.has(input) ? [tensor] : [])),
  );
  const changes: OccupancyChange[] = [
    ...[...resident, ...graph.inputs.map(({ tensor }) => tensor)].map((name) => ({ name, bytes: bytes(name) })),
    ...[...held].map(([name, times]) => ({ name, bytes: times * bytes(name) })),
    ...(graph.interleave ? [...cut].map((name) => ({ name: `${name}${SECOND}`, bytes: bytes(name) })) : []),
  ];
  const before = changes.length;
  const ends: number[] = [];
  graph.nodes.forEach((node, index) => {
    const isMade = (half: string) => half === '' || !isOnceAStep(node.phase);
    const received = receivedBytes(graph, node, behind, memory);
    for (const half of graph.interleave ? ['', SECOND] : ['']) {
      for (const name of resultsOf(node))
        if (isMade(half) && !held.has(name)) changes.push({ name: `${name}${half}`, bytes: bytes(name) });
      if (isMade(half) && received > 0) changes.push({ name: RECEIVED, bytes: received }, { name: RECEIVED, bytes: 0 });
      for (const name of lastUse[index] ?? []) changes.push({ name: `${name}${half}`, bytes: 0 });
    }
    ends.push(changes.length);
  });
  return { changes, before, ends };
}

const RECEIVED = 'received values';

/** For a reduce: other ranks' values, which the first rank holds until it has added them up. */
function receivedBytes(
  { tensors, mesh }: ShardedGraph,
  node: ShardedNode,
  behind: ReadonlySet<SubAxis>,
  memory: OuterMemory | undefined,
): number {
  if (node.kind !== 'communicate' || node.collective.kind !== 'reduce') return 0;
  if (node.axes.some((axis) => behind.has(axis))) return 0;
  const tensor = tensors.get(node.input);
  return tensor && tensor.place === memory ? (axesSize(mesh, node.axes) - 1) * localBytes(tensor) : 0;
}

/**
 * With micro-batches: the sums that they accumulate, and outputs of which each micro-batch makes a part, once per micro-batch.
 */
function liveThroughout({ microBatches, nodes, outputs }: ShardedGraph): ReadonlyMap<string, number> {
  if (!microBatches) return new Map();
  const sums = nodes.flatMap((node) => (node.kind === 'compute' && isAccumulator(node) ? node.outputs : []));
  const parts = outputs.filter(({ output }) => microBatches.cut.has(output)).map(({ tensor }) => tensor);
  return new Map([
    ...sums.flatMap((name) => (name === null ? [] : [[name, 1] as const])),
    ...parts.map((name) => [name, microBatches.count] as const),
  ]);
}

/** Per node: the tensors that nothing reads after it; tensors that every micro-batch reads stay until the step's own nodes. */
function lastUses(graph: ShardedGraph, resident: ReadonlySet<string>): readonly (readonly string[])[] {
  const given = new Set(graph.outputs.map((output) => output.tensor));
  const last = new Map<string, number>();
  graph.nodes.forEach((node, index) => {
    const names = node.kind === 'compute' ? [...node.inputs, ...node.outputs] : [node.input, node.output];
    for (const name of names) if (name !== null && !resident.has(name) && !given.has(name)) last.set(name, index);
  });
  const result: string[][] = graph.nodes.map(() => []);
  const lastMicro = graph.microBatches ? graph.nodes.filter(({ phase }) => phase !== 'update').length - 1 : -1;
  const kept = new Set([
    ...graph.state.map(({ to }) => to),
    ...graph.nodes.flatMap((node) => (node.phase === 'begin' ? resultsOf(node) : [])),
  ]);
  for (const [name, index] of last) result[kept.has(name) ? Math.max(index, lastMicro) : index]?.push(name);
  return result;
}
