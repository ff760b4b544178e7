/**
 * @file A compiled folder as explanations look at it: its plan on its model, its pins read again, and, where propagation made
 * the plan, that propagation run again.
 */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { AutoparError } from '../ir/error.js';
import type { Pin } from '../sharding-propagation/pin.js';
import { propagate } from '../sharding-propagation/propagation/propagate.js';
import { assignmentOf } from '../strategy/assignment-of.js';
import { readPlan } from '../strategy/plan-json.js';
import { readAnnotations, readParallelConfig } from './annotations.js';
import { compiledModel } from './compiled-model.js';
import { decide } from './decisions.js';
import type { Explainable } from './explain.js';
import { readSource, type SourceDecisions } from './folder.js';
import type { ImportedModel } from './import.js';
import { clusterOf, lowerPlan } from './lower-plan.js';
import { type PeakMemory, peakMemory } from './peak-memory.js';

export interface ExplainableFolder {
  readonly explainable: Explainable;
  /** What the user should know, a line each. */
  readonly notes: readonly string[];
}

/**
 * What a rank of each stage holds when its memory is fullest.
 * @throws AutoparError (input) where the folder or its model is not what it was
 */
export async function explainMemory(directory: string, model?: string): Promise<readonly PeakMemory[]> {
  const [plan, source] = [await readPlan(path.join(directory, 'plan.json')), await readSource(directory)];
  const { planned } = await compiledModel(directory, source, plan, model);
  return peakMemory(lowerPlan(plan, planned.graph), clusterOf(plan));
}

/**
 * Reads a compiled folder.
 * @throws AutoparError (input) where the folder, its model or the files that its pins came from are not what they were
 */
export async function openExplainable(directory: string, model?: string): Promise<ExplainableFolder> {
  const [plan, source] = [await readPlan(path.join(directory, 'plan.json')), await readSource(directory)];
  if (plan.search.mode === 'step')
    throw new AutoparError(
      'not-there-yet',
      'usage',
      `the plan in ${directory} is of whole steps; explain --tensor and --op look at plans of operators.`,
      {},
      'explain --rejected and --sensitivity say why it was taken; strategy show lists its operators',
    );
  const { planned: imported } = await compiledModel(directory, source, plan, model);
  const assignment = assignmentOf(plan, imported.graph);
  const cluster = clusterOf(plan);
  const { dp, tp } = plan.degrees;
  const decided = await pinsAgain(directory, source.decisions ?? {}, imported, { dp, tp });
  const pins = decided?.(assignment.mesh) ?? [];
  const propagated = plan.search.mode === 'sharding_propagation';
  return {
    explainable: {
      graph: imported.graph,
      cluster,
      assignment,
      allToAll: plan.allToAll !== false,
      propagation: propagated ? propagate(imported.graph, assignment.mesh, pins) : null,
      pins,
    },
    notes: [],
  };
}

async function pinsAgain(
  directory: string,
  { mode, annotations, config }: SourceDecisions,
  imported: ImportedModel,
  degrees: { readonly dp: number; readonly tp: number },
): Promise<((mesh: Explainable['assignment']['mesh']) => readonly Pin[]) | null> {
  const found = async (file: string) => {
    const whole = path.resolve(directory, file);
    await readFile(whole).catch((cause: Error) => {
      throw new AutoparError(
        'file-missing',
        'input',
        `the plan's pins came from a file that cannot be read: ${cause.message}`,
        { file: whole },
        'Put it back, or compile again.',
      );
    });
    return whole;
  };
  const sources = {
    degrees,
    ...(mode ? { mode } : {}),
    ...(annotations ? { annotations: await readAnnotations(await found(annotations)) } : {}),
    ...(config ? { config: await readParallelConfig(await found(config)) } : {}),
  };
  return decide(imported, { ...sources, devices: degrees.dp * degrees.tp }).pinsOn;
}
