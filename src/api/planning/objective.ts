/**
 * @file The objective that a plan is chosen by: seconds or memory of a step, or the part of the cluster that runs it at the least
 * device-seconds or with the fewest devices in time. The part is chosen by the price of layers; its plan is lowered as usual.
 */
import { clusterSize } from '../../cost-model/cluster.js';
import { badOption } from '../../ir/error.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import type { ImportedModel } from '../models/import.js';
import type { Training } from '../models/training.js';
import type { NestedCompileOptions } from '../requests/compile-options.js';
import { asSearched, unproposed } from './proposals.js';
import type { ClusterSize } from './search-clusters.js';

/** The options for the part of the cluster that is planned for; `sizes` of all parts, null for the whole cluster. */
export interface OnPart {
  readonly options: NestedCompileOptions;
  readonly sizes: readonly ClusterSize[] | null;
}

/**
 * Chooses the part of the cluster.
 * @throws AutoparError (usage) `bad-option` where layers have no price for the request; as `searchClusters` does
 */
export async function onPart(
  options: NestedCompileOptions,
  training: Training | undefined,
  read: ImportedModel,
): Promise<OnPart> {
  const { objective = 'time', within, devices: _, ...others } = options;
  if (objective === 'time') return { options, sizes: null };
  const reason = unproposed(options, training);
  if (reason !== null)
    throw badOption(
      `--objective ${objective} compares steps by layer prices, and ${reason}`,
      'leave one of the two out',
    );
  if (objective === 'memory') return { options, sizes: null };
  const { searchClusters } = await import('./search-clusters.js');
  const { simulation, sizes } = await searchClusters({
    ...asSearched(options, training, read),
    objective,
    ...withoutUndefined({ within, timeLimit: options.timeLimit && options.timeLimit / 2 }),
  });
  const { cluster } = simulation;
  const part = cluster.local ? { devices: clusterSize(cluster) } : { clusterHints: { file: cluster } };
  return { options: { ...others, objective, ...withoutUndefined({ within }), ...part }, sizes };
}
