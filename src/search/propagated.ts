/**
 * @file Plans by propagation alone, for whatever degrees are possible.
 */
import type { Cluster } from '../cost-model/cluster.js';
import type { Graph } from '../ir/graph.js';
import { BY_PROPAGATION } from './by-propagation.js';
import { type PlanOptions, type PlanResult, plan } from './plan.js';

/**
 * Plans a graph for a cluster as `plan` does, each combination of degrees completed by propagation. Without a pin that is
 * data parallelism.
 * @throws AutoparError as `plan` does, and `pins-contradict` (noPlan)
 */
export async function planByPropagation(
  graph: Graph,
  cluster: Cluster,
  options: PlanOptions = {},
): Promise<PlanResult> {
  return plan(graph, cluster, options, BY_PROPAGATION);
}
