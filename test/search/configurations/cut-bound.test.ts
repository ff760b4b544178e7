/**
 * @file Bounds over all cuts into stages, against all cuts.
 */
import test from 'ava';
import fc from 'fast-check';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { priceStep } from '../../../src/cost-model/step/step-price.js';
import { draws } from '../../selection.js';
import { boundsOf, bytesOf, cutProblems, fastest, fastestEven } from './every-cut.js';

test('no cut that fits is faster than its bounds, and the cuts that come with them are cuts', (t) => {
  fc.assert(
    fc.property(cutProblems, (problem) => {
      const least = fastest(problem);
      const { cuts, ...bounds } = boundsOf(problem, Number.POSITIVE_INFINITY);
      const even = Math.min(least, fastestEven(problem));
      for (const [name, bound] of Object.entries(bounds)) t.true(bound <= even, `${name} ${bound} of ${even}`);
      t.true(bounds.rough <= bounds.relaxed, `rough ${bounds.rough} of ${bounds.relaxed}`);
      if (!cuts) return t.fail();
      t.true(cuts.atLeast <= least, `by cut ${cuts.atLeast} of ${least}`);
      const { model, cluster, limit } = problem;
      for (const one of cuts.configurations) {
        if (limit !== null && bytesOf(problem, one) > limit) continue;
        t.true(priceStep(model, one, cluster, STEP_CONSTANTS).stepSeconds >= least * (1 - 1e-9));
      }
    }),
    { numRuns: draws(200) },
  );
});
