/**
 * @file The bound that leaves configurations out, against the price of drawn stages and of every cut of drawn models; and the
 * cutter against the best of all cuts.
 */
import test from 'ava';
import fc from 'fast-check';
import { pipelineSeconds } from '../../../src/schedule/closed-form.js';
import { pipelineLeast } from '../../../src/search/configurations/at-least.js';
import { draws } from '../../selection.js';
import { BASE } from './base.js';
import { boundOf, cutProblems, fastest, fastestCut, fastestEven } from './every-cut.js';

const seconds = fc.oneof(fc.constantFrom(0, 1), fc.double({ min: 0, max: 2, noNaN: true }));

const pipelines = fc
  .record({
    p: fc.integer({ min: 2, max: 9 }),
    m: fc.integer({ min: 1, max: 4 }),
    v: fc.integer({ min: 1, max: 5 }),
    hop: fc.constantFrom(0, 0.1, 1),
    blocks: fc.boolean(),
  })
  .chain((drawn) => {
    const each = (length: number) => fc.array(seconds, { minLength: length, maxLength: length });
    return fc.record({ pipeline: fc.constant(drawn), forwards: each(drawn.p), backwards: each(drawn.p) });
  });

test('however stages share their work, they take what the bound says at least', (t) => {
  fc.assert(
    fc.property(pipelines, ({ pipeline: { p, m: drawn, v, hop, blocks }, forwards, backwards }) => {
      const m = v > 1 ? drawn * p : drawn;
      const kind = v > 1 ? ('interleaved-1f1b' as const) : ('1f1b' as const);
      const stages = forwards.map((forward, index) => ({
        forward,
        backward: backwards[index] as number,
        weightGradient: 0,
      }));
      const request = { kind, stages: p, microBatches: m, virtualStages: v };
      const price = pipelineSeconds(request, stages, { seconds: hop, blocks });
      const through = [...forwards, ...backwards].reduce((sum, own) => sum + own, 0);
      const least = pipelineLeast(
        { through, slowest: through / p, left: 1 },
        {
          ...BASE,
          ...{ degrees: { pp: p, dp: 1, sp: 1, tp: 1, ep: 1 }, globalBatch: m, microBatch: 1, schedule: kind },
          ...{ virtualStages: v, tpSequence: false, zero: 0, recompute: 'none' },
        },
      );
      // Seconds near the least number there is have no digits to be near by.
      t.true(least <= price * (1 + 1e-12) + 1e-300, `${least} of ${price}`);
    }),
    { numRuns: draws(1000) },
  );
});

test('no cut that fits is faster than the bound, and the cutter finds one nearly as fast as any', (t) => {
  let [near, all] = [0, 0];
  fc.assert(
    fc.property(cutProblems, (problem) => {
      const least = fastest(problem);
      const bound = boundOf(problem);
      t.true(bound <= Math.min(least, fastestEven(problem)), `${bound} of ${least}`);
      const cut = Math.min(fastestCut(problem), fastestEven(problem));
      if (!Number.isFinite(least) || problem.configuration.degrees.pp === 1) return;
      all++;
      if (cut <= least * 1.01) near++;
    }),
    { numRuns: draws(200), seed: 5 },
  );
  t.true(near >= 0.8 * all, `${near} of ${all}`);
});
