/**
 * @file Drawn plans of pipelines compute what their models compute, or are refused; `npm run fuzz:plans` draws more.
 */
import test from 'ava';
import { drawnPlan, tryPlan } from './drawn-plan.js';

for (let seed = 1; seed <= 25; seed++) {
  test.serial(`npm run fuzz:plans -- 1 --seed ${seed}`, async (t) => {
    const { verdict, why } = await tryPlan(drawnPlan(seed));
    t.not(verdict, 'failed', why);
  });
}
