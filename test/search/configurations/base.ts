/**
 * @file Fixed inputs for tests of the search over configurations: options that are not searched, and clusters whose nodes differ.
 */
import type { Cluster } from '../../../src/cost-model/cluster.js';
import { clusterOfDescription } from '../../../src/cost-model/cluster-file.js';
import type { LayerFactors } from '../../../src/cost-model/measured-layers/layer-factors.js';
import { layerShape } from '../../../src/cost-model/measured-layers/layer-shape.js';
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

/** Factors between a third and three times that look drawn: those of layers that are alike in their work are one. */
export function drawnFactors(seed: number): LayerFactors {
  return {
    factorOf: (part, configuration) => {
      const { tokens, products, scores, exchanged, tp, sp, ep, tpSequence } = layerShape(part, configuration);
      const sum = [tokens, products, scores, exchanged, tp, sp, ep, tpSequence ? 1 : 0].reduce(
        (total, value, index) => total + (index + seed) * Math.log2(1 + value),
        0,
      );
      return 3 ** Math.sin(sum);
    },
  };
}

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

/** Searches that are compared by speed. */
export const FASTEST = { prefer: 'fastest', headroom: 0 } as const;
