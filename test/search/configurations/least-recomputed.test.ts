/**
 * @file What memory makes layers recompute at least, against all cuts of drawn models that fit.
 */
import test from 'ava';
import fc from 'fast-check';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { type PartPrices, priceParts } from '../../../src/cost-model/step/part-price.js';
import { stageLayers } from '../../../src/cost-model/step/stages.js';
import { recomputedAtLeast, recomputingAtLeast } from '../../../src/search/configurations/least-recomputed.js';
import { bytesOf, cutProblems, everyCut } from './every-cut.js';

test('no cut that fits recomputes for less time, and of several classes the bound is often closer than one class says', (t) => {
  let several = 0;
  let closer = 0;
  fc.assert(
    fc.property(cutProblems, (problem) => {
      const { model, configuration, cluster, limit, isMixed } = problem;
      if (limit === null || cluster.kinds || !isMixed) return;
      const prices = priceParts(model, configuration, cluster, STEP_CONSTANTS);
      const request = { configuration, cluster, limitBytes: limit, isMixed };
      const bound = recomputingAtLeast(prices, request);
      const fitting = everyCut(problem).filter((cut) => bytesOf(problem, cut) <= limit);
      const least = Math.min(
        ...fitting.map((cut) =>
          stageLayers(model, cut).reduce(
            (sum, { recomputed }) =>
              sum + recomputed.reduce((all, count, index) => all + count * longerBy(prices, index), 0),
            0,
          ),
        ),
      );
      t.true(bound <= least * (1 + 1e-12), `${bound} of ${least}`);
      if (model.layers.length === 1 || !Number.isFinite(bound) || least === 0) return;
      several++;
      const most = model.layers.reduce(
        (best, { count }, index) => (count > (model.layers[best]?.count ?? 0) ? index : best),
        0,
      );
      if (bound > recomputedAtLeast(prices, request) * longerBy(prices, most) * 1.01) closer++;
    }),
    { numRuns: 3000 },
  );
  t.true(several > 40, `${several}`);
  t.true(closer > several / 20, `${closer} of ${several}`);
});

function longerBy({ layers }: PartPrices, index: number): number {
  const layer = layers[index];
  return layer ? layer.recomputed.backwardSeconds - layer.kept.backwardSeconds : 0;
}
