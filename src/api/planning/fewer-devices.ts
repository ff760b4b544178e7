/**
 * @file Whether fewer devices make a step as fast: searches device subsets, from half of it downwards, for a step within
 * 2 % of the plan's, until a size has none.
 */
import { type Cluster, clusterSize } from '../../cost-model/cluster.js';
import { clusterParts } from '../../cost-model/cluster-parts.js';
import { nullIfRefused } from '../../ir/error.js';
import { NEAR, roomyBytes } from '../../search/preference.js';
import type { Simulation } from '../simulate.js';
import { fastest, pricingFor } from './preferred-step.js';
import type { PreparedStep } from './prepared-step.js';

export interface FewerDevices {
  readonly nodes: number;
  readonly perNode: number;
  readonly stepSeconds: number;
}

/**
 * @param prepare reads the step for a part of the cluster
 * @returns the fewest; null where none are as fast, and where another objective or a time limit prevents the comparison
 */
export async function fewerDevices(
  prepare: (on: Cluster) => Promise<PreparedStep>,
  prepared: PreparedStep,
  { simulation, isCutOff }: { readonly simulation: Simulation; readonly isCutOff: boolean },
): Promise<FewerDevices | null> {
  const { cluster, searching } = prepared;
  const { stepSeconds, utilisation } = simulation;
  const isTimed = searching.objective === 'time' && searching.isOver === undefined;
  // Half of the devices would take longer even at their peak speed.
  const isBusy = 2 * utilisation > NEAR;
  if (!isTimed || isCutOff || cluster.local || isBusy) return null;
  const sizes = new Map<number, FewerDevices | null>();
  let fewest: FewerDevices | null = null;
  for (const { cluster: on } of [...clusterParts(cluster)].reverse()) {
    const devices = clusterSize(on);
    if (devices > clusterSize(cluster) / 2 || sizes.get(devices)) continue;
    const larger = [...sizes.keys()].filter((size) => size > devices);
    if (larger.some((size) => sizes.get(size) === null)) break;
    // The devices of a part may allow no combination of degrees.
    const found = await asFast(await prepare(on).catch(nullIfRefused), stepSeconds * NEAR);
    sizes.set(devices, found);
    fewest = found ?? fewest;
  }
  return fewest;
}

/** The fastest step of fewer devices, if it takes at most this many seconds. */
async function asFast(prepared: PreparedStep | null, most: number): Promise<FewerDevices | null> {
  if (!prepared) return null;
  const { cluster, limitBytes, preferences } = prepared;
  const limit = limitBytes === null ? null : roomyBytes(limitBytes, preferences);
  const [best] = fastest(prepared, pricingFor(prepared), limit, most).best;
  if (!best) return null;
  const { seconds } = best;
  return seconds <= most ? { nodes: cluster.nodes, perNode: cluster.perNode, stepSeconds: seconds } : null;
}
