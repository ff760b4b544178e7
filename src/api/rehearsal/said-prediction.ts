/**
 * @file What plan.json says that its step takes (`predicted`) against the price of its lowered form. The price is of every
 * collective and copy, so that an edit of a layout, a place or the schedule that lowers to other ones is found, be it a right
 * plan by itself.
 */
import { stableJson } from '../../program/atomic.js';
import type { Plan, PlanPrediction } from '../../strategy/plan.js';
import { unfit } from '../../strategy/unfit.js';

/** @throws AutoparError (input) `plan-contradicts-itself` with both figures */
export function checkPrediction({ predicted }: Plan, priced: PlanPrediction): void {
  for (const [key, follows] of Object.entries(priced)) {
    // Left out by earlier versions.
    const said = Object.hasOwn(predicted, key) ? predicted[key as keyof PlanPrediction] : undefined;
    if (said === undefined && OPTIONAL.has(key)) continue;
    if (said !== undefined && stableJson(said) === stableJson(follows)) continue;
    const [own, other] = [JSON.stringify(said), JSON.stringify(follows)];
    throw unfit(
      'plan-contradicts-itself',
      `the plan predicts ${key} ${own ?? 'nothing'}, and its operators, layouts and schedule make it ${other}`,
      {},
    );
  }
}

const OPTIONAL: ReadonlySet<string> = new Set(['priceLevel', 'precision', 'receivedBytes']);
