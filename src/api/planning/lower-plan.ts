/**
 * @file Lowers a plan that was read to its sharded graphs, without a search: the steps of compile after the search.
 */
import { type GeneratedProgram, programOf } from '../../codegen/program-of.js';
import { type Cluster, parseCluster } from '../../cost-model/cluster.js';
import { clusterOfDescription } from '../../cost-model/cluster-file.js';
import { clustersOf, predictStages } from '../../cost-model/predict-stages.js';
import { priceNode } from '../../cost-model/price.js';
import { resharderOn } from '../../cost-model/resharder-on.js';
import { AutoparError } from '../../ir/error.js';
import type { Graph } from '../../ir/graph.js';
import type { Assignment } from '../../partition/assignment.js';
import type { Liveness } from '../../partition/liveness.js';
import { type LoweredStage, lowerStages } from '../../partition/lower-stages.js';
import type { OffloadPlaces } from '../../partition/offload.js';
import { partition } from '../../partition/partition.js';
import { prepared } from '../../partition/prepared.js';
import type { ComputeNode, ShardedGraph } from '../../partition/sharded-graph.js';
import type { Schedule } from '../../schedule/schedule.js';
import { unshardedFlops } from '../../search/choose-degrees.js';
import type { Resharder } from '../../sharding-propagation/resharding.js';
import { assignmentOf } from '../../strategy/assignment-of.js';
import { checkFirst } from '../../strategy/first-only.js';
import type { Plan, PlanPrediction } from '../../strategy/plan.js';
import { planDigest } from '../../strategy/plan-json.js';
import { planPlaces } from '../../strategy/plan-places.js';
import { checkStagePlaces, type StagedGraph, stagedGraph } from '../../strategy/staged-graph.js';
import { dispatchOf } from '../models/dispatch.js';

/** A plan in the form that a program is made from. */
export interface LoweredPlan {
  /** Stage by stage. */
  readonly lowered: readonly LoweredStage[];
  /** The schedule of the stages; null for one stage. */
  readonly schedule: Schedule | null;
  /** Memory of its ranks, by stage; left out where it is not computed yet. */
  readonly memory?: readonly Liveness[];
}

/** The cluster that a plan is for. @throws AutoparError (input) `plan-invalid` where there is none such */
export function clusterOf({ cluster }: Plan): Cluster {
  try {
    if (cluster.description) return clusterOfDescription(cluster.description);
    return parseCluster(`${cluster.nodes}x${cluster.perNode}:${cluster.device}`, undefined);
  } catch (error) {
    if (!(error instanceof AutoparError)) throw error;
    throw new AutoparError('plan-invalid', 'input', `the plan's cluster: ${error.message}`, {}, error.hint);
  }
}

/** The graph lowered under a plan. @throws AutoparError (input) where it is not a plan of this graph */
export function lowerPlan(plan: Plan, graph: Graph): LoweredPlan {
  const assigned = assignedPlan(plan, graph);
  const lowered = lowerAssigned(plan, assigned);
  checkFirst(plan, assigned.staged.graph, lowered.lowered);
  return lowered;
}

/** The same for a plan whose strategies are known. */
export function lowerAssigned(plan: Plan, assigned: AssignedPlan): LoweredPlan {
  const { staged, assignment, resharder } = assigned;
  const places = planPlaces(plan, staged.graph);
  if (!staged.pipeline) {
    const whole = [{ graph: staged.graph, sharded: lowerUncut(assigned) }];
    return { lowered: asPlanned(whole, plan, places), schedule: null };
  }
  const { layout, schedule } = staged.pipeline;
  const lowered = lowerStages(staged.graph, assignment, resharder, layout);
  checkStagePlaces(plan, staged.graph, lowered);
  return { lowered: asPlanned(lowered, plan, places), schedule };
}

/** Lowered stages as they run under a plan. */
function asPlanned(
  stages: readonly LoweredStage[],
  { schedule, server }: Plan,
  places: OffloadPlaces,
): readonly LoweredStage[] {
  return prepared(stages, { buckets: schedule, interleave: schedule.interleave, server, places });
}

/** The program of a plan; the time of a segment is the predicted time of its operators on the plan's cluster. */
export function programOfPlan({ lowered, schedule }: LoweredPlan, plan: Plan, cluster: Cluster): GeneratedProgram {
  const { name, fingerprint } = plan.model;
  const model = { name, fingerprint, plan: planDigest(plan) };
  const clusters = new Map(clustersOf(lowered, cluster).map((own, stage) => [lowered[stage]?.sharded, own]));
  const secondsOf = (node: ComputeNode, { sharded }: LoweredStage) =>
    priceNode(node, sharded, clusters.get(sharded) ?? cluster) / 1e9;
  return programOf(lowered, model, schedule?.actions, secondsOf, dispatchOf(plan.passes).dispatch === 'variable');
}

/** The price of a lowered plan; equal to the one that `compile` printed, to the digit. */
export function predictionOf(plan: Plan, graph: Graph, { lowered, schedule }: LoweredPlan): PlanPrediction {
  return predictStages(lowered, schedule, clusterOf(plan), unshardedFlops(graph));
}

/** A plan's operators with their strategies. */
export interface AssignedPlan {
  readonly staged: StagedGraph;
  readonly assignment: Assignment;
  readonly resharder: Resharder;
}

/**
 * @param cluster whose prices choose the routes of resharding
 * @throws AutoparError (input) where it is not a plan of this graph
 */
export function assignedPlan(plan: Plan, graph: Graph, cluster = clusterOf(plan)): AssignedPlan {
  const staged = stagedGraph(plan, graph);
  const assignment = assignmentOf(plan, staged.graph);
  return { staged, assignment, resharder: resharderOn(cluster, assignment.mesh, plan.allToAll !== false) };
}

/** The whole graph on the mesh of a stage, as the search prices it. */
export function lowerUncut({ staged, assignment, resharder }: AssignedPlan): ShardedGraph {
  return partition(staged.graph, assignment, resharder);
}
