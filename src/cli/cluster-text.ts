/**
 * @file A cluster in a few words: `16 × a100-sxm-80`, `56 × h100-sxm-80 and 8 × v100-sxm2-32`.
 */
import type { Simulation } from '../api/index.js';

/** How many devices of which kind; nodes of one device at several speeds are reported as unequal. */
export function devicesText({ nodes, perNode, device, kinds = [{ nodes, device }] }: Simulation['cluster']): string {
  const counts = new Map<string, number>();
  for (const { nodes: count, device: own } of kinds) counts.set(own.id, (counts.get(own.id) ?? 0) + count * perNode);
  const all = [...counts].map(([id, count]) => `${count} × ${id}`).join(' and ');
  return kinds.length > counts.size ? `${all}, in unequal nodes` : all;
}
