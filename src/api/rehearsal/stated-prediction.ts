/**
 * @file Checks the prediction in plan.json (`predicted`) against the price of the lowered plan. The price covers every
 * collective and copy, so it detects an edit of a layout, a place or the schedule that lowers to other ones, even if the edited
 * plan is valid.
 */
import { stableJson } from '../../program/atomic.js';
import type { Plan, PlanPrediction } from '../../strategy/plan.js';
import { unfit } from '../../strategy/unfit.js';

/** @throws AutoparError (input) `plan-contradicts-itself` with both figures */
export function checkPrediction({ predicted }: Plan, priced: PlanPrediction): void {
  for (const [key, follows] of Object.entries(priced)) {
    // Left out by earlier versions.
    const stated = Object.hasOwn(predicted, key) ? predicted[key as keyof PlanPrediction] : undefined;
    if (stated === undefined && OPTIONAL.has(key)) continue;
    if (stated !== undefined && stableJson(stated) === stableJson(follows)) continue;
    const [own, other] = [JSON.stringify(stated), JSON.stringify(follows)];
    throw unfit(
      'plan-contradicts-itself',
      `the plan predicts ${key} ${own ?? 'nothing'}; its operators, layouts and schedule give ${other}`,
      {},
    );
  }
}

const OPTIONAL: ReadonlySet<string> = new Set(['priceLevel', 'precision', 'receivedBytes']);
