/**
 * @file What the host's launches add to the kernels of a lowered graph: layer by layer and pass by pass, since one layer's host
 * does not run ahead of another's device for long. Updates are few kernels for all parameters.
 */
import { isOnceAStep } from '../ir/graph.js';
import { madeOnce } from '../ir/remembered.js';
import type { CommunicationNode, ShardedGraph, ShardedNode } from '../partition/sharded-graph.js';
import type { Cluster } from './cluster.js';
import { attentionLaunches } from './kernel-price.js';
import { together } from './phase.js';
import { priceNode } from './price.js';
import { STEP_CONSTANTS, USUAL_SOFTWARE } from './step/constants.js';

/**
 * Nanoseconds that one run of these nodes takes longer than its kernels and collectives.
 * @param isHidden collectives that compute hides, for which nothing waits
 */
export function launchNanoseconds(
  nodes: readonly ShardedNode[],
  graph: ShardedGraph,
  cluster: Cluster,
  isHidden: (node: CommunicationNode) => boolean,
): number {
  if (cluster.local) return 0;
  const groups = new Map<string, { busy: number; host: number }>();
  for (const node of nodes) {
    if (isOnceAStep(node.phase) || node.kind === 'move' || (node.kind === 'communicate' && isHidden(node))) continue;
    const pass = node.phase === 'forward' ? 'forward' : 'backward';
    const key = `${pass} ${node.layer}`;
    const group = madeOnce(groups, key, () => ({ busy: 0, host: 0 }));
    group.busy += priceNode(node, graph, cluster);
    group.host += submitSeconds(node, cluster) * 1e9;
  }
  return [...groups.values()].reduce((sum, { busy, host }) => sum + together(host, busy) - busy, 0);
}

function submitSeconds(node: Exclude<ShardedNode, { kind: 'move' }>, { device }: Cluster): number {
  if (node.kind === 'communicate') return STEP_CONSTANTS.exchangeSeconds;
  const { fused } = node;
  if (fused ? !fused.launches : node.bytes === 0 && node.flops === 0) return 0;
  const kernels = fused?.attention
    ? attentionLaunches({ attention: device.attention ?? 'fused' }, fused.attention.backward)
    : 1;
  return kernels * STEP_CONSTANTS.software[USUAL_SOFTWARE].hostSeconds;
}
