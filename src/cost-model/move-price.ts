/**
 * @file Bytes that go between a device's memory and another one in a step, and the seconds that they take: over the device's
 * link to its host (for a rank of this machine, which is its own host, a copy in memory), or to a disk of the node.
 */
import { OUTER_MEMORIES, type OuterMemory } from '../ir/graph.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { runsInStep } from '../partition/except-last.js';
import { localBytes } from '../partition/partition.js';
import { type ComputeNode, type MoveNode, resultsOf, type ShardedGraph } from '../partition/sharded-graph.js';
import type { Cluster } from './cluster.js';
import { DISK } from './hardware.js';

/** Bytes that leave the device for another memory, and that come back. */
export interface MoveBytes {
  readonly storedBytes: number;
  readonly loadedBytes: number;
}

/** Bytes that one rank moves in a step, by memory. */
export type MovedBytes = Readonly<Record<OuterMemory, MoveBytes>>;

/** Seconds of so many bytes either way. @throws Error where nothing is known of the device's host */
export function moveSeconds(memory: OuterMemory, bytes: number, cluster: Cluster): number {
  return bytes / moveRates(cluster)[memory];
}

/** Bytes per second between a device and each other memory. A copy on this machine is read once and written once. */
export function moveRates({ local, device }: Cluster): Readonly<Record<OuterMemory, number>> {
  const host = local ? device.memoryBandwidth / 2 : device.host?.linkBandwidth;
  if (host === undefined) throw new Error(`device ${device.id} has no host data`);
  return { host, disk: DISK.bandwidth };
}

/** Seconds of an operator that runs on the host: it moves so many bytes in the host's memory. */
export function hostSeconds(bytes: number, cluster: Cluster): number {
  const { local, device } = cluster;
  const bandwidth = local ? device.memoryBandwidth : device.host?.memoryBandwidth;
  if (bandwidth === undefined) throw new Error(`device ${device.id} has no host data`);
  return bytes / bandwidth;
}

/** Bytes of a copy, or of an accumulator's addition to a sum in another memory; null for anything else. */
export function moveOf(
  node:
    | Pick<MoveNode, 'kind' | 'input' | 'output'>
    | Pick<ComputeNode, 'kind' | 'op' | 'domain' | 'inputs' | 'outputs'>,
  { tensors }: Pick<ShardedGraph, 'tensors'>,
  times: number,
): (MoveBytes & { readonly memory: OuterMemory }) | null {
  const bytes = (name: string | undefined) => {
    const tensor = tensors.get(name ?? '');
    return tensor ? localBytes(tensor) : 0;
  };
  if (node.kind === 'move') {
    const [from, to] = [node.input, node.output].map((name) => tensors.get(name)?.place);
    const moved = times * bytes(node.input);
    const memory = from ?? to;
    if (!memory) throw new Error(`${node.input} is copied within the device`);
    return { memory, storedBytes: to ? moved : 0, loadedBytes: to ? 0 : moved };
  }
  if (!isAccumulator(node)) return null;
  const [sum] = resultsOf(node);
  const memory = tensors.get(sum ?? '')?.place;
  if (!memory || tensors.get(node.inputs[0] ?? '')?.place === memory) return null;
  // On the host it is added to; a file's sum is read, from the second time on, and written.
  return {
    memory,
    storedBytes: times * bytes(sum),
    loadedBytes: memory === 'disk' ? Math.max(0, times - 1) * bytes(sum) : 0,
  };
}

/** All bytes that one rank moves in a step; undefined where nothing is kept outside of the device. */
export function movedBytes(graph: ShardedGraph): MovedBytes | undefined {
  if (![...graph.tensors.values()].some(({ place }) => place)) return undefined;
  const sums = new Map<OuterMemory, MoveBytes>(
    OUTER_MEMORIES.map((memory) => [memory, { storedBytes: 0, loadedBytes: 0 }]),
  );
  const runsOf = runsInStep(graph);
  for (const node of graph.nodes) {
    const moved = node.kind === 'communicate' ? null : moveOf(node, graph, runsOf(node));
    const sum = moved && sums.get(moved.memory);
    if (sum)
      sums.set(moved.memory, {
        storedBytes: sum.storedBytes + moved.storedBytes,
        loadedBytes: sum.loadedBytes + moved.loadedBytes,
      });
  }
  return Object.fromEntries(sums) as MovedBytes;
}
