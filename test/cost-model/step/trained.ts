/**
 * @file A plain configuration of training that tests vary.
 */
import type { Degrees, StepConfiguration } from '../../../src/cost-model/step/configuration.js';

export function trained(degrees: Partial<Degrees>): StepConfiguration {
  const all = { tp: 1, pp: 1, sp: 1, dp: 1, ep: 1, ...degrees };
  return {
    degrees: all,
    virtualStages: 1,
    microBatch: 1,
    globalBatch: all.dp * all.pp,
    tpSequence: false,
    zero: 0,
    recompute: 'none',
    attention: 'fused',
    precision: 'bf16',
    software: 'megatron-core',
    overlap: { tensor: false, data: false, pipeline: false, experts: false },
    fusedNorms: true,
    loss: 'parallel',
    scatteredSends: false,
    gradientBytes: 2,
  };
}
