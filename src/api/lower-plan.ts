/**
 * @file From a plan that was read to its sharded graph, without a search: what compile did after it.
 */
import { type Cluster, parseCluster } from '../cost-model/cluster.js';
import { clusterOfDescription } from '../cost-model/cluster-file.js';
import { stepPrice } from '../cost-model/price.js';
import { redistributionBound } from '../cost-model/redistribution-bound.js';
import type { Graph } from '../ir/graph.js';
import { partition } from '../partition/partition.js';
import type { ShardedGraph } from '../partition/sharded-graph.js';
import { makeRedistributor } from '../sharding-propagation/redistribution.js';
import { assignmentOf } from '../strategy/assignment-of.js';
import type { Plan } from '../strategy/plan.js';

/** The cluster that a plan is for. */
export function clusterOf({ cluster }: Plan): Cluster {
  if (cluster.description) return clusterOfDescription(cluster.description);
  return parseCluster(`${cluster.nodes}x${cluster.perNode}:${cluster.device}`, undefined);
}

/** The graph lowered under a plan. @throws AutoparError (input) where it is not a plan of this graph */
export function lowerPlan(plan: Plan, graph: Graph): ShardedGraph {
  const assignment = assignmentOf(plan, graph);
  const cluster = clusterOf(plan);
  const price = stepPrice(cluster, assignment.mesh);
  const bound = redistributionBound(cluster, assignment.mesh, price);
  const redistributor = makeRedistributor(assignment.mesh, price, bound, { allToAll: plan.allToAll !== false });
  return partition(graph, assignment, redistributor);
}
