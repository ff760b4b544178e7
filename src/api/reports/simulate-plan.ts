/**
 * @file simulatePlan: the price of a plan that is written, taken anew from the graphs that what plan.json says is lowered to. It
 * is what `compile` printed, to the digit.
 */
import path from 'node:path';
import { predict } from '../../cost-model/predict.js';
import { predictStages } from '../../cost-model/predict-stages.js';
import { wholeFlops } from '../../search/choose-degrees.js';
import type { Plan, PlanPrediction } from '../../strategy/plan.js';
import { readPlan } from '../../strategy/plan-json.js';
import { compiledModel } from '../models/compiled-model.js';
import { readSource } from '../output/folder.js';
import { assignedPlan, clusterOf, lowerAssigned } from '../planning/lower-plan.js';
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
  const { lowered, schedule } = lowerAssigned(plan, assigned);
  const [first] = lowered;
  if (!first) throw new Error('a plan has a stage');
  const flops = wholeFlops(assigned.staged.graph);
  const cluster = clusterOf(plan);
  const prediction = schedule
    ? predictStages(lowered, schedule, cluster, flops)
    : predict(first.sharded, cluster, flops);
  return { plan, prediction };
}
