/**
 * @file Seconds that a collective takes: t = launch + α · rounds + bytes on the wire / bus bandwidth.
 *
 *     all-reduce                                 2 · ⌈log2 n⌉ rounds,  2 (n−1)/n of the whole array
 *     all-gather, reduce-scatter                     ⌈log2 n⌉ rounds,    (n−1)/n of the whole array
 *     all-to-all                                     ⌈log2 n⌉ rounds,    (n−1)/n of the block
 *     permute                                              1 round,     the block
 *     broadcast                                      ⌈log2 n⌉ rounds,    the block
 *
 * A group that crosses nodes runs in two levels: inside a node over the fast links, then between nodes over each
 * device's share of the network on 1/g of the bytes, where g is the number of members in a node.
 */
import type { Mesh, SubAxis } from '../sharding-propagation/mesh.js';
import { axesSize, subAxes } from '../sharding-propagation/mesh.js';
import type { Cluster } from './cluster.js';
import { type DeviceProfile, type DeviceSpec, profileOf } from './device.js';

export type CollectiveKind = 'all-reduce' | 'all-gather' | 'reduce-scatter' | 'all-to-all' | 'permute' | 'broadcast';

/** Rounds in units of ⌈log2 n⌉, and the passes of (n−1)/n of the whole array over each link. */
const SHAPE: Readonly<Record<CollectiveKind, { readonly rounds: number; readonly passes: number }>> = {
  'all-reduce': { rounds: 2, passes: 2 },
  'all-gather': { rounds: 1, passes: 1 },
  'reduce-scatter': { rounds: 1, passes: 1 },
  'all-to-all': { rounds: 1, passes: 1 },
  permute: { rounds: 1, passes: 1 },
  broadcast: { rounds: 1, passes: 1 },
};

/** How a group lies over nodes: `inside` members share a node, on `across` nodes. */
export interface GroupPlace {
  readonly inside: number;
  readonly across: number;
}

/** Where the members of a group over `axes` are. Ranks are numbered consecutively in a node. */
export function placeGroup(mesh: Mesh, axes: readonly SubAxis[], perNode: number): GroupPlace {
  let stride = 1;
  let inside = 1;
  for (const sub of [...subAxes(mesh)].reverse()) {
    const reach = stride * sub.size;
    if (axes.includes(sub.name) && reach <= perNode && perNode % reach === 0) inside *= sub.size;
    stride = reach;
  }
  return { inside, across: axesSize(mesh, axes) / inside };
}

/**
 * Seconds of one collective.
 * @param bytes of the whole array for all-reduce, all-gather (result), reduce-scatter (operand); of one
 * rank's block for all-to-all, permute and broadcast
 */
export function collectiveSeconds(kind: CollectiveKind, bytes: number, place: GroupPlace, cluster: Cluster): number {
  const { device } = cluster;
  const profile = profileOf(device);
  if (place.inside * place.across === 1) return 0;
  const near = levelSeconds(kind, bytes, place.inside, linkInside(kind, device, profile));
  const far = levelSeconds(kind, bytes / place.inside, place.across, linkAcross(device));
  return profile.collectiveSeconds + near + far;
}

/** Bytes that one rank of a group of `ranks` receives; `bytes` as for `collectiveSeconds`. */
export function wireBytes(kind: CollectiveKind, bytes: number, ranks: number): number {
  if (ranks === 1) return 0;
  const blockwise = kind === 'permute' || kind === 'broadcast';
  return Math.round(SHAPE[kind].passes * (blockwise ? 1 : (ranks - 1) / ranks) * bytes);
}

export interface Link {
  readonly bandwidth: number;
  readonly latencySeconds: number;
}

function levelSeconds(kind: CollectiveKind, bytes: number, ranks: number, link: Link): number {
  if (ranks === 1) return 0;
  const { rounds, passes } = SHAPE[kind];
  const blockwise = kind === 'permute' || kind === 'broadcast';
  const share = blockwise ? 1 : (ranks - 1) / ranks;
  const hops = kind === 'permute' ? 1 : Math.ceil(Math.log2(ranks));
  return rounds * hops * link.latencySeconds + (passes * share * bytes) / link.bandwidth;
}

/** Measured bus bandwidth where the catalogue has one: of the collective itself, else of all-reduce. */
function linkInside(kind: CollectiveKind, device: DeviceSpec, profile: DeviceProfile): Link {
  const { scaleUp, measuredCollectives = {} } = device;
  const measured = measuredCollectives[MEASURED[kind]] ?? measuredCollectives[MEASURED['all-reduce']];
  const bandwidth = typeof measured === 'number' ? measured : scaleUp.bandwidth * profile.linkCeiling;
  return { bandwidth, latencySeconds: scaleUp.latencySeconds };
}

/** The best that any collective finds: for bounds. */
export function fastestLink({ device, perNode }: Cluster): Link {
  const profile = profileOf(device);
  const kinds = Object.keys(SHAPE) as CollectiveKind[];
  const links = perNode > 1 ? kinds.map((kind) => linkInside(kind, device, profile)) : [linkAcross(device)];
  const all = perNode > 1 ? [...links, linkAcross(device)] : links;
  return {
    bandwidth: Math.max(...all.map((link) => link.bandwidth)),
    latencySeconds: Math.min(...all.map((link) => link.latencySeconds)),
  };
}

/** Measured all-to-all between nodes reaches 0.96 of the cards' rate (H100, A100: 48 of 50, 24 of 25 GB/s). */
function linkAcross(device: DeviceSpec): Link {
  return { bandwidth: device.scaleOut.bandwidth * 0.96, latencySeconds: device.scaleOut.latencySeconds };
}

const MEASURED: Readonly<Record<CollectiveKind, string>> = {
  'all-reduce': 'allReduceBusbwIntra',
  'all-gather': 'allGatherBusbwIntra',
  'reduce-scatter': 'reduceScatterBusbwIntra',
  'all-to-all': 'allToAllBusbwIntra',
  permute: 'p2pMeasured',
  broadcast: 'allReduceBusbwIntra',
};
