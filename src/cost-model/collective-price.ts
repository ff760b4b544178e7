/**
 * @file Seconds that a collective takes:
 *
 *     t = launch + rounds · latency + bytes on the wire / bus bandwidth(bytes)
 *
 *     all-reduce                                 2 passes,  (n−1)/n of the whole array each
 *     all-gather, reduce-scatter                 1 pass,    (n−1)/n of the whole array
 *     all-to-all                                 1 pass,    (n−1)/n of the block
 *     permute, broadcast                         1 pass,    the block
 *
 * A group that spans levels runs hierarchically: inside each node, then between nodes on every device's own part, over the
 * node's cards together. Chunks follow one another, so that all levels work at once and the slowest counts, as measured for
 * NCCL: 32 H100 on four nodes reach 378 GB/s, where the levels one after another would give 258.
 */
import type { Mesh, SubAxis } from '../sharding-propagation/mesh.js';
import { subAxes } from '../sharding-propagation/mesh.js';
import type { Cluster } from './cluster.js';
import { profileOf } from './device.js';
import { busBandwidth, type CollectiveKind, type Level, passesOf, roundsOf, stepsOf } from './levels.js';

export type { CollectiveKind } from './levels.js';

/** How a group lies: its members at each level of the cluster, innermost first. */
export type GroupPlace = readonly number[];

/** Where the members of a group over `axes` are. Ranks are numbered consecutively in a node, nodes in a rack. */
export function placeGroup(mesh: Mesh, axes: readonly SubAxis[], { levels }: Pick<Cluster, 'levels'>): GroupPlace {
  const place = levels.map(() => 1);
  let stride = 1;
  for (const sub of [...subAxes(mesh)].reverse()) {
    stride *= sub.size;
    if (!axes.includes(sub.name)) continue;
    const level = levelOf(stride, levels);
    place[level] = (place[level] ?? 1) * sub.size;
  }
  return place;
}

/**
 * Where a group of `ranks` lies whose members are `stride` devices apart: as many at each level as its blocks have room for.
 * Of a group that does not fill blocks evenly the fullest block counts.
 */
export function placeRanks(ranks: number, stride: number, { levels }: Pick<Cluster, 'levels'>): GroupPlace {
  let block = 1;
  let placed = 1;
  return levels.map(({ size }, index) => {
    block *= size;
    const room = index === levels.length - 1 ? ranks : Math.max(1, Math.min(ranks, Math.floor(block / stride)));
    const members = Math.max(1, Math.ceil(room / placed));
    placed *= members;
    return members;
  });
}

/**
 * Seconds of one collective.
 * @param bytes of the whole array for all-reduce, all-gather (result), reduce-scatter (operand); of one
 * rank's block for all-to-all, permute and broadcast
 */
export function collectiveSeconds(
  kind: CollectiveKind,
  bytes: number,
  place: GroupPlace,
  cluster: Pick<Cluster, 'levels' | 'device'>,
): number {
  return collectiveOver(kind, place, cluster)(bytes);
}

/** The same as a function of the bytes, for one kind and place. */
export function collectiveOver(
  kind: CollectiveKind,
  place: GroupPlace,
  { levels, device }: Pick<Cluster, 'levels' | 'device'>,
): (bytes: number) => number {
  const ranks = place.reduce((product, members) => product * members, 1);
  if (ranks === 1) return () => 0;
  const perByte = passesOf(kind, ranks);
  const passes = kind === 'all-reduce' ? 2 : 1;
  const links: Link[] = [];
  let latency = 0;
  let inside = 1;
  for (const [index, level] of levels.entries()) {
    const members = place[index] ?? 1;
    if (members === 1) continue;
    const rounds = kind === 'permute' ? 1 : passes * roundsOf(level, members);
    latency += rounds * level.latencySeconds;
    const bandwidth = busBandwidth(kind, level, members) * (SEND_ALL.has(kind) ? 1 : inside);
    const { seconds, power } = level.fill;
    links.push({ bandwidth, filling: bandwidth * seconds * stepsOf(level, members), power });
    inside *= members;
  }
  const fixed = profileOf(device).collectiveSeconds + latency;
  return (bytes) => {
    const wire = perByte * bytes;
    let slowest = 0;
    // By index: a search asks so often that iterators would be a tenth of all that it allocates.
    for (let index = 0; index < links.length; index++)
      slowest = Math.max(slowest, wireSeconds(wire, links[index] as Link));
    return fixed + slowest;
  };
}

/** What a group's members at one level send over. */
interface Link {
  readonly bandwidth: number;
  /** Bytes on the wire at which half of the bandwidth is reached. */
  readonly filling: number;
  readonly power: number;
}

/** Bytes that one rank of a group of `ranks` receives; `bytes` as for `collectiveSeconds`. */
export function wireBytes(kind: CollectiveKind, bytes: number, ranks: number): number {
  return Math.round(passesOf(kind, ranks) * bytes);
}

/** Kinds in which every rank sends all that it has through its own card; the others share the cards of a node. */
export const SEND_ALL: ReadonlySet<CollectiveKind> = new Set<CollectiveKind>(['all-to-all', 'permute']);

function wireSeconds(bytes: number, { bandwidth, filling, power }: Link): number {
  return bytes === 0 ? 0 : (bytes / bandwidth) * (1 + (filling / bytes) ** power);
}

/** The innermost level that consecutive blocks of so many ranks do not straddle. */
function levelOf(reach: number, levels: readonly Level[]): number {
  let devices = 1;
  for (const [index, { size }] of levels.entries()) {
    devices *= size;
    if (devices % reach === 0) return index;
  }
  return levels.length - 1;
}
