/**
 * @file The work of planning the operators of a graph, estimated before they are planned: how many plans there is time for.
 */
import { type Cluster, clusterSize } from '../../cost-model/cluster.js';
import type { Degrees } from '../../cost-model/step/configuration.js';
import type { Graph } from '../../ir/graph.js';
import { divisors } from '../../search/configurations/space.js';

/**
 * The most work: operators times sub-axes, over all meshes that operators are planned on: some 10 s, and more for deep models.
 * dp and tp alone may take this much, and proposals as much again; beyond it, one proposal that fits is enough.
 */
export const MOST_WORK = 50_000;

/** The same for the first proposal of each kind: prices of layers are least reliable between kinds. */
export const MOST_WORK_OF_KINDS = 100_000;

/** The same with any axis on any factor: some 10 s. Roles are kept beyond it. */
export const MOST_WORK_WITHOUT_ROLES = 5_000;

/** The work of planning dp and tp alone, on every mesh that is left open. */
export function plainWork(cluster: Cluster, graph: Graph, { dp, tp, pp = 1, sp = 1 }: Partial<Degrees> = {}): number {
  const devices = clusterSize(cluster) / (pp * sp);
  const meshes = Number.isInteger(devices) && dp === undefined && tp === undefined ? divisors(devices).length : 1;
  return meshes * meshWork(graph, Math.max(1, devices));
}

/** The work of planning the operators of a graph on one mesh of this many devices. */
export function meshWork({ nodes }: Graph, devices: number): number {
  return nodes.length * Math.max(1, Math.log2(devices));
}
