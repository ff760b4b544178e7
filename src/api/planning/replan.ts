/**
 * @file Plans the operators of a compiled folder again: as they were, or with a change.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { AutoparError } from '../../ir/error.js';
import { withRings, zigzagAttention } from '../../ir/passes/order-sequence.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import { type PlanOptions, type PlanResult, plan as search } from '../../search/plan.js';
import type { Plan } from '../../strategy/plan.js';
import { stagedGraph } from '../../strategy/staged-graph.js';
import { decidedAgain, pinnedDegrees } from '../explanations/explain-compiled.js';
import { openPlan } from '../models/compiled-model.js';
import type { ImportedModel } from '../models/import.js';
import { searchModeOf } from '../plan.js';
import { clusterOf } from './lower-plan.js';

/** All inputs of the search. */
export interface Replanning {
  readonly plan: Plan;
  readonly imported: ImportedModel;
  readonly cluster: Cluster;
  readonly options: PlanOptions;
  /** The pins on a mesh where the degrees are free, too. */
  readonly pinsOfFreeDegrees: () => Promise<PlanOptions['operatorPins']>;
}

/**
 * Reads the inputs of the search for a folder's plan.
 * @throws AutoparError (input) where the folder, its model or the files that its pins came from have changed
 */
export async function openReplanning(directory: string, model?: string): Promise<Replanning> {
  const { plan, source, planned } = await openPlan(directory, model);
  const { graph, pipeline } = stagedGraph(plan, planned.graph);
  const imported = { ...planned, graph };
  const cluster = clusterOf(plan);
  const degrees = pinnedDegrees(plan);
  const { pp } = plan.degrees;
  const devices = cluster.nodes * cluster.perNode;
  const decided = await decidedAgain(directory, source, planned, { ...degrees, pp }, devices);
  const { axes, memoryBytes, searchMode, solver } = source.decisions ?? {};
  return {
    plan,
    imported,
    cluster,
    pinsOfFreeDegrees: async () =>
      (await decidedAgain(directory, source, planned, { pp }, devices)).pinsOn ?? undefined,
    options: {
      degrees,
      ...(pipeline ? { pipeline: { ...pipeline, graph } } : {}),
      allToAll: plan.allToAll !== false,
      mode: searchModeOf(searchMode ? { searchMode } : {}, decided.config),
      ...(decided.pinsOn ? { operatorPins: decided.pinsOn } : {}),
      ...withoutUndefined({ axes, memoryBytes, solver }),
      request: plan.requested ?? {},
    },
  };
}

/**
 * Runs the same search once more, for results that a folder does not store.
 * @throws AutoparError (input) `plan-of-another-version` where it gives another plan than the folder holds
 */
export async function planAgain(
  { plan, imported, cluster, options }: Replanning,
  asked: Pick<PlanOptions, 'top' | 'signal'> = {},
): Promise<PlanResult> {
  for (const again of searchesOf({ plan, imported, options })) {
    const found = await search(again.graph, cluster, { ...again.options, ...asked });
    if (found.costNanoseconds === Math.round(plan.search.costSeconds * 1e9) || plan.search.timeLimited) return found;
  }
  throw new AutoparError(
    'plan-of-another-version',
    'input',
    'a new search gives another plan than plan.json: it was edited, or written by another version',
    {},
    'compile again',
  );
}

/** Searches that may have made a plan, by its record: with the sp method left open, and with the method found alone. */
function searchesOf({ plan, imported: { graph }, options }: Pick<Replanning, 'plan' | 'imported' | 'options'>) {
  const { sequence, degrees } = plan;
  const asWas = { graph, options };
  if (!sequence || (options.request?.spMethod ?? 'auto') !== 'auto') return [asWas];
  const alone = { graph, options: { ...options, request: { ...options.request, spMethod: sequence.method } } };
  const found = sequence.order === 'contiguous' ? zigzagAttention(graph, degrees.sp) : null;
  if (!found || 'reason' in found) return [asWas, alone];
  const open = withRings(graph, found.attention, degrees.sp);
  const { pipeline } = options;
  return [
    { graph: open, options: { ...options, ...(pipeline ? { pipeline: { ...pipeline, graph: open } } : {}) } },
    alone,
  ];
}
