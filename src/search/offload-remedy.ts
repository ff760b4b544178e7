/**
 * @file What offload would bring where no plan fits the devices: the least of it that fits.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { memoryOf } from '../cost-model/predict.js';
import { type Graph, isBackward } from '../ir/graph.js';
import { type OffloadPlaces, offloaded } from '../partition/offload.js';
import { offloadParts } from '../strategy/offload-words.js';
import { lowered, type SolvedDegrees } from './choose-degrees.js';
import { bytesWritten } from './figures.js';

/** From what costs least to what frees most. */
const OF_TRAINING = ['optimizer', 'optimizer,activations', 'all'] as const;
const OF_INFERENCE = ['parameters'] as const;

/**
 * A remedy in words, with what a device would hold; null where none fits, or nothing is known of the devices' hosts.
 * @param solved under any memory
 * @param asked what is kept outside already
 */
export function offloadRemedy(
  graph: Graph,
  cluster: Cluster,
  limit: number,
  solved: readonly SolvedDegrees[],
  asked: OffloadPlaces,
): string | null {
  if (!cluster.local && !cluster.device.host) return null;
  const trains = graph.nodes.some(({ phase }) => isBackward(phase));
  const whole = solved.map((one) => ({ degrees: one.degrees, sharded: lowered(graph, cluster, one) }));
  for (const words of trains ? OF_TRAINING : OF_INFERENCE) {
    const places = { ...asked, parts: { ...offloadParts(words), ...asked.parts } };
    for (const { degrees, sharded } of whole) {
      const { peakBytes } = memoryOf(offloaded(sharded, places), cluster);
      if (peakBytes > limit) continue;
      const [need, allowed] = [peakBytes, limit].map(bytesWritten);
      return `add --offload ${words}: a device then holds ${need} of ${allowed} with dp ${degrees.dp} tp ${degrees.tp}`;
    }
  }
  return null;
}
