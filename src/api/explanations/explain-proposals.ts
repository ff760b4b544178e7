/**
 * @file The step configurations that a compiled folder's plan was chosen from, as compile left them or compared again by the
 * price of layers: what ruled the other combinations of degrees out, and the effect of changes of the cluster.
 */
import path from 'node:path';
import type { Plan } from '../../strategy/plan.js';
import { readPlan } from '../../strategy/plan-json.js';
import { compiledModel } from '../models/compiled-model.js';
import { endedBy } from '../options/in-javascript.js';
import { checkArguments, flag, options, signal, text } from '../options/kinds.js';
import { readComparison } from '../output/comparison-file.js';
import { readSource } from '../output/folder.js';
import { comparisonOf, type PlanComparison, type ProposalsRecord, proposalsRecord } from '../planning/comparison.js';
import { clusterOf } from '../planning/lower-plan.js';
import { prepareStep, searchPrepared } from '../planning/search-step.js';
import { type Sensitivity, sensitivities } from '../planning/step-sensitivity.js';

export interface ExplainedProposals {
  readonly plan: Plan;
  /** The plans that compile compared; where it left none, or a time limit ended its search, the search again. */
  readonly comparison: PlanComparison;
  /** Changes of the cluster and their effect on the step; null unless requested. */
  readonly sensitivity: { readonly search: ProposalsRecord; readonly changes: readonly Sensitivity[] } | null;
}

const OPTIONS = options<Parameters<typeof explainProposals>[1]>({ sensitivity: flag, model: text, signal });

/**
 * @param asked.model the ONNX file, if it has moved since compile read it
 * @returns null if no step configurations were compared for the plan
 * @throws AutoparError (input) if the folder or its model has changed
 */
export async function explainProposals(
  directory: string,
  asked: { readonly sensitivity: boolean; readonly model?: string; readonly signal?: AbortSignal },
): Promise<ExplainedProposals | null> {
  checkArguments('explainProposals', { directory: [directory, text], asked: [asked, OPTIONS] });
  return endedBy(asked.signal, 'explainProposals', async () => {
    const [plan, source] = [await readPlan(path.join(directory, 'plan.json')), await readSource(directory)];
    const { proposals } = source.decisions ?? {};
    if (!proposals) return null;
    const kept = plan.search.timeLimited ? null : await readComparison(directory, plan);
    if (kept?.proposals && !asked.sensitivity) return { plan, comparison: kept, sensitivity: null };
    const on = clusterOf(plan);
    const prepared = await prepareStep({
      ...proposals,
      ...(proposals.generate === undefined ? await modelOf(directory, source, plan, asked.model) : {}),
      ...(asked.signal ? { signal: asked.signal } : {}),
      on,
    });
    const search = await searchPrepared(prepared);
    const again = comparisonOf({ compared: null, searched: search, top: [], rejected: [] });
    return {
      plan,
      comparison: kept?.proposals ? kept : again,
      sensitivity: asked.sensitivity
        ? { search: proposalsRecord(search), changes: await sensitivities(prepared, search) }
        : null,
    };
  });
}

/** The model file as it was imported. @throws AutoparError `model-changed` if it is another model */
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
