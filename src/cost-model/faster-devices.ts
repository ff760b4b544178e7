/**
 * @file A cluster whose devices compute faster, or have more or faster memory: it shows the gain of other devices.
 */
import type { Cluster } from './cluster.js';
import type { DeviceSpec } from './device.js';

/** The rate that is multiplied: arithmetic of every format, or the rate of memory. */
export type RaisedRate = 'compute' | 'memory';

/** The cluster with one rate of its devices `factor` times as high; links stay. */
export function fasterDevices(cluster: Cluster, which: RaisedRate, factor: number): Cluster {
  return withDevices(cluster, (device) =>
    which === 'memory'
      ? { ...device, memoryBandwidth: factor * device.memoryBandwidth }
      : {
          ...device,
          peakFlops: scaled(device.peakFlops, factor),
          ...(device.measuredMatmulFlops ? { measuredMatmulFlops: scaled(device.measuredMatmulFlops, factor) } : {}),
        },
  );
}

/** The cluster with so many bytes on each device. */
export function withMemory(cluster: Cluster, bytes: (of: number) => number): Cluster {
  return withDevices(cluster, (device) => ({ ...device, memoryBytes: bytes(device.memoryBytes) }));
}

/** The cluster with all of its devices changed. */
export function withDevices(cluster: Cluster, change: (device: DeviceSpec) => DeviceSpec): Cluster {
  return {
    ...cluster,
    device: change(cluster.device),
    ...(cluster.kinds ? { kinds: cluster.kinds.map((kind) => ({ ...kind, device: change(kind.device) })) } : {}),
  };
}

function scaled(rates: DeviceSpec['peakFlops'], factor: number): DeviceSpec['peakFlops'] {
  return Object.fromEntries(Object.entries(rates).map(([format, rate]) => [format, factor * rate]));
}
