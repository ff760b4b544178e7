/**
 * @file A folder that holds the plan of a whole step, searched again: why its combination of degrees was taken and the others
 * were not, and what another cluster would change.
 */
import path from 'node:path';
import type { MeshOrder } from '../cost-model/step/configuration.js';
import { AutoparError } from '../ir/error.js';
import type { Plan } from '../strategy/plan.js';
import { readPlan } from '../strategy/plan-json.js';
import { readSource } from './folder.js';
import { clusterOf } from './lower-plan.js';
import { prepareStep, type StepSearch, type StepSearchOptions, searchPrepared } from './search-step.js';
import { type Sensitivity, sensitivities } from './step-sensitivity.js';

export interface ExplainedStep {
  readonly plan: Plan;
  readonly search: StepSearch;
  /** What else the cluster could be, and what that would bring; where it is asked for. */
  readonly sensitivities: readonly Sensitivity[];
}

/**
 * @param model the ONNX file, where it is no longer where compile read it
 * @throws AutoparError (usage) `not-a-step` for the plan of a program; (input) `plan-of-another-version` where the search gives
 * another plan than the folder holds
 */
export async function explainStep(
  directory: string,
  asked: { readonly sensitivity: boolean; readonly model?: string },
): Promise<ExplainedStep> {
  const plan = await readPlan(path.join(directory, 'plan.json'));
  const prepared = await prepareStep(await searchOptionsOf(directory, plan, asked.model));
  const search = await searchPrepared(prepared);
  // What the clock cut off another search may better.
  if (search.simulation.stepSeconds !== plan.search.costSeconds && !plan.search.timeLimited)
    throw new AutoparError(
      'plan-of-another-version',
      'input',
      'searched again, the model and cluster give another plan: plan.json was edited, or the model changed',
      { file: path.join(directory, 'plan.json') },
      'compile again',
    );
  return { plan, search, sensitivities: asked.sensitivity ? await sensitivities(prepared, search) : [] };
}

/** Whether a folder's plan is of whole steps, not of operators. @throws AutoparError (input) where it is no plan */
export async function isStepPlan(directory: string): Promise<boolean> {
  return (await readPlan(path.join(directory, 'plan.json'))).step !== undefined;
}

/** What the search was asked. @throws AutoparError (usage) `not-a-step` for the plan of a program */
export async function searchOptionsOf(directory: string, plan: Plan, model?: string): Promise<StepSearchOptions> {
  const { step, requested: { prefer, headroom } = {} } = plan;
  if (!step)
    throw new AutoparError(
      'not-a-step',
      'usage',
      `the plan in ${directory} was not searched over whole steps`,
      { file: path.join(directory, 'plan.json') },
      'compile --train --plan-only --cluster NxM:ID writes one that was',
    );
  const source = await readSource(directory);
  const { generated, dims, weights, training: trained } = source;
  const { tpSequence, meshOrder } = step.decided;
  return {
    ...step.decided,
    ...(meshOrder === undefined ? {} : { meshOrder: `${meshOrder}`.split(',') as readonly string[] as MeshOrder }),
    ...(tpSequence === undefined ? {} : { tpSequence: tpSequence ? ('on' as const) : ('off' as const) }),
    ...(generated === undefined ? { model: model ?? path.resolve(directory, source.model) } : { generate: generated }),
    dims,
    ...(weights ? { weights } : {}),
    ...(trained ? { loss: trained.loss } : {}),
    on: clusterOf(plan),
    objective: step.objective,
    ...(prefer === undefined ? {} : { prefer }),
    ...(headroom === undefined ? {} : { headroom }),
    ...(step.memoryBytes === null ? {} : { memory: step.memoryBytes }),
    globalBatch: step.globalBatch,
    precision: step.precision as NonNullable<StepSearchOptions['precision']>,
    software: step.software as NonNullable<StepSearchOptions['software']>,
    ...(step.attention === undefined
      ? {}
      : { attention: step.attention as NonNullable<StepSearchOptions['attention']> }),
  };
}
