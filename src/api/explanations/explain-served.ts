/**
 * @file What a parameter server changes of what `explain` says of a tensor: which rank holds it, and that a gradient is reduced
 * to that rank in place of an all-reduce.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { priceNode } from '../../cost-model/price.js';
import type { View } from '../../partition/assignment.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import type { CommunicationNode, ShardedGraph } from '../../partition/sharded-graph.js';
import { servedSteps } from '../../search/view-steps.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import type { Plan } from '../../strategy/plan.js';

/** The stages where one rank updates for others; nothing where all ranks update. */
export function servedStages(
  { server }: Pick<Plan, 'server'>,
  lowered: () => readonly LoweredStage[],
): { readonly served?: readonly LoweredStage[] } {
  return server ? { served: lowered() } : {};
}

/** A redistribution as the program has it. */
export function asServed<Found extends { readonly steps: readonly string[]; readonly seconds: number }>(
  found: Found,
  view: View,
  mesh: Mesh,
  served: readonly LoweredStage[] | undefined,
  cluster: Cluster,
): Found {
  for (const { sharded } of served ?? []) {
    const reduce = sharded.nodes.find((node) => isReduceOf(node, view));
    if (reduce?.kind !== 'communicate' || reduce.collective.kind !== 'reduce') continue;
    const { reduction } = reduce.collective;
    const all: CommunicationNode = { ...reduce, collective: { kind: 'all-reduce', reduction } };
    const more = priceNode(reduce, sharded, cluster) - priceNode(all, sharded, cluster);
    const [steps = []] = servedSteps([found.steps], { views: [view], mesh }, [{ sharded }]);
    return { ...found, steps, seconds: Math.round(found.seconds * 1e9 + more) / 1e9 };
  }
  return found;
}

function isReduceOf(node: ShardedGraph['nodes'][number], { tensor, readers: [first] }: View): boolean {
  return (
    node.kind === 'communicate' &&
    node.collective.kind === 'reduce' &&
    node.input === tensor &&
    node.origin === first?.name
  );
}
