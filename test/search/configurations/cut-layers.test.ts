/**
 * @file Uneven stages and recomputation layer by layer: their gain, and that no layer more than needed recomputes.
 */
import test from 'ava';
import { prepareStep, searchStep } from '../../../src/api/planning/search-step.js';
import type { StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { stageMemory } from '../../../src/cost-model/step/step-memory.js';
import { fewestRecomputed } from '../../../src/search/configurations/fewest-recomputed.js';
import { pricingOf } from '../../../src/search/configurations/step-pricing.js';
import { slowTests } from '../../selection.js';
import { FASTEST, unlikeNodes } from './base.js';

const slow = slowTests(test);

const LOSS = { kind: 'cross_entropy' } as const;

slow('a head as heavy as all layers gets a stage of its own, and the others share the layers', async (t) => {
  const { simulation, best } = await searchStep({
    ...FASTEST,
    generate: 'gpt:layers=12,hidden=512,heads=8,seq=512,vocab=128000',
    cluster: '1x4:a100-sxm-80',
    globalBatch: 32,
    pp: 4,
    schedule: '1f1b',
    recompute: 'none',
    loss: LOSS,
  });
  t.deepEqual(simulation.configuration.stageLayers, [4, 4, 4, 0]);
  const { stageLayers: _, ...even } = simulation.configuration;
  const prepared = await prepareStep({
    generate: 'gpt:layers=12,hidden=512,heads=8,seq=512,vocab=128000',
    cluster: '1x4:a100-sxm-80',
    globalBatch: 32,
    loss: LOSS,
  });
  const evenly = pricingOf(prepared.cluster, prepared.works).seconds(even);
  t.true((best[0]?.seconds ?? 0) < 0.92 * evenly, `${best[0]?.seconds} against ${evenly}`);
});

test('of each stage as few layers recompute as memory needs', async (t) => {
  const { works, space } = await prepareStep({
    generate: 'gpt:layers=16,hidden=4096,heads=32,seq=2048,vocab=51200',
    cluster: '2x8:a100-sxm-80',
    globalBatch: 64,
    pp: 4,
    tp: 2,
    microBatch: 4,
    loss: LOSS,
  });
  const configuration: StepConfiguration = {
    ...space.base,
    degrees: { pp: 4, tp: 2, dp: 2, sp: 1, ep: 1 },
    schedule: '1f1b',
    virtualStages: 1,
    microBatch: 4,
    tpSequence: true,
    zero: 1,
    recompute: 'full',
  };
  const work = works(2, 4);
  const totals = (recomputedLayers: readonly number[]) =>
    stageMemory(work, { ...configuration, recomputedLayers }).map(({ total }) => total);
  const [none, all] = [Math.max(...totals([0, 0, 0, 0])), Math.max(...totals([4, 4, 4, 4]))];
  for (const share of [0.2, 0.5, 0.8]) {
    const limit = all + share * (none - all);
    const { recomputedLayers = [4, 4, 4, 4] } = fewestRecomputed(work, configuration, limit);
    t.true(Math.max(...totals(recomputedLayers)) <= limit);
    recomputedLayers.forEach((count, stage) => {
      if (count === 0) return;
      const fewer = recomputedLayers.map((own, other) => (other === stage ? count - 1 : own));
      t.true((totals(fewer)[stage] ?? 0) > limit, `stage ${stage} needs ${count}`);
    });
  }
  t.is(fewestRecomputed(work, configuration, all - 1e9), configuration, 'does not fit at all');
  t.is(fewestRecomputed(work, configuration, none).recompute, 'none');
  t.is(fewestRecomputed(work, { ...configuration, recompute: 'none' }, all).recomputedLayers, undefined);
});

test('cuts fit the memory that they are given', async (t) => {
  const { works, space, cluster } = await prepareStep({
    generate: 'gpt:layers=16,hidden=2048,heads=16,seq=1024,vocab=51200',
    cluster: '1x8:a100-sxm-80',
    globalBatch: 64,
    pp: 4,
    tp: 2,
    microBatch: 2,
    loss: LOSS,
  });
  const configuration: StepConfiguration = {
    ...space.base,
    degrees: { pp: 4, tp: 2, dp: 1, sp: 1, ep: 1 },
    schedule: '1f1b',
    virtualStages: 1,
    microBatch: 2,
    tpSequence: true,
    zero: 0,
    recompute: 'full',
  };
  const work = works(2, 2);
  for (const limitBytes of [9e9, 11e9, 14e9, null]) {
    const cuts = pricingOf(cluster, works).cuts(configuration, limitBytes);
    for (const one of cuts) {
      const counts = one.stageLayers ?? [];
      t.is(
        counts.reduce((sum, count) => sum + count, 0),
        16,
      );
      const most = Math.max(...stageMemory(work, one).map(({ total }) => total));
      if (limitBytes !== null) t.true(most <= limitBytes, `${most} of ${limitBytes}`);
    }
    t.true(limitBytes !== null || cuts.length > 0);
  }
});

slow(
  "halving one node's speed moves layers away from its stage, and what is left costs less than even stages",
  async (t) => {
    const clusterWith = (speed: number) => unlikeNodes(4, [{ count: 1 }, { count: 1, speed }]);
    const options = {
      generate: 'gpt:layers=24,hidden=2048,heads=16,seq=1024,vocab=1024',
      globalBatch: 64,
      pp: 2,
      microBatch: 4,
      schedule: '1f1b',
      recompute: 'none',
      loss: LOSS,
    } as const;
    const layersOn = async (speed: number) => {
      const { simulation } = await searchStep({ ...options, ...FASTEST, on: clusterWith(speed) });
      return simulation;
    };
    const [alike, halved] = [await layersOn(1), await layersOn(0.5)];
    const [fast = 0, slow = 0] = halved.configuration.stageLayers ?? [];
    t.is(fast + slow, 24);
    t.true(fast >= 15 && slow <= 9, `${fast} and ${slow}`);
    t.is(alike.configuration.stageLayers?.[0] ?? 12, 12);
    const { stageLayers: _, ...even } = halved.configuration;
    const { cluster, works } = await prepareStep({ ...options, on: clusterWith(0.5) });
    t.true(halved.stepSeconds < 0.85 * pricingOf(cluster, works).seconds(even));
    t.true(halved.stepSeconds > alike.stepSeconds);
  },
);
