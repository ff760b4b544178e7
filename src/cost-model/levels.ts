/**
 * @file The links of a cluster, level by level: devices of a node, nodes of a rack, racks. Each level joins `size` members
 * of the one inside it, in a topology that decides how many rounds a collective takes and how many links it can use.
 */
import { type DeviceSpec, profileOf } from './device.js';

export const COLLECTIVE_KINDS = [
  'all-reduce',
  'all-gather',
  'reduce-scatter',
  'all-to-all',
  'permute',
  'reduce',
  'broadcast',
] as const;

export type CollectiveKind = (typeof COLLECTIVE_KINDS)[number];

/** `mesh`: a link between every two members; `torus`: a grid whose ends are joined. */
export const TOPOLOGIES = ['switch', 'ring', 'mesh', 'torus'] as const;

export type Topology = (typeof TOPOLOGIES)[number];

export interface ClusterLevel {
  readonly name: string;
  /** Members: devices at the innermost level, groups of the level inside elsewhere. */
  readonly size: number;
  readonly topology: Topology;
  /** Dimensions of a torus. */
  readonly dimensions: number;
  /**
   * Bytes per second and direction that collectives of one device reach: in all over a switch or ring, to one neighbour in
   * a mesh or torus. Where devices share cards, a device's share.
   */
  readonly bandwidth: number;
  /** Bus bandwidth by kind over a switch or ring, where measured; it takes precedence over `bandwidth`. */
  readonly busBandwidth: Readonly<Partial<Record<CollectiveKind, number>>>;
  /** Bytes of an array per second that an all-reduce reaches whose sums the switch makes (NVLS, SHARP). */
  readonly reducingBandwidth?: number;
  /** Seconds of each round of a collective. */
  readonly latencySeconds: number;
  readonly fill: Fill;
  /** Whether data passes through members on its way, as in a tree of nodes; behind one switch it does not. */
  readonly relayed: boolean;
}

/**
 * Bandwidth that small messages lose: busbw(S) = Bmax / (1 + (S_half / S)^power), where S is the bytes on the wire and
 * S_half = Bmax · seconds · steps, `seconds` being how long links take to fill for each step that data passes.
 */
export interface Fill {
  readonly seconds: number;
  readonly power: number;
}

/**
 * Fitted, with the launch and the rounds' latencies, to NCCL's published all-reduces over 2 to 8,192 A100, H100, H200 and
 * B200 (`npm run bench:collective-fit`): inside a node, and between nodes for each doubling of their number.
 */
export const FITTED_FILL = {
  node: { seconds: 32e-6, power: 0.7 },
  network: { seconds: 81e-6, power: 0.7 },
} as const satisfies Readonly<Record<string, Fill>>;

const NO_FILL: Fill = { seconds: 0, power: 1 };

/** Measured: between nodes collectives reach 0.96 of the cards' rate (48 of 50, 24 of 25 GB/s, on one card or eight). */
export const NETWORK_SHARE = 0.96;

/** The levels of `nodes` × `perNode` catalogue devices: the links in a node, the network between nodes. */
export function deviceLevels(device: DeviceSpec, nodes: number, perNode: number): readonly ClusterLevel[] {
  const { scaleUp, scaleOut } = device;
  const { fillsLinks } = profileOf(device);
  const node: ClusterLevel = {
    ...{ name: 'node', size: perNode, topology: scaleUp.links ?? 'switch', dimensions: scaleUp.dimensions ?? 1 },
    ...ratesInside(device),
    latencySeconds: scaleUp.latencySeconds,
    fill: fillsLinks ? FITTED_FILL.node : NO_FILL,
    relayed: false,
  };
  if (nodes === 1) return [node];
  const network: ClusterLevel = {
    name: 'network',
    size: nodes,
    topology: 'switch',
    dimensions: 1,
    bandwidth: scaleOut.bandwidth * NETWORK_SHARE,
    busBandwidth: {},
    latencySeconds: scaleOut.latencySeconds,
    fill: fillsLinks ? FITTED_FILL.network : NO_FILL,
    relayed: true,
  };
  return perNode === 1 ? [network] : [node, network];
}

