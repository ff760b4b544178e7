/**
 * @file Clusters whose nodes differ. A step in which all devices do the same waits for the slowest; stages of a pipeline
 * may each have nodes of one kind, and layers as many as those can take.
 */
import { madeOnce } from '../ir/remembered.js';
import type { Cluster } from './cluster.js';
import type { DeviceSpec, HostSpec, PeakKind } from './device.js';

/** The cluster of a stage that runs on nodes of some of its kinds, by their numbers: as fast as the slowest of them. */
function onKinds(cluster: Cluster, kinds: readonly number[]): Cluster {
  const devices = kinds.flatMap((kind) => cluster.kinds?.[kind]?.device ?? []);
  return { ...cluster, device: devices.length > 0 ? slowestOf(devices) : cluster.device };
}

/**
 * The cluster of each stage of a pipeline: the nodes that the stage runs on. Stages on nodes of the same kinds have the same
 * record in every call, so that parts can be priced once for all of them.
 * @param stride ranks from one stage to the next: of a stage, where stages are the outermost axis
 */
export function clustersOfStages(cluster: Cluster, stages: number, stride: number): readonly Cluster[] {
  if (!cluster.kinds) return Array.from({ length: stages }, () => cluster);
  const known = madeOnce(KNOWN, cluster, () => ({ stages: new Map(), kinds: new Map() }));
  const key = `${stages} ${stride}`;
  return madeOnce(known.stages, key, () =>
    stageKinds(cluster, stages, stride).map((kinds) =>
      madeOnce(known.kinds, kinds.join(' '), () => onKinds(cluster, kinds)),
    ),
  );
}

/** Records made from a cluster: its stages by their number and stride, its parts by their kinds. */
const KNOWN = new WeakMap<
  Cluster,
  { readonly stages: Map<string, readonly Cluster[]>; readonly kinds: Map<string, Cluster> }
>();

/** The kinds of the nodes that each stage runs on. */
function stageKinds(
  { kinds = [], nodes, perNode }: Cluster,
  stages: number,
  stride: number,
): readonly (readonly number[])[] {
  const kindOf = kinds.flatMap((kind, index) => Array.from({ length: kind.nodes }, () => index));
  const found = Array.from({ length: stages }, () => new Set<number>());
  for (let rank = 0; rank < nodes * perNode; ) {
    const node = Math.floor(rank / perNode);
    found[Math.floor(rank / stride) % stages]?.add(kindOf[node] ?? 0);
    rank = Math.min((node + 1) * perNode, (Math.floor(rank / stride) + 1) * stride);
  }
  return found.map((own) => [...own].sort((a, b) => a - b));
}

/** The same device at another speed of compute and memory; its links stay. */
export function slowed(device: DeviceSpec, speed: number): DeviceSpec {
  const { measuredMatmulFlops } = device;
  return {
    ...device,
    peakFlops: mapValues(device.peakFlops, (flops) => flops * speed),
    ...(measuredMatmulFlops ? { measuredMatmulFlops: mapValues(measuredMatmulFlops, (flops) => flops * speed) } : {}),
    memoryBandwidth: device.memoryBandwidth * speed,
  };
}

/**
 * The device that a step waits for where all devices do the same: the least of every figure. Formats that some lack are left out.
 */
export function slowestOf(devices: readonly DeviceSpec[]): DeviceSpec {
  const [first, ...others] = devices;
  if (!first) throw new Error('no devices');
  return others.reduce((slowest, device) => {
    if (device === slowest) return slowest;
    const { scaleUp, scaleOut } = slowest;
    const { host: _, ...rest } = rateOf(device) < rateOf(slowest) ? device : slowest;
    return {
      ...rest,
      ...(slowest.host && device.host ? { host: leastHost(slowest.host, device.host) } : {}),
      peakFlops: leastOf(slowest.peakFlops, device.peakFlops),
      measuredMatmulFlops: leastOf(slowest.measuredMatmulFlops ?? {}, device.measuredMatmulFlops ?? {}),
      memoryBytes: Math.min(slowest.memoryBytes, device.memoryBytes),
      memoryBandwidth: Math.min(slowest.memoryBandwidth, device.memoryBandwidth),
      scaleUp: scaleUp.bandwidth <= device.scaleUp.bandwidth ? scaleUp : device.scaleUp,
      scaleOut: scaleOut.bandwidth <= device.scaleOut.bandwidth ? scaleOut : device.scaleOut,
    };
  }, first);
}

/** FLOP per second in the format that models are trained in. */
function rateOf({ peakFlops }: DeviceSpec): number {
  return peakFlops.bf16 ?? peakFlops.fp16 ?? peakFlops.fp32 ?? Math.max(...Object.values(peakFlops));
}

function leastHost(a: HostSpec, b: HostSpec): HostSpec {
  return {
    linkBandwidth: Math.min(a.linkBandwidth, b.linkBandwidth),
    memoryBytes: Math.min(a.memoryBytes, b.memoryBytes),
    memoryBandwidth: Math.min(a.memoryBandwidth, b.memoryBandwidth),
  };
}

function leastOf(
  a: Readonly<Partial<Record<PeakKind, number>>>,
  b: Readonly<Partial<Record<PeakKind, number>>>,
): Readonly<Partial<Record<PeakKind, number>>> {
  const shared = Object.entries(a).flatMap(([kind, flops]) => {
    const other = b[kind as PeakKind];
    return other === undefined ? [] : [[kind, Math.min(flops, other)] as const];
  });
  return Object.fromEntries(shared);
}

function mapValues<Key extends string>(
  values: Readonly<Partial<Record<Key, number>>>,
  change: (value: number) => number,
): Readonly<Partial<Record<Key, number>>> {
  return Object.fromEntries(
    Object.entries<number | undefined>(values).map(([key, value]) => [key, change(value ?? 0)]),
  ) as Partial<Record<Key, number>>;
}
