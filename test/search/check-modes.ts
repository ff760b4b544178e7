/**
 * @file One graph planned in every mode that searches.
 */
import type { ExecutionContext } from 'ava';
import type { Cluster } from '../../src/cost-model/cluster.js';
import type { Graph } from '../../src/ir/graph.js';
import { type PlanOptions, plan } from '../../src/search/plan.js';

/** Dynamic programming and the integer program agree where both prove; recursive programming is not cheaper, and bounded. */
export async function checkModes(
  t: ExecutionContext,
  graph: Graph,
  cluster: Cluster,
  options: PlanOptions,
): Promise<void> {
  const [dynamic, integer, recursive] = await Promise.all(
    (['dynamic_programming', 'ilp', 'recursive_programming'] as const).map((mode) =>
      plan(graph, cluster, { ...options, mode }),
    ),
  );
  if (!dynamic || !integer || !recursive) return t.fail();
  t.is(integer.costNanoseconds, dynamic.costNanoseconds);
  t.is(integer.boundNanoseconds, dynamic.boundNanoseconds);
  t.is(dynamic.boundNanoseconds, dynamic.costNanoseconds);
  t.true(recursive.costNanoseconds >= dynamic.costNanoseconds);
  t.true(recursive.boundNanoseconds <= dynamic.costNanoseconds);
  t.true(recursive.boundNanoseconds > 0);
  t.log(
    `${graph.nodes.length} operators: ${dynamic.costNanoseconds} ns; recursive programming ` +
      `${recursive.costNanoseconds} ns, at least ${recursive.boundNanoseconds} ns`,
  );
}
