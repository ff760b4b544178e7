/**
 * @file Plans against every cut of every configuration of a whole space.
 */
import test from 'ava';
import { prepareStep, searchPrepared } from '../../../src/api/planning/search-step.js';
import { combinations, variants } from '../../../src/search/configurations/space.js';
import { pricingOf } from '../../../src/search/configurations/step-pricing.js';
import { everyCut } from './every-cut.js';

for (const memory of [2.7e9, 3.2e9, 20e9]) {
  test(`no cut of any variant is a hundredth faster than the plan, with ${memory / 1e9} GB`, async (t) => {
    const prepared = await prepareStep({
      generate: 'gpt:layers=5,hidden=1024,heads=8,seq=1024,vocab=32000',
      cluster: '1x4:a100-sxm-80',
      globalBatch: 8,
      memory,
      loss: { kind: 'cross_entropy' },
    });
    const { space, cluster, works } = prepared;
    const pricing = pricingOf(cluster, works);
    let least = Number.POSITIVE_INFINITY;
    for (const combination of combinations(space)) {
      for (const microBatch of combination.microBatches) {
        for (const configuration of variants(combination, microBatch, space)) {
          const { degrees, recompute } = configuration;
          const isMixed = recompute === 'full';
          const problem = { model: works(degrees.tp, microBatch), configuration, cluster, limit: memory, isMixed };
          for (const one of degrees.pp === 1 ? [configuration] : everyCut(problem))
            if (pricing.bytes(one).bytes <= memory) least = Math.min(least, pricing.seconds(one));
        }
      }
    }
    const found = await searchPrepared(prepared);
    t.true(found.simulation.stepSeconds <= least * 1.01, `${found.simulation.stepSeconds} of ${least}`);
  });
}
