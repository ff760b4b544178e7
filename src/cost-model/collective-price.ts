/**
 * @file Seconds that a collective takes:
 *
 *     t = launch + rounds · latency + bytes on the wire / bus bandwidth(bytes)
 *
 *     all-reduce                                 2 passes,  (n−1)/n of the whole array each
 *     all-gather, reduce-scatter                 1 pass,    (n−1)/n of the whole array
 *     all-to-all                                 1 pass,    (n−1)/n of the operand
 *     permute                                    1 pass,    the operand
 *     reduce, broadcast                          1 round,   n−1 operands through the first rank's own links
 *
 * A group that spans levels runs hierarchically: inside each node, then between nodes on every device's own shard, over the
 * node's cards together. Chunks follow one another, so that all levels work at once and the slowest counts, as measured for
 * NCCL: 32 H100 on four nodes reach 378 GB/s, where the levels one after another would give 258.
 */
import type { Cluster } from './cluster.js';
import { profileOf } from './device.js';
import type { GroupPlace } from './group-place.js';
import { busBandwidth, type CollectiveKind, passesOf, roundsOf, STARS, stepsOf } from './levels.js';

export type { CollectiveKind } from './levels.js';

/**
 * Seconds of one collective.
 * @param bytes of the whole array for all-reduce, all-gather (result), reduce-scatter (operand); of one
 * rank's operand for all-to-all, permute, reduce and broadcast
 */
export function collectiveSeconds(
  kind: CollectiveKind,
  bytes: number,
  place: GroupPlace,
  cluster: Pick<Cluster, 'levels' | 'device'>,
): number {
  return collectiveOver(kind, place, cluster)(bytes);
}

/** The same as a function of the bytes, for one kind and place: the slowest of the groups, where they are placed differently. */
export function collectiveOver(
  kind: CollectiveKind,
  place: GroupPlace,
  cluster: Pick<Cluster, 'levels' | 'device'>,
): (bytes: number) => number {
  const own = groupOver(kind, place, cluster);
  if (place.others.length === 0) return own;
  const all = [own, ...place.others.map((other) => groupOver(kind, other, cluster))];
  return (bytes) => Math.max(...all.map((seconds) => seconds(bytes)));
}

function groupOver(
  kind: CollectiveKind,
  { ranks, members: places, cards }: GroupPlace,
  { levels, device }: Pick<Cluster, 'levels' | 'device'>,
): (bytes: number) => number {
  if (ranks === 1) return () => 0;
  const perByte = passesOf(kind, ranks);
  const passes = kind === 'all-reduce' ? 2 : 1;
  const links: LevelLink[] = [];
  let latency = 0;
  const isStar = STARS.has(kind);
  let inside = 1;
  for (const [index, level] of levels.entries()) {
    const members = places[index] ?? 1;
    if (members === 1) continue;
    const rounds = kind === 'permute' || isStar ? 1 : passes * roundsOf(level, members);
    latency += rounds * level.latencySeconds;
    const bandwidth = busBandwidth(kind, level, members) * (SEND_ALL.has(kind) ? 1 : (cards[index] ?? 1));
    const { seconds, power } = level.fill;
    // In a star, the operands of ranks that are as far away cross the level.
    const wire = isStar ? inside * (members - 1) : perByte;
    inside *= members;
    links.push({ bandwidth, filling: bandwidth * seconds * stepsOf(level, members), power, perByte: wire });
  }
  const fixed = profileOf(device).collectiveSeconds + latency;
  return (bytes) => {
    let slowest = 0;
    // By index: a search calls this so often that iterators would be a tenth of all that it allocates.
    for (let index = 0; index < links.length; index++)
      slowest = Math.max(slowest, wireSeconds(bytes, links[index] as LevelLink));
    return fixed + slowest;
  };
}

/** The link of a group's members at one level. */
interface LevelLink {
  readonly bandwidth: number;
  /** Bytes on the wire at which half of the bandwidth is reached. */
  readonly filling: number;
  readonly power: number;
  /** Bytes on the wire per byte of the collective. */
  readonly perByte: number;
}

/**
 * Bytes that the busiest rank of a group of `ranks` receives, or sends where it sends more. `bytes` as for
 * `collectiveSeconds`.
 */
export function wireBytes(kind: CollectiveKind, bytes: number, ranks: number): number {
  return Math.round(passesOf(kind, ranks) * bytes);
}

/** Kinds in which every rank sends all that it has through its own card; the others share the cards of a node. */
export const SEND_ALL: ReadonlySet<CollectiveKind> = new Set<CollectiveKind>(['all-to-all', 'permute', ...STARS]);

function wireSeconds(each: number, { bandwidth, filling, power, perByte }: LevelLink): number {
  const bytes = perByte * each;
  return bytes === 0 ? 0 : (bytes / bandwidth) * (1 + (filling / bytes) ** power);
}
