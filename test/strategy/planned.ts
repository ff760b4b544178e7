/**
 * @file Plans of graphs that were built by hand.
 */
import { parseCluster } from '../../src/cost-model/cluster.js';
import type { Graph } from '../../src/ir/graph.js';
import { plan as search } from '../../src/search/plan.js';
import { type PlacedPlan, placePlan } from '../../src/strategy/placed-operators.js';
import type { Plan } from '../../src/strategy/plan.js';
import { planOf } from '../../src/strategy/plan-of.js';

/** The plan of a graph for ranks of this machine, and the same spelt out. */
export async function planFor(
  graph: Graph,
  degrees: { readonly dp: number; readonly tp: number },
): Promise<{ readonly plan: Plan; readonly placed: PlacedPlan }> {
  const cluster = parseCluster('local', degrees.dp * degrees.tp);
  const found = await search(graph, cluster, { degrees });
  const model = { graph, name: graph.name, fingerprint: 'a'.repeat(64), dims: {}, globalBatch: null, passes: [] };
  const plan = planOf(found, model, cluster);
  return { plan, placed: placePlan(plan, graph) };
}
