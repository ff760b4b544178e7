/**
 * @file What tests of the search over configurations take as given: what is not searched, and clusters whose nodes differ.
 */
import type { Cluster } from '../../../src/cost-model/cluster.js';
import { clusterOfDescription } from '../../../src/cost-model/cluster-file.js';
import type { SpaceOptions } from '../../../src/search/configurations/space.js';

export const BASE: SpaceOptions['base'] = {
  globalBatch: 0,
  attention: 'fused',
  precision: 'bf16',
  software: 'megatron-core',
  overlap: { tensor: false, data: true, pipeline: true, experts: false },
  fusedNorms: true,
  loss: 'parallel',
  scatteredSends: true,
  gradientBytes: 2,
};

interface Nodes {
  readonly count: number;
  readonly device?: string;
  readonly speed?: number;
}

/** A100s in nodes of so many, some of which are other devices, or slower. */
export function unlikeNodes(size: number, nodes: readonly Nodes[]): Cluster {
  return clusterOfDescription({
    version: 1,
    device: 'a100-sxm-80',
    levels: [
      { name: 'node', size },
      { name: 'network', size: nodes.reduce((sum, { count }) => sum + count, 0), bandwidth: '25GB/s', cards: 1 },
    ],
    nodes,
  });
}
