/**
 * @file Steps that a compiled folder's plan was chosen from, compared again by the price of layers: what ruled the other
 * combinations of degrees out, and what another cluster would change.
 */
import path from 'node:path';
import { deviceBytes } from '../../cost-model/predict.js';
import type { Plan } from '../../strategy/plan.js';
import { readPlan } from '../../strategy/plan-json.js';
import { compiledModel } from '../models/compiled-model.js';
import { readSource } from '../output/folder.js';
import { clusterOf } from '../planning/lower-plan.js';
import { prepareStep, type StepSearch, searchPrepared } from '../planning/search-step.js';
import { type Sensitivity, sensitivities } from '../planning/step-sensitivity.js';

export interface ExplainedProposals {
  readonly plan: Plan;
  readonly search: StepSearch;
  /** What else the cluster could be, and what that would bring; where it is asked for. */
  readonly sensitivities: readonly Sensitivity[];
}

/**
 * @param asked.model the ONNX file, where it is no longer where compile read it
 * @returns null where no steps were compared for the plan
 * @throws AutoparError (input) where the folder or its model is not what it was
 */
export async function explainProposals(
  directory: string,
  asked: { readonly sensitivity: boolean; readonly model?: string; readonly signal?: AbortSignal },
): Promise<ExplainedProposals | null> {
  const [plan, source] = [await readPlan(path.join(directory, 'plan.json')), await readSource(directory)];
  const { proposals } = source.decisions ?? {};
  if (!proposals) return null;
  const on = clusterOf(plan);
  // What is asked for is of tensors, and steps are compared by all that a device holds.
  const memory = proposals.memory === undefined ? {} : { memory: deviceBytes(proposals.memory, on) };
  const prepared = await prepareStep({
    ...proposals,
    ...memory,
    ...(proposals.generate === undefined ? await modelOf(directory, source, plan, asked.model) : {}),
    ...(asked.signal ? { signal: asked.signal } : {}),
    on,
  });
  const search = await searchPrepared(prepared);
  return { plan, search, sensitivities: asked.sensitivity ? await sensitivities(prepared, search) : [] };
}

/** The model file as it was imported. @throws AutoparError `model-changed` where it is another */
async function modelOf(
  directory: string,
  source: Parameters<typeof compiledModel>[1],
  plan: Plan,
  model: string | undefined,
): Promise<Pick<Parameters<typeof prepareStep>[0], 'model' | 'dims' | 'constants' | 'weights'>> {
  const { file, constants } = await compiledModel(directory, source, plan, model);
  const { dims, weights } = source;
  return { model: file, dims, constants, ...(weights ? { weights } : {}) };
}
