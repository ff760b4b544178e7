/**
 * @file Drawn plans of pipelines compute what their models compute, or are refused; `npm run fuzz:plans` draws more.
 */
import test from 'ava';
import { type DrawnPlan, drawnPlan, tryPlan } from './drawn-plan.js';

for (let seed = 1; seed <= 25; seed++) {
  test.serial(`npm run fuzz:plans -- 1 --seed ${seed}`, async (t) => {
    const { verdict, why } = await tryPlan(drawnPlan(seed));
    t.not(verdict, 'failed', why);
  });
}

const FP16: DrawnPlan = {
  ...{ model: 'recurrent', batch: 8, dp: 2, tp: 1, sp: 1, ep: 1, pp: 3, meshes: null },
  ...{ spMethod: null, spOrder: null, capacity: null, dispatch: 'padded', isFree: false, offload: null, seed: 362 },
  ...{ cut: { by: 'balance', at: [] }, schedule: null, virtualStages: 1 },
  training: {
    ...{ loss: 'cross_entropy', optimizer: 'adamw', clips: false, microBatches: 2, precision: 'fp16', zero: 0 },
    ...{ recompute: null, bucket: null, interleave: 1, gradientSync: null, moeBalance: null },
  },
};

/** Their probes find less than one rounding of the largest element, 28,304 and 4,232. */
const ROUNDED: readonly DrawnPlan[] = [
  FP16,
  {
    ...FP16,
    ...{ model: 'shared-layer', batch: 16, seed: 142 },
    training: {
      ...{ loss: 'cross_entropy', optimizer: 'lamb', clips: false, microBatches: 8, precision: 'fp16', zero: 2 },
      ...{ recompute: 'full:except-last', bucket: 1, interleave: 1, gradientSync: null, moeBalance: null },
    },
  },
];

for (const plan of ROUNDED) {
  test.serial(`the gradient of a bias, in fp16: ${plan.model}`, async (t) => {
    const { verdict, why } = await tryPlan(plan);
    t.is(verdict, 'verified', why);
  });
}
