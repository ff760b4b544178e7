/**
 * @file The moment of peak memory: a list of allocations and frees, in order, and the moment at which most bytes are held.
 */

import { readsOf, resultsOf, type Wiring } from './sharded-graph.js';

/** From here on a name holds so many bytes; 0 frees it. */
export interface OccupancyChange {
  readonly name: string;
  readonly bytes: number;
}

/** The moment of peak memory. */
export interface Occupancy {
  readonly peakBytes: number;
  /** Index of the change that fills it first; -1 where nothing takes any. */
  readonly atChange: number;
  /** Names that hold bytes then, with their bytes. */
  readonly bytesByTensor: () => ReadonlyMap<string, number>;
}

/**
 * The changes while nodes run one after the other: each allocates its results, and a tensor is freed behind the last node that
 * reads or makes it, unless it `stays`. `keyOf`: the name by which a tensor counts, where several share memory.
 */
export function changesWhileRunning(
  nodes: readonly Wiring[],
  bytes: (name: string) => number,
  stays: (key: string) => boolean = () => false,
  keyOf: (name: string) => string = (name) => name,
): readonly OccupancyChange[] {
  const used = nodes.map((node) => [...readsOf(node), ...resultsOf(node)].map(keyOf));
  const last = new Map(used.flatMap((keys, index) => keys.map((key) => [key, index] as const)));
  return nodes.flatMap((node, index) => [
    ...resultsOf(node).map((name) => ({ name, bytes: bytes(name) })),
    ...(used[index] ?? []).flatMap((name) => (last.get(name) === index && !stays(name) ? [{ name, bytes: 0 }] : [])),
  ]);
}

/** Finds the moment of peak memory; the names held then are collected only on request. */
export function occupancy(changes: readonly OccupancyChange[]): Occupancy {
  const sizes = new Map<string, number>();
  let live = 0;
  let peakBytes = 0;
  let atChange = -1;
  for (const [index, { name, bytes }] of changes.entries()) {
    live += bytes - (sizes.get(name) ?? 0);
    sizes.set(name, bytes);
    if (live > peakBytes) [peakBytes, atChange] = [live, index];
  }
  return { peakBytes, atChange, bytesByTensor: () => liveAt(changes, atChange) };
}

/** Per part of the changes (`ends`: the index behind its last one) the most bytes held in it, and those held at its end. */
export function occupancyByPart(
  changes: readonly OccupancyChange[],
  ends: readonly number[],
): readonly PartOccupancy[] {
  const sizes = new Map<string, number>();
  let live = 0;
  let index = 0;
  return ends.map((end) => {
    let mostBytes = live;
    for (; index < end; index += 1) {
      const { name, bytes } = changes[index] as OccupancyChange;
      live += bytes - (sizes.get(name) ?? 0);
      sizes.set(name, bytes);
      mostBytes = Math.max(mostBytes, live);
    }
    return { mostBytes, endBytes: live };
  });
}

export interface PartOccupancy {
  readonly mostBytes: number;
  readonly endBytes: number;
}

function liveAt(changes: readonly OccupancyChange[], last: number): ReadonlyMap<string, number> {
  const live = new Map<string, number>();
  for (const { name, bytes } of changes.slice(0, last + 1)) {
    if (bytes > 0) live.set(name, bytes);
    else live.delete(name);
  }
  return live;
}
