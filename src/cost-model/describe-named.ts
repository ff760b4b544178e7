/**
 * @file A cluster in words that a file can keep: its own description, or that of `NxM:ID`.
 */
import type { Cluster } from './cluster.js';
import type { ClusterDescription } from './cluster-schema.js';

/** The description of which a file would make the same cluster. */
export function descriptionOf({ description, nodes, perNode, device }: Cluster): ClusterDescription {
  if (description) return description;
  const node = { name: 'node', size: perNode };
  return { version: 1, device: device.id, levels: nodes === 1 ? [node] : [node, { name: 'network', size: nodes }] };
}

/**
 * As many devices of a cluster, filling its nodes in order, with the links that they have in it; null where they are no whole
 * nodes (or groups of nodes), or more than there are.
 */
export function firstDevices(cluster: Cluster, devices: number): Cluster | null {
  let left = devices;
  const levels = cluster.levels.map((level) => {
    const size = Math.min(level.size, left);
    left /= size;
    return { ...level, size };
  });
  if (left !== 1 || levels.some(({ size }) => !Number.isInteger(size))) return null;
  const { description: _, ...rest } = cluster;
  const perNode = Math.min(cluster.perNode, devices);
  return { ...rest, nodes: devices / perNode, perNode, levels };
}
