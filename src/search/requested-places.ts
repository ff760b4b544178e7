/**
 * @file The places of tensors that are kept outside of the devices, from a request and pins.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { AutoparError } from '../ir/error.js';
import { type Graph, isBackward } from '../ir/graph.js';
import { hostedWith, type OffloadPlaces } from '../partition/offload.js';
import type { Pin } from '../sharding-propagation/pin.js';
import { offloadParts, offloadWords } from '../strategy/offload-words.js';
import type { PlanRequest } from '../strategy/request.js';

/**
 * @throws AutoparError (usage) `bad-option` for parts that inference lacks, `no-host` where nothing is known of the devices'
 * hosts
 */
export function requestedParts(
  graph: Graph,
  cluster: Cluster,
  { offload = 'none' }: PlanRequest,
): OffloadPlaces['parts'] {
  const parts = offloadParts(offload);
  const asked = `--offload ${offloadWords(parts)}`;
  const ofTraining = Object.keys(parts).filter((part) => part !== 'parameters');
  if (ofTraining.length > 0 && !graph.nodes.some(({ phase }) => isBackward(phase)))
    throw new AutoparError(
      'bad-option',
      'usage',
      `${asked}: ${ofTraining.join(', ')} apply to training only: inference stores only parameters`,
      {},
      'add --train, or give --offload parameters',
    );
  if (Object.keys(parts).length > 0) checkHost(cluster, asked);
  return parts;
}

/** Operators that pins put on the host, with their gradients. @throws AutoparError (usage) `no-host` */
export function requestedHosted(graph: Graph, cluster: Cluster, pins: readonly Pin[]): OffloadPlaces['hosted'] {
  const pinned = new Set(pins.flatMap((pin) => (pin.kind === 'place' && pin.place === 'host' ? [pin.node] : [])));
  if (pinned.size > 0) checkHost(cluster, `place: host of ${[...pinned][0]}`);
  return hostedWith(graph, ({ name }) => pinned.has(name));
}

function checkHost({ local, device }: Cluster, asked: string): void {
  if (local || device.host) return;
  throw new AutoparError(
    'no-host',
    'usage',
    `${asked}: device ${device.id} has no host data`,
    {},
    'set host: {memory, memoryBandwidth, bandwidth} of the device in a cluster file (docs/clusters.md)',
  );
}
