/**
 * @file Expert loads in the report of a run, against counts that are added up by hand.
 */
import test from 'ava';
import { expertLoads } from '../../../src/api/reports/expert-load.js';
import { constant } from '../../../src/ir/ops/constants.js';
import type { Plan } from '../../../src/strategy/plan.js';

const plan = (degrees: Partial<Plan['degrees']>, microBatches: number): Plan =>
  ({
    degrees: { dp: 1, tp: 1, pp: 1, sp: 1, ep: 1, ...degrees },
    schedule: { kind: 'single', microBatches },
    passes: [{ name: 'dispatch-experts', options: { dispatch: 'padded', capacityFactor: 1, slots: '3' } }],
  }) as unknown as Plan;

// Four samples of six tokens, top 1 of four experts, of which each takes three.
const COUNTS = [...[6, 0, 0, 0], ...[1, 2, 3, 0], ...[0, 0, 0, 6], ...[2, 2, 1, 1]];
const outputs = {
  y: constant('float32', [0], [1]),
  '/layers.0/Einsum/dispatch/tokens_per_expert': constant('int64', COUNTS, [4, 4]),
};

test('choices beyond the slots are dropped, and slots that no token fills are padded work', (t) => {
  const [load] = expertLoads(plan({}, 1), outputs);
  t.is(load?.layer, '/layers.0/Einsum');
  t.is(load?.taken, 3 + 6 + 3 + 6);
  t.is(load?.dropped, 3 + 3);
  t.is(load?.padded, 1 - 18 / 48);
  t.is(load?.fullest, 18);
});

test('the fullest rank is that of the experts and samples of its group', (t) => {
  const fullest = (degrees: Partial<Plan['degrees']>, microBatches = 1) => {
    const [load] = expertLoads(plan(degrees, microBatches), outputs);
    return [load?.fullest, load?.even];
  };
  // Samples 0 and 1, or 2 and 3.
  t.deepEqual(fullest({ dp: 2 }), [9, 9]);
  // Experts 0 and 1, or 2 and 3, of all samples: 3 + 3 + 0 + 4 and 0 + 3 + 3 + 2.
  t.deepEqual(fullest({ dp: 2, ep: 2 }), [10, 9]);
  t.deepEqual(fullest({ sp: 2, ep: 2 }), [10, 9]);
  // Experts 0 and 1 of samples 0 and 1; 2 and 3 of them; the same of samples 2 and 3.
  t.deepEqual(fullest({ dp: 4, ep: 2 }), [6, 4.5]);
  t.deepEqual(fullest({ dp: 2, sp: 2, ep: 2 }), [6, 4.5]);
  // Each of two micro-batches has a sample for each rank: 0 and 2 (3 + 3), 1 and 3 (6 + 6).
  t.deepEqual(fullest({ dp: 2 }, 2), [12, 9]);
});

test('programs that dispatch nothing say nothing', (t) => {
  t.deepEqual(expertLoads({ ...plan({}, 1), passes: [] }, { y: outputs.y }), []);
});
