/** @file Resharding by the least time on a cluster. */
import type { Mesh } from '../sharding-propagation/mesh.js';
import { makeResharder, type Resharder } from '../sharding-propagation/resharding.js';
import type { Cluster } from './cluster.js';
import { stepPrice } from './price.js';
import { reshardBound } from './reshard-bound.js';

/** @param allToAll whether a route may have all-to-alls */
export function resharderOn(cluster: Cluster, mesh: Mesh, allToAll: boolean): Resharder {
  const price = stepPrice(cluster, mesh);
  return makeResharder(mesh, price, reshardBound(cluster, mesh, price), { allToAll });
}

/** The routes of another resharder on this mesh, with their costs on a cluster. */
export function pricedOn(cluster: Cluster, mesh: Mesh, { ops }: Pick<Resharder, 'ops'>): Resharder {
  const price = stepPrice(cluster, mesh);
  return {
    ops,
    cost: (from, to, shape, elementBits) =>
      ops(from, to, shape, elementBits).reduce((sum, op) => sum + price(op, shape, elementBits), 0),
  };
}
