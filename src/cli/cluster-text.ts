/**
 * @file A cluster in a few words: `16 × a100-sxm-80`, `56 × h100-sxm-80 and 8 × v100-sxm2-32`; its kinds of nodes for programs.
 */
import type { Simulation } from '../api/index.js';
import { countText } from './quantity.js';

/** How many devices of which kind; nodes of one device at several speeds are reported as unequal. */
export function devicesText({ nodes, perNode, device, kinds = [{ nodes, device }] }: Simulation['cluster']): string {
  const counts = new Map<string, number>();
  for (const { nodes: count, device: own } of kinds) counts.set(own.id, (counts.get(own.id) ?? 0) + count * perNode);
  const all = [...counts].map(([id, count]) => `${count} × ${id}`).join(' and ');
  return kinds.length > counts.size ? `${all}, in unequal nodes` : all;
}

/**
 * `2 nodes of 8 × a100-sxm-80`; where nodes differ, `4 nodes of 4, 8 × h100-sxm-80 and 8 × v100-sxm2-32`, or by speed alone
 * `2 unequal nodes of 8 × a100-sxm-80`.
 */
export function nodesText(cluster: Simulation['cluster']): string {
  const { nodes, perNode, device, kinds = [] } = cluster;
  if (new Set(kinds.map((kind) => kind.device.id)).size > 1)
    return `${countText(nodes, 'node')} of ${perNode}, ${devicesText(cluster)}`;
  return `${countText(nodes, kinds.length > 1 ? 'unequal node' : 'node')} of ${perNode} × ${device.id}`;
}

/** The kinds of nodes in their order, by device; nothing where all nodes are alike, as `device` beside it names them. */
export function kindsJson({ kinds }: Pick<Simulation['cluster'], 'kinds'>): {
  readonly kinds?: readonly { readonly nodes: number; readonly device: string }[];
} {
  return kinds ? { kinds: kinds.map(({ nodes, device }) => ({ nodes, device: device.id })) } : {};
}
