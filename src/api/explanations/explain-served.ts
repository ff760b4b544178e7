/**
 * @file What a parameter server changes of what `explain` says of a tensor: which rank holds it, and that a gradient is reduced
 * to that rank in place of an all-reduce.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { priceNode } from '../../cost-model/price.js';
import type { SharedReshard } from '../../partition/assignment.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import type { CommunicationNode, ShardedGraph } from '../../partition/sharded-graph.js';
import { servedOpTexts } from '../../search/reshard-texts.js';
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
