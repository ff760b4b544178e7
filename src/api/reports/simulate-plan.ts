/**
 * @file simulatePlan: prices a written plan again, from the graphs that plan.json is lowered to. The price equals the one that
 * `compile` printed, to the digit.
 */
import path from 'node:path';
import type { Plan, PlanPrediction } from '../../strategy/plan.js';
import { openPlan } from '../models/compiled-model.js';
import { checkArguments, text } from '../options/kinds.js';
import { assignedPlan, lowerAssigned, predictionOf } from '../planning/lower-plan.js';
import { PLAN_FILE } from '../requests/plan-path.js';

/** A plan with its price. */
export interface SimulatedPlan {
  readonly plan: Plan;
  readonly prediction: PlanPrediction;
}

/**
 * Prices a written plan.
 * @param file the folder, or its plan.json
 * @throws AutoparError (input) where the folder or its model has changed
 */
export async function simulatePlan(file: string): Promise<SimulatedPlan> {
  checkArguments('simulatePlan', { file: [file, text] });
  const directory = path.basename(file) === PLAN_FILE ? path.dirname(file) : file;
  const { plan, planned } = await openPlan(directory);
  const assigned = assignedPlan(plan, planned.graph);
  const lowered = lowerAssigned(plan, assigned);
  return { plan, prediction: predictionOf(plan, assigned.staged.graph, lowered) };
}
