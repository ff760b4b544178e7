/**
 * @file A cluster whose links are faster: it shows the gain of more bandwidth.
 */
import type { Cluster } from './cluster.js';
import type { DeviceSpec } from './device.js';
import { withDevices } from './faster-devices.js';
import type { ClusterLevel } from './levels.js';

/** The cluster with links of a kind `factor` times as fast: inside nodes (the innermost level), or between them (all others). */
export function fasterLinks(cluster: Cluster, which: 'inside' | 'between', factor: number): Cluster {
  const deviceOf = (device: DeviceSpec): DeviceSpec =>
    which === 'inside'
      ? {
          ...device,
          scaleUp: { ...device.scaleUp, bandwidth: factor * device.scaleUp.bandwidth },
          ...(device.measuredCollectives
            ? { measuredCollectives: scaledRates(device.measuredCollectives, factor) }
            : {}),
        }
      : { ...device, scaleOut: { ...device.scaleOut, bandwidth: factor * device.scaleOut.bandwidth } };
  const levelOf = (level: ClusterLevel, index: number): ClusterLevel =>
    (index === 0) === (which === 'inside') ? scaledLevel(level, factor) : level;
  return { ...withDevices(cluster, deviceOf), levels: cluster.levels.map(levelOf) };
}

function scaledLevel(level: ClusterLevel, factor: number): ClusterLevel {
  return {
    ...level,
    bandwidth: factor * level.bandwidth,
    busBandwidth: Object.fromEntries(
      Object.entries(level.busBandwidth).map(([kind, rate]) => [kind, factor * (rate ?? 0)]),
    ),
    ...(level.reducingBandwidth === undefined ? {} : { reducingBandwidth: factor * level.reducingBandwidth }),
  };
}

/** Rates inside a node; those between nodes and remarks stay. */
function scaledRates(
  measured: NonNullable<DeviceSpec['measuredCollectives']>,
  factor: number,
): NonNullable<DeviceSpec['measuredCollectives']> {
  return Object.fromEntries(
    Object.entries(measured).map(([name, rate]) => [
      name,
      typeof rate === 'number' && name.endsWith('Intra') ? factor * rate : rate,
    ]),
  );
}
