/**
 * @file A cluster as a description for a file: its own description, or that of `NxM:ID`.
 */
import type { Cluster } from './cluster.js';
import type { ClusterDescription } from './cluster-schema.js';

/** The description that makes the same cluster. */
export function descriptionOf({ description, nodes, perNode, device }: Cluster): ClusterDescription {
  if (description) return description;
  const node = { name: 'node', size: perNode };
  return { version: 1, device: device.id, levels: nodes === 1 ? [node] : [node, { name: 'network', size: nodes }] };
}

/**
 * A cluster of so many devices of a cluster, which fill its nodes in order, with their links in it; null where they are not
 * whole nodes (or groups of nodes), or more than there are.
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
