/**
 * @file Prices on the devices that run an operator: those of its stage, where the nodes of a cluster differ.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { clustersOf } from '../../cost-model/predict-stages.js';
import { pricedOn, resharderOn } from '../../cost-model/resharder-on.js';
import { madeOnce } from '../../ir/remembered.js';
import type { Assignment } from '../../partition/assignment.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import type { Resharder } from '../../sharding-propagation/resharding.js';

export interface StagePrices {
  /** As fast as the slowest device of the stage. */
  readonly cluster: Cluster;
  /** The plan's routes, with their prices on that cluster. */
  readonly resharder: Resharder;
}

/** The inputs of a plan's prices. */
interface PricedPlan {
  readonly cluster: Cluster;
  readonly assignment: Pick<Assignment, 'mesh'>;
  /** Whether resharding may use all-to-all. */
  readonly allToAll: boolean;
  readonly stages?: readonly LoweredStage[];
}

/** The resharding operations on a plan's mesh, and their prices. */
export function resharderOf({ cluster, assignment: { mesh }, allToAll }: PricedPlan): Resharder {
  return resharderOn(cluster, mesh, allToAll);
}

/** By operator the prices on its stage, of several the first; on the whole cluster without a pipeline. */
export function stagePricesOf(plan: PricedPlan): (operator: string) => StagePrices {
  const whole: StagePrices = { cluster: plan.cluster, resharder: resharderOf(plan) };
  const { stages = [] } = plan;
  const clusters = clustersOf(stages, plan.cluster);
  const known = new Map<Cluster, StagePrices>([[plan.cluster, whole]]);
  const prices = new Map<string, StagePrices>();
  for (const [stage, { graph }] of stages.entries()) {
    const cluster = clusters[stage] ?? plan.cluster;
    const own = madeOnce(known, cluster, () => ({
      cluster,
      resharder: pricedOn(cluster, plan.assignment.mesh, whole.resharder),
    }));
    for (const { name } of graph.nodes) madeOnce(prices, name, () => own);
  }
  return (operator) => prices.get(operator) ?? whole;
}
