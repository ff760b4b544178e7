/**
 * @file Properties of every step, drawn at random: its parts add up to it, faster links and memory never make it slower, nor
 * longer rounds faster; and a stage's bytes add up to what it needs.
 */
import test from 'ava';
import fc from 'fast-check';
import { generatedModel } from '../../../models/families.js';
import { modelWork } from '../../../src/api/planning/step-works.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import type { ClusterLevel } from '../../../src/cost-model/levels.js';
import type { StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { stageMemory } from '../../../src/cost-model/step/step-memory.js';
import { priceStep } from '../../../src/cost-model/step/step-price.js';
import { trained } from './trained.js';

const CLUSTER = parseCluster('4x8:h100-sxm-80', undefined);
const DEVICES = 32;
const { language } = generatedModel('moe:layers=4,hidden=256,heads=8,kv_heads=4,ffn=512,experts=8,seq=256,vocab=1024');
if (!language) throw new Error('a language model');
const sizes = { ...language, batch: 1 };
const works = [1, 2, 4].map(async (tp) => [tp, await modelWork(sizes, tp, CLUSTER)] as const);
const WORKS = new Map(await Promise.all(works));

/** Faster or slower links of every level. */
const linked = (change: (level: ClusterLevel) => Partial<ClusterLevel>) => ({
  ...CLUSTER,
  levels: CLUSTER.levels.map((level) => ({ ...level, ...change(level) })),
});

const FAST = linked(({ bandwidth, busBandwidth, reducingBandwidth = 0 }) => ({
  bandwidth: 2 * bandwidth,
  busBandwidth: Object.fromEntries(Object.entries(busBandwidth).map(([kind, rate]) => [kind, 2 * rate])),
  reducingBandwidth: 2 * reducingBandwidth,
}));
const FAR = linked(({ latencySeconds }) => ({ latencySeconds: 3 * latencySeconds }));
const READING = { ...CLUSTER, device: { ...CLUSTER.device, memoryBandwidth: 2 * CLUSTER.device.memoryBandwidth } };

const CONFIGURATION = fc
  .record({
    tp: fc.constantFrom(1, 2, 4),
    pp: fc.constantFrom(1, 2, 4),
    sp: fc.constantFrom(1, 2),
    ep: fc.constantFrom(1, 2, 8),
    microBatches: fc.constantFrom(4, 8),
    zero: fc.constantFrom(0, 1, 2, 3),
    recompute: fc.constantFrom('none', 'selective', 'operators', 'full'),
    // Not zero-bubble: where launches are what takes time, weight gradients that get faster leave less to fill bubbles with.
    schedule: fc.constantFrom('naive', 'f-then-b', '1f1b'),
    software: fc.constantFrom('megatron', 'megatron-core', 'eager', 'compiled'),
    attention: fc.constantFrom('fused', 'portable', 'early', 'parts'),
    tensor: fc.boolean(),
    data: fc.boolean(),
  } as const)
  .map(({ tp, pp, sp, ep, microBatches, tensor, data, ...choice }): StepConfiguration => {
    const dp = DEVICES / (tp * pp * sp);
    return {
      ...trained({ tp, pp, sp, dp, ep: (dp * sp) % ep === 0 ? ep : 1 }),
      ...choice,
      microBatch: 1,
      globalBatch: dp * microBatches,
      tpSequence: tp > 1,
      overlap: { tensor, data, pipeline: data, experts: tensor },
    };
  });

test('parts add up; no step is slower over faster links or memory, nor faster over longer rounds', (t) => {
  fc.assert(
    fc.property(CONFIGURATION, (configuration) => {
      const work = WORKS.get(configuration.degrees.tp);
      if (!work) throw new Error('no work');
      const on = (cluster: typeof CLUSTER) => priceStep(work, configuration, cluster, STEP_CONSTANTS);
      const { stepSeconds, parts } = on(CLUSTER);
      const values = Object.values(parts);
      const near = 1e-9 * stepSeconds;
      const stages = stageMemory(work, configuration);
      return (
        values.every((seconds) => seconds >= -near) &&
        Math.abs(values.reduce((sum, seconds) => sum + seconds, 0) - stepSeconds) <= near &&
        on(FAST).stepSeconds <= stepSeconds + near &&
        on(READING).stepSeconds <= stepSeconds + near &&
        on(FAR).stepSeconds >= stepSeconds - near &&
        stages.every(({ parameters, gradients, optimizer, activations, temporaries, overhead, total }) => {
          const sum = parameters + gradients + optimizer + activations + temporaries + overhead;
          return Math.abs(sum - total) <= 1e-9 * total;
        })
      );
    }),
    { numRuns: 400, seed: 6 },
  );
  t.pass();
});