/** Measured bus bandwidths where the catalogue has them, else the share of the links' rate that collectives reach. */
function ratesInside(device: DeviceSpec): Pick<ClusterLevel, 'bandwidth' | 'busBandwidth' | 'reducingBandwidth'> {
  const { scaleUp, measuredCollectives = {} } = device;
  const figure = (name: string): number | undefined => {
    const value = measuredCollectives[name];
    return typeof value === 'number' ? value : undefined;
  };
  const allReduce = figure('allReduceBusbwIntra');
  const expected = scaleUp.bandwidth * profileOf(device).linkCeiling;
  // Over all members, n − 1 links each.
  if (scaleUp.links === 'mesh')
    return { bandwidth: allReduce === undefined ? expected : allReduce / (scaleUp.domainSize - 1), busBandwidth: {} };
  const kinds = Object.entries(MEASURED).flatMap(([kind, name]) => {
    const measured = figure(name);
    return measured === undefined ? [] : [[kind, measured] as const];
  });
  const reduced = figure('allReduceBusbwIntraNvls');
  return {
    bandwidth: allReduce ?? expected,
    busBandwidth: Object.fromEntries(kinds),
    ...(reduced ? { reducingBandwidth: reduced / passesOf('all-reduce', scaleUp.domainSize) } : {}),
  };
}

/** The catalogue's figures, over a whole node. */
const MEASURED: Readonly<Partial<Record<CollectiveKind, string>>> = {
  'all-gather': 'allGatherBusbwIntra',
  'reduce-scatter': 'reduceScatterBusbwIntra',
  'all-to-all': 'allToAllBusbwIntra',
  permute: 'p2pMeasured',
};

/** Kinds in which the first rank sends its whole operand to each other rank, or receives theirs. */
export const STARS: ReadonlySet<CollectiveKind> = new Set<CollectiveKind>(['reduce', 'broadcast']);

/** Bytes on the wire per byte of the array, as NCCL counts them: each rank receives so many; in a star, the first rank does. */
export function passesOf(kind: CollectiveKind, ranks: number): number {
  if (ranks === 1) return 0;
  if (STARS.has(kind)) return ranks - 1;
  if (kind === 'permute') return 1;
  return ((kind === 'all-reduce' ? 2 : 1) * (ranks - 1)) / ranks;
}

/** Rounds that each pass of a collective over `members` of a level takes. */
export function roundsOf(level: ClusterLevel, members: number): number {
  const doublings = Math.ceil(Math.log2(members));
  if (level.topology === 'mesh') return 1;
  if (level.topology === 'ring') return members - 1;
  if (level.topology === 'torus') {
    const { dimensions, side } = sidesOf(level, members);
    return Math.max(doublings, dimensions * Math.floor(side / 2));
  }
  return doublings;
}

/** Steps that data passes on its way through `members` of a level. */
export function stepsOf(level: ClusterLevel, members: number): number {
  return level.relayed ? Math.ceil(Math.log2(members)) : 1;
}

/**
 * Bytes per second that a device receives in a collective of large messages over `members` of a level.
 *
 *     switch   all links; where the switch makes an all-reduce's sums each byte comes once, not 2 (n − 1)/n times
 *     ring     all links; to one neighbour half of them, and in an all-to-all data passes a quarter of the ring
 *     mesh     a link to each other member
 *     torus    two links in each dimension that the members fill; in an all-to-all data passes a quarter of each side
 */
export function busBandwidth(kind: CollectiveKind, level: ClusterLevel, members: number): number {
  const { topology, bandwidth, reducingBandwidth = 0 } = level;
  if (topology === 'mesh') return bandwidth * (kind === 'permute' ? 1 : members - 1);
  if (topology === 'torus') {
    const { dimensions, side } = sidesOf(level, members);
    if (kind === 'permute') return bandwidth;
    return (2 * dimensions * bandwidth) / (kind === 'all-to-all' ? Math.max(1, (dimensions * side) / 4) : 1);
  }
  const measured = level.busBandwidth[kind];
  if (measured !== undefined) return measured;
  if (kind === 'all-reduce') return Math.max(bandwidth, passesOf(kind, members) * reducingBandwidth);
  if (topology === 'switch') return bandwidth;
  return bandwidth / (kind === 'permute' ? 2 : kind === 'all-to-all' ? Math.max(1, members / 4) : 1);
}

/** The dimensions of a torus that so many members fill, side by side, and their length in each. */
function sidesOf(
  { size, dimensions }: ClusterLevel,
  members: number,
): { readonly dimensions: number; readonly side: number } {
  const whole = Math.max(2, size ** (1 / dimensions));
  const filled = Math.min(dimensions, Math.max(1, Math.ceil(Math.log(members) / Math.log(whole) - 1e-9)));
  return { dimensions: filled, side: members ** (1 / filled) };
}
