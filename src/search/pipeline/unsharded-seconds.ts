/**
 * @file Seconds of unsharded operators on one device, by which a model is cut into parts before it is sharded.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { priceFragment } from '../../cost-model/price.js';
import { type Graph, type Node, runsPerStep } from '../../ir/graph.js';
import { operatorOf } from '../../ir/operator-of.js';
import { madeOnce } from '../../ir/remembered.js';
import { structureKey } from '../../ir/structure-key.js';
import { lowerOperator } from '../../partition/lower-operator.js';
import { makeMesh } from '../../sharding-propagation/mesh.js';
import { REPLICATED } from '../../sharding-propagation/strategy.js';

/** Seconds of a step by node. Equal operators are priced once. */
export function unshardedSeconds(graph: Graph, cluster: Cluster): ReadonlyMap<Node, number> {
  const mesh = makeMesh([]);
  const known = new Map<string, number>();
  return new Map(
    graph.nodes.map((node) => {
      const operator = operatorOf(graph, node);
      const key = structureKey(operator);
      const seconds = madeOnce(
        known,
        key,
        () => priceFragment(lowerOperator(operator, REPLICATED, mesh).fragment, cluster) / 1e9,
      );
      return [node, runsPerStep(node.phase, graph) * seconds];
    }),
  );
}
