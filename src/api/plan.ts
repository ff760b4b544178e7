/**
 * @file plan: an imported model and a cluster in, the best plan out, lowered and checked.
 */
import { type Cluster, parseCluster } from '../cost-model/cluster.js';
import { checkSharded } from '../partition/check.js';
import type { ShardedGraph } from '../partition/sharded-graph.js';
import { type PlanResult, plan as search } from '../search/plan.js';
import type { Plan } from '../strategy/plan.js';
import { planOf } from '../strategy/plan-of.js';
import type { ImportedModel } from './import.js';

export interface PlanningOptions {
  readonly devices?: number;
  /** `NxM:ID` or `local` (the default). */
  readonly cluster?: string;
  /** Bytes per device that a plan may need. */
  readonly memory?: number;
  /** Degrees that are pinned. */
  readonly degrees?: { readonly dp?: number; readonly tp?: number };
  /** `free` lets every axis lie on every factor. */
  readonly axes?: 'roles' | 'free';
  readonly signal?: AbortSignal;
}

/** A model with its plan, all that `emit` needs. */
export interface PlannedModel {
  readonly imported: ImportedModel;
  readonly cluster: Cluster;
  readonly plan: Plan;
  readonly found: PlanResult;
  readonly sharded: ShardedGraph;
}

/** Searches, writes the plan record and lowers it. @throws AutoparError (exit noPlan, usage) where nothing fits. */
export async function plan(imported: ImportedModel, options: PlanningOptions = {}): Promise<PlannedModel> {
  const { degrees } = options;
  const cluster = parseCluster(options.cluster, options.devices, degrees ? { degrees } : {});
  const found = await search(imported.graph, cluster, {
    ...(degrees ? { degrees } : {}),
    ...(options.memory === undefined ? {} : { memoryBytes: options.memory }),
    ...(options.axes ? { axes: options.axes } : {}),
    ...(options.signal ? { signal: options.signal } : {}),
  });
  return {
    imported,
    cluster,
    found,
    plan: planOf(found, imported, cluster),
    sharded: sound(found.sharded),
  };
}

/** The sharded graph, once the checker has nothing against it. @throws Error (a fault of ours) with its findings. */
function sound(sharded: ShardedGraph): ShardedGraph {
  const findings = checkSharded(sharded);
  if (findings.length > 0) {
    const first = findings.slice(0, 5).map((finding) => `${finding.node}: ${finding.problem}`);
    throw new Error(`the sharded graph is not sound (${findings.length} findings): ${first.join('; ')}`);
  }
  return sharded;
}
