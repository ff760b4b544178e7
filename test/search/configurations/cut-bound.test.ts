/**
 * @file Bounds over all cuts into stages, against all cuts.
 */
import test from 'ava';
import fc from 'fast-check';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { priceStep } from '../../../src/cost-model/step/step-price.js';
import { boundsOf, bytesOf, cutProblems, fastest, fastestEven } from './every-cut.js';

test('no cut that fits is faster than its bounds, and the cuts that come with them are cuts', (t) => {
  fc.assert(
    fc.property(cutProblems, (problem) => {
      const least = fastest(problem);
      const { whole, pace, rough, relaxed, cuts } = boundsOf(problem, Number.POSITIVE_INFINITY);
      const even = Math.min(least, fastestEven(problem));
      t.true(pace <= relaxed, `pace ${pace} of ${relaxed}`);
      t.true(whole <= even, `whole ${whole} of ${even}`);
      t.true(rough <= even, `rough ${rough} of ${even}`);
      t.true(relaxed <= even, `relaxed ${relaxed} of ${even}`);
      if (!cuts) return t.fail();
      t.true(cuts.atLeast <= least, `by cut ${cuts.atLeast} of ${least}`);
      const { model, cluster, limit } = problem;
      for (const one of cuts.configurations) {
        if (limit !== null && bytesOf(problem, one) > limit) continue;
        t.true(priceStep(model, one, cluster, STEP_CONSTANTS).stepSeconds >= least * (1 - 1e-9));
      }
    }),
    { numRuns: 150 },
  );
});
