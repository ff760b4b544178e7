/**
 * @file simulatePlan: the price of a plan that is written, taken anew from the graphs that what plan.json says is lowered to. It
 * is what `compile` printed, to the digit.
 */
import path from 'node:path';
import type { Plan, PlanPrediction } from '../../strategy/plan.js';
import { readPlan } from '../../strategy/plan-json.js';
import { compiledModel } from '../models/compiled-model.js';
import { readSource } from '../output/folder.js';
import { assignedPlan, lowerAssigned, predictionOf } from '../planning/lower-plan.js';
import { PLAN_FILE } from '../requests/plan-path.js';

/** What a plan takes. */
export interface SimulatedPlan {
  readonly plan: Plan;
  readonly prediction: PlanPrediction;
}

/**
 * Prices a written plan.
 * @param file the folder, or its plan.json
 * @throws AutoparError (input) where the folder or its model is not what it was
 */
export async function simulatePlan(file: string): Promise<SimulatedPlan> {
  const directory = path.basename(file) === PLAN_FILE ? path.dirname(file) : file;
  const plan = await readPlan(path.join(directory, PLAN_FILE));
  const { planned } = await compiledModel(directory, await readSource(directory), plan);
  const assigned = assignedPlan(plan, planned.graph);
  const lowered = lowerAssigned(plan, assigned);
  return { plan, prediction: predictionOf(plan, assigned.staged.graph, lowered) };
}
