/**
 * @file How much work it is to plan the operators of a graph, before they are planned: how many plans there is time for.
 */
import { type Cluster, clusterSize } from '../../cost-model/cluster.js';
import type { Degrees } from '../../cost-model/step/configuration.js';
import type { Graph } from '../../ir/graph.js';
import { divisors } from '../../search/configurations/space.js';

/**
 * Operators times sub-axes, over all meshes that operators are planned on: some 10 s, and more where a model is deep. So much may
 * be for dp and tp alone, and as much for proposals, of which one that fits is enough beyond it.
 */
export const MOST_WORK = 50_000;

/** The same for proposals of one kind after another, between which prices of layers tell least. */
export const MOST_WORK_OF_KINDS = 100_000;

/** The same with any axis on any factor: some 10 s. Roles are kept beyond it. */
export const MOST_WORK_WITHOUT_ROLES = 5_000;

/** Of planning dp and tp alone, every mesh that is left open. */
export function plainWork(cluster: Cluster, graph: Graph, { dp, tp, pp = 1, sp = 1 }: Partial<Degrees> = {}): number {
  const devices = clusterSize(cluster) / (pp * sp);
  const meshes = Number.isInteger(devices) && dp === undefined && tp === undefined ? divisors(devices).length : 1;
  return meshes * meshWork(graph, Math.max(1, devices));
}

/** Of planning the operators of a graph on one mesh of so many devices. */
export function meshWork({ nodes }: Graph, devices: number): number {
  return nodes.length * Math.max(1, Math.log2(devices));
}
