/**
 * @file simulatePlan: the price of a plan that is written, taken anew from what plan.json says: of a training step by its
 * configuration, of a sharding plan by its lowered graphs. It is what `compile` printed, to the digit.
 */
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { predict } from '../cost-model/predict.js';
import { predictStages } from '../cost-model/predict-stages.js';
import type { Offload, PipelineSchedule, Recompute, StepConfiguration } from '../cost-model/step/configuration.js';
import { wholeFlops } from '../search/choose-degrees.js';
import { AXIS_ORDER } from '../sharding-propagation/mesh.js';
import type { Plan, PlanPrediction, PlanStep } from '../strategy/plan.js';
import { readPlan } from '../strategy/plan-json.js';
import { compiledModel } from './compiled-model.js';
import { searchOptionsOf } from './explain-step.js';
import { readSource } from './folder.js';
import { assignedPlan, clusterOf, lowerAssigned } from './lower-plan.js';
import { prepareStep, simulationAt } from './search-step.js';
import type { Simulation } from './simulate.js';

/** What a plan takes: of a training step with all its figures. */
export type SimulatedPlan =
  | { readonly kind: 'step'; readonly plan: Plan; readonly simulation: Simulation }
  | { readonly kind: 'sharding'; readonly plan: Plan; readonly prediction: PlanPrediction };

/** Whether a path is a plan: plan.json, or the folder that holds it. */
export async function isPlanPath(file: string): Promise<boolean> {
  if (path.basename(file) === PLAN_FILE) return true;
  const information = await stat(file).catch(() => null);
  return information?.isDirectory() ?? false;
}

const PLAN_FILE = 'plan.json';

/**
 * Prices a written plan.
 * @param file the folder, or its plan.json
 * @throws AutoparError (input) where the folder or its model is not what it was
 */
export async function simulatePlan(file: string): Promise<SimulatedPlan> {
  const directory = path.basename(file) === PLAN_FILE ? path.dirname(file) : file;
  const plan = await readPlan(path.join(directory, PLAN_FILE));
  if (plan.step) {
    const prepared = await prepareStep(await searchOptionsOf(directory, plan));
    const configuration = { ...prepared.space.base, ...configurationOf(plan, plan.step) };
    return { kind: 'step', plan, simulation: await simulationAt(prepared, configuration) };
  }
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
  return { kind: 'sharding', plan, prediction };
}

/** What a search decides of a configuration, as the plan has it. */
function configurationOf(
  { degrees, mesh, schedule }: Plan,
  step: PlanStep,
): Omit<StepConfiguration, keyof Awaited<ReturnType<typeof prepareStep>>['space']['base']> {
  const meshOrder = AXIS_ORDER.filter((axis) => mesh.some((own) => own.axis === axis)).toSorted(
    (a, b) => mesh.findIndex(({ axis }) => axis === a) - mesh.findIndex(({ axis }) => axis === b),
  );
  const isUsual = meshOrder.every((axis, index) => axis === AXIS_ORDER[index]);
  const { microBatch = 1, virtualStages = 1, kind } = schedule;
  return {
    degrees,
    microBatch,
    virtualStages,
    ...(isUsual ? {} : { meshOrder }),
    ...(kind === 'single' ? {} : { schedule: kind as PipelineSchedule }),
    ...(step.stageLayers ? { stageLayers: step.stageLayers } : {}),
    tpSequence: step.tpSequence,
    zero: step.zero as StepConfiguration['zero'],
    recompute: step.recompute as Recompute,
    ...(step.recomputedLayers ? { recomputedLayers: step.recomputedLayers } : {}),
    ...(step.offload ? { offload: step.offload as Offload } : {}),
  };
}
