/**
 * @file Changes that a parameter server makes to the explanation of a tensor: the rank that holds it, and the reduce of a
 * gradient to that rank instead of an all-reduce.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { priceNode } from '../../cost-model/price.js';
import type { SharedReshard } from '../../partition/assignment.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import type { CommunicationNode, ShardedGraph } from '../../partition/sharded-graph.js';
import { servedOpTexts } from '../../search/reshard-texts.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import type { Plan } from '../../strategy/plan.js';

/** The stages, if one rank updates for others; empty if all ranks update. */
export function servedStages(
  { server }: Pick<Plan, 'server'>,
  lowered: () => readonly LoweredStage[],
): { readonly served?: readonly LoweredStage[] } {
  return server ? { served: lowered() } : {};
}

/** A resharding as the program runs it. */
export function asServed<Found extends { readonly steps: readonly string[]; readonly seconds: number }>(
  found: Found,
  reshard: SharedReshard,
  mesh: Mesh,
  served: readonly LoweredStage[] | undefined,
  cluster: Cluster,
): Found {
  for (const { sharded } of served ?? []) {
    const reduce = sharded.nodes.find((node) => isReduceOf(node, reshard));
    if (reduce?.kind !== 'communicate' || reduce.collective.kind !== 'reduce') continue;
    const { reduction } = reduce.collective;
    const all: CommunicationNode = { ...reduce, collective: { kind: 'all-reduce', reduction } };
    const more = priceNode(reduce, sharded, cluster) - priceNode(all, sharded, cluster);
    const [steps = []] = servedOpTexts([found.steps], { sharedReshards: [reshard], mesh }, [{ sharded }]);
    return { ...found, steps, seconds: Math.round(found.seconds * 1e9 + more) / 1e9 };
  }
  return found;
}

function isReduceOf(node: ShardedGraph['nodes'][number], { tensor, readers: [first] }: SharedReshard): boolean {
  return (
    node.kind === 'communicate' &&
    node.collective.kind === 'reduce' &&
    node.input === tensor &&
    node.origin === first?.name
  );
}
