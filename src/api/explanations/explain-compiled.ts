/**
 * @file A compiled folder in the form that explanations read: its plan on its model, its pins read again, and, if propagation
 * made the plan, that propagation run again.
 */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { AutoparError } from '../../ir/error.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import { stagePins } from '../../search/pipeline/stage-pins.js';
import { propagate } from '../../sharding-propagation/propagation/propagate.js';
import { EXPERTS, INNER_AXES, type InnerDegrees } from '../../sharding-propagation/roles.js';
import { assignmentOf } from '../../strategy/assignment-of.js';
import type { PlanMeshes } from '../../strategy/diff.js';
import type { Plan } from '../../strategy/plan.js';
import { stagedGraph } from '../../strategy/staged-graph.js';
import { type Explainable, meshesIn } from '../explain.js';
import { openPlan } from '../models/compiled-model.js';
import type { ImportedModel } from '../models/import.js';
import { checkArguments, leftOut, text } from '../options/kinds.js';
import type { ProgramSource } from '../output/folder.js';
import { clusterOf, lowerPlan } from '../planning/lower-plan.js';
import { memoryLimit, type PeakMemory, peakMemory } from '../reports/peak-memory.js';
import { type Server, serverOf } from '../reports/server.js';
import { type TrainingStateBytes, trainingStateBytes } from '../reports/training-state.js';
import { readAnnotations, readParallelConfig } from '../requests/annotations.js';
import { loadedPins } from '../requests/config-checkpoints.js';
import { type DecisionSources, type Decisions, decide } from '../requests/decisions.js';
import { servedStages } from './explain-served.js';

export interface ExplainableFolder {
  readonly explainable: Explainable;
  /** Names and sizes of the plan's axes, for `axesInWords`. */
  readonly plan: PlanMeshes;
  /** The number format that most of the plan is priced in; null in plans of earlier versions. */
  readonly precision: string | null;
  /** Notes for the user, one line each. */
  readonly notes: readonly string[];
}

/**
 * The peak memory of a rank of each stage, and the training state that a rank of the fullest stage stores.
 * @throws AutoparError (input) if the folder or its model has changed
 */
export async function explainMemory(
  directory: string,
  model?: string,
): Promise<{
  readonly stages: readonly PeakMemory[];
  readonly memoryBytes: number | null;
  readonly kept: TrainingStateBytes | null;
  readonly server: Server | null;
}> {
  checkArguments('explainMemory', { directory: [directory, text], model: [model, leftOut(text)] });
  const { plan, source, planned } = await openPlan(directory, model);
  const lowered = lowerPlan(plan, planned.graph);
  const cluster = clusterOf(plan);
  const stages = peakMemory(lowered, cluster);
  return {
    stages,
    memoryBytes: memoryLimit(source.decisions?.memoryBytes, cluster),
    kept: trainingStateBytes(lowered.lowered, plan, stages),
    server: serverOf(lowered, plan, cluster),
  };
}

/**
 * Reads a compiled folder.
 * @throws AutoparError (input) if the folder, its model or the files that its pins came from have changed
 */
export async function openExplainable(directory: string, model?: string): Promise<ExplainableFolder> {
  checkArguments('openExplainable', { directory: [directory, text], model: [model, leftOut(text)] });
  const { plan, source, planned } = await openPlan(directory, model);
  return {
    explainable: await explainablePlanOf(directory, source, plan, planned),
    plan,
    precision: plan.predicted.precision ?? null,
    notes: [],
  };
}

/**
 * A plan of a folder in the form that explanations read.
 * @param imported the model as it was planned
 * @throws AutoparError (input) if the files that its pins came from have changed
 */
export async function explainablePlanOf(
  directory: string,
  source: ProgramSource,
  plan: Plan,
  imported: ImportedModel,
): Promise<Explainable> {
  const { graph, pipeline } = stagedGraph(plan, imported.graph);
  const assignment = assignmentOf(plan, graph);
  const cluster = clusterOf(plan);
  const decided = await decidedAgain(
    directory,
    source,
    imported,
    plan.degrees,
    plan.cluster.nodes * plan.cluster.perNode,
  );
  const { pinsOn } = decided;
  const pins = pinsOn ? stagePins(graph, pipeline?.layout, assignment.mesh, (mesh) => pinsOn(mesh, graph)) : [];
  const propagated = plan.search.mode === 'sharding_propagation';
  return {
    graph,
    cluster,
    assignment,
    allToAll: plan.allToAll !== false,
    ...(pipeline
      ? {
          stages: lowerPlan(plan, imported.graph).lowered,
          stageSchedule: pipeline.schedule,
          ...meshesIn(graph, assignment, pipeline.layout),
        }
      : {}),
    ...servedStages(plan, () => lowerPlan(plan, imported.graph).lowered),
    propagation: propagated ? propagate(graph, assignment.mesh, pins) : null,
    pins,
    schedule: plan.schedule,
    ...(propagated
      ? {}
      : {
          left: {
            axes: source.decisions?.axes ?? 'roles',
            degrees: new Set(Object.keys(pinnedDegrees(plan))),
            asked: { ...plan.degrees, ...plan.requested },
          },
        }),
  };
}

/**
 * The decisions that were made before the search, from the files that state them.
 * @param degrees fixed degrees; null to fix none, not even those of the annotations
 * @throws AutoparError (input) if a file has changed
 */
export async function decidedAgain(
  directory: string,
  { decisions = {}, dims, globalBatch }: ProgramSource,
  imported: ImportedModel,
  degrees: DecisionSources['degrees'] | null,
  devices: number,
): Promise<Decisions> {
  const found = async (file: string) => {
    const whole = path.resolve(directory, file);
    await readFile(whole).catch((cause: Error) => {
      throw new AutoparError(
        'file-missing',
        'input',
        `the plan's pins came from a file that cannot be read: ${cause.message}`,
        { file: whole },
        'Restore the file, or compile again.',
      );
    });
    return whole;
  };
  const { mode } = decisions;
  const annotations = decisions.annotations ? await readAnnotations(await found(decisions.annotations)) : undefined;
  const config = decisions.config ? await readParallelConfig(await found(decisions.config)) : undefined;
  const batch = globalBatch === null ? {} : { globalBatch };
  const loaded = await loadedPins(config, annotations, { model: imported.file, dims, ...batch });
  const pins = loaded ?? annotations;
  return decide(imported, {
    ...(degrees ? { degrees } : {}),
    devices,
    ...withoutUndefined({ mode, annotations: degrees ? pins : pins && { ...pins, mesh: {} }, config }),
  });
}

const DEGREES: ReadonlySet<string> = new Set([...INNER_AXES, EXPERTS]);

/** Degrees that the user gave, such as `tp=2` among the plan's pins; with meshes of stages, the degrees of the first stage. */
export function pinnedDegrees({ pins, meshes, degrees }: Plan): InnerDegrees {
  if (meshes) {
    const { dp, tp, sp, ep } = degrees;
    return { dp, tp, ...(sp > 1 ? { sp } : {}), ...(ep > 1 ? { ep } : {}) };
  }
  const given = pins.flatMap((pin) => {
    const [, axis = '', size] = /^(\w+)=(\d+)$/.exec(pin) ?? [];
    return DEGREES.has(axis) ? [[axis, Number(size)] as const] : [];
  });
  return Object.fromEntries(given);
}
