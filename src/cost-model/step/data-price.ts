/**
 * @file The cost of data parallelism in a step: gradients are reduced and parameters gathered, once per step or, with ZeRO 3,
 * for every micro-batch (Rajbhandari et al. 2020).
 */

import type { Cluster } from '../cluster.js';
import { type CollectiveKind, collectiveOver } from '../collective-price.js';
import { evenPlace, type GroupPlace, groupPlace } from '../group-place.js';
import { elementBytes } from '../kernel-price.js';
import { exposedSeconds } from '../phase.js';
import type { StepConfiguration } from './configuration.js';
import type { StepConstants } from './constants.js';
import { groupRuns } from './mesh-order.js';
import { NO_TRANSFER, type TransferPrice } from './offload.js';

/** Elements of parameters that one rank of a stage holds before ZeRO shards them. */
export interface RankParameters {
  readonly dense: number;
  /** Parameters of the experts of this rank. */
  readonly experts: number;
}

/** Compute that hides communication: seconds of a stage's layers, for one micro-batch and for its first or last ones. */
export interface HidingCompute {
  readonly forward: number;
  readonly backward: number;
  /** Before a stage's first parameters are needed, and after its first gradients are whole: more than one micro-batch's where
   * chunks are interleaved, since p micro-batches pass one chunk before the next. */
  readonly firstForwards: number;
  readonly lastBackwards: number;
  readonly microBatches: number;
}

/**
 * Reduction of gradients and gathering of parameters over the data-parallel ranks, as a function of a stage's parameters.
 * @param perLayer elements of parameters of a layer on one rank, which ZeRO 3 gathers at once
 */
export function dataPricing(
  perLayer: number,
  configuration: StepConfiguration,
  cluster: Cluster,
  constants: StepConstants,
): (held: RankParameters, under: HidingCompute) => TransferPrice {
  const { degrees, zero, gradientBytes, overlap, software } = configuration;
  const ranks = degrees.dp * degrees.sp;
  if (ranks === 1) return () => NO_TRANSFER;
  const runs = groupRuns(degrees, configuration.meshOrder);
  const isOneRing = zero === 3 && software === 'megatron';
  const place = isOneRing ? flat(ranks, cluster) : groupPlace(runs.dp, cluster.levels);
  const width = elementBytes(configuration.precision);
  const replicas = ranks / degrees.ep;
  const expertPlace = groupPlace(runs.replicas, cluster.levels);
  const { contention } = constants;
  const of = (kind: CollectiveKind) => {
    const whole = collectiveOver(kind, place, cluster);
    const own = replicas > 1 ? collectiveOver(kind, expertPlace, cluster) : null;
    return (dense: number, experts: number, bytes: number): number =>
      whole(dense * bytes) + (experts > 0 && own ? own(experts * bytes) : 0);
  };
  const reducing = of(zero === 0 ? 'all-reduce' : 'reduce-scatter');
  const gathering = of('all-gather');
  // For ZeRO 3, whose messages are layers.
  const hopSeconds = (isOneRing ? RING_MESSAGES : 1) * ranks * constants.ringHopSeconds;
  const hopsOf = (elements: number) => (elements / perLayer) * hopSeconds;
  const hide = (seconds: number, under: number) => (overlap.data ? exposedSeconds(seconds, under, constants) : seconds);
  return ({ dense, experts }, { forward, backward, firstForwards, lastBackwards, microBatches: m }) => {
    if (dense + experts === 0) return NO_TRANSFER;
    // An expert's gradient is shared by the ranks that hold the same expert alone.
    const wire = dense * ((ranks - 1) / ranks) + experts * ((replicas - 1) / replicas);
    if (zero === 3) {
      // Two gathers and a scatter per micro-batch, each under the neighbouring layers' compute.
      const gather = gathering(dense, experts, width) + hopsOf(dense + experts);
      const scatter = reducing(dense, experts, gradientBytes) + hopsOf(dense + experts);
      const startup = (gather * perLayer) / (dense + experts);
      const hideable = overlap.data ? constants.hiddenData : 0;
      const exposed =
        Math.max(startup, gather - forward * hideable) + Math.max(0, gather + scatter - backward * hideable);
      const hidden = 2 * gather + scatter - exposed;
      return {
        exposed: m * (exposed + contention * hidden),
        hidden: m * hidden,
        bytes: m * wire * (2 * width + gradientBytes),
      };
    }
    const reduce = reducing(dense, experts, gradientBytes);
    const gather = zero === 0 ? 0 : gathering(dense, experts, width);
    // ZeRO 2 reduce-scatters gradients after every micro-batch; with whole gradients, all micro-batches are added up first.
    const earlier = zero === 2 ? m - 1 : 0;
    const exposed = hide(reduce, lastBackwards) + earlier * hide(reduce, backward) + hide(gather, firstForwards);
    const hidden = (1 + earlier) * reduce + gather - exposed;
    return {
      exposed: exposed + contention * hidden,
      hidden,
      bytes: wire * (zero === 0 ? 2 * gradientBytes : (1 + earlier) * gradientBytes + width),
    };
  };
}

/** Messages in which Megatron's layers under ZeRO 3 of 2021 are gathered: one for each tensor (docs/cost-model.md). */
const RING_MESSAGES = 12;

/** One ring through all ranks: bytes enter a node over one card, not over all of them side by side. */
function flat(ranks: number, { levels }: Cluster): GroupPlace {
  return evenPlace(levels.map((_, level) => (level === levels.length - 1 ? ranks : 1)));
}
