/**
 * @file The cost of each part of a model on one rank of a stage: seconds per micro-batch and direction, bytes, and a stage's
 * cost once per step for the parameters that it holds. A step is a sum of these (`step-price.ts`, `step-memory.ts`); searches
 * price the parts once and place layers by them. Nothing here depends on which layers are on which stage.
 */
import { madeOnce } from '../../ir/remembered.js';
import type { Cluster } from '../cluster.js';
import { collectiveSeconds } from '../collective-price.js';
import { elementBytes, memorySeconds } from '../kernel-price.js';
import type { StepConfiguration } from './configuration.js';
import type { StepConstants } from './constants.js';
import { dataPricing, type HidingCompute, type RankParameters } from './data-price.js';
import { groupRuns, hopOf } from './mesh-order.js';
import {
  gradientTransfer,
  hostUpdateSeconds,
  layerTransfer,
  NO_TRANSFER,
  offloadsActivations,
  offloadsOptimizer,
  type TransferPrice,
} from './offload.js';
import { type PartBytes, type PartsBytes, partBytes, rankParameters, rankParametersOfLast } from './part-bytes.js';
import { PhasePricing } from './phase-price.js';
import { elapsedSeconds, longer, NOTHING, type PhaseTime, plus } from './phase-time.js';
import type { ModelWork, PartWork } from './work.js';

export interface PartPrice {
  /** Time of one micro-batch; backward includes recomputation. */
  readonly forward: PhaseTime;
  readonly backward: PhaseTime;
  readonly forwardSeconds: number;
  readonly backwardSeconds: number;
  readonly parameters: RankParameters;
  readonly bytes: PartBytes;
}

/** One class of layers, of which there are `count`. */
export interface LayerPrice {
  readonly count: number;
  /** One that stores all that its backward reads. */
  readonly stored: PartPrice;
  /** One that recomputes as the configuration states; the same as `stored` where that is nothing. */
  readonly recomputed: PartPrice;
}

export interface PartPrices {
  readonly first: PartPrice;
  readonly layers: readonly LayerPrice[];
  /** With a table of its own where it shares the embedding's and is on another stage. */
  readonly last: PartPrice;
  /** One activation, or its gradient, from a stage to its neighbour; `blocks`: the stage computes nothing while it sends. */
  readonly send: { readonly seconds: number; readonly blocks: boolean; readonly bytes: number };
  /** Once per step, for a stage's parameters: gradients and parameters over the data-parallel ranks. */
  readonly data: (held: RankParameters, under: HidingCompute) => TransferPrice;
  /** Once per step, for a stage's parameters. */
  readonly optimizerSeconds: (held: RankParameters) => number;
  /** For an update on the host: the transfer of its gradients there, some of which so many seconds of backward hide. */
  readonly gradientsOut: (held: RankParameters, lastBackwards: number) => TransferPrice;
}

/**
 * The prices of a model's parts on devices that are all alike.
 * @param cluster of the stage that they are for, where stages are on nodes of several kinds (`stages.ts`)
 * @param known what the caller has of it already
 */
export function priceParts(
  model: ModelWork,
  configuration: StepConfiguration,
  cluster: Cluster,
  constants: StepConstants,
  known: Partial<KnownOfParts> = {},
): PartPrices {
  const { inference, recompute } = configuration;
  const phases = known.phases ?? partPhases(model, configuration, cluster, constants);
  const bytes = known.bytes ?? partBytes(model, configuration);
  const perLayer = averageLayer(model, configuration);
  const moved = (phase: PhaseTime, { hostSaved }: PartBytes) =>
    offloadsActivations(configuration) ? layerTransfer(phase, hostSaved, cluster, constants) : phase;
  const layerPrice = (forward: PhaseTime, backward: PhaseTime, held: RankParameters, own: PartBytes) =>
    partPrice({ forward: moved(forward, own), backward: inference ? backward : moved(backward, own) }, held, own);
  return {
    first: partPrice(phases.first, rankParameters(model.first, configuration), bytes.first),
    layers: model.layers.map(({ count, part }, index) => {
      const { forward, backward, again } = phases.layers[index] as LayerPhases;
      const held = rankParameters(part, configuration);
      const { stored = bytes.first, recomputed = bytes.first } = bytes.layers[index] ?? {};
      const whole = layerPrice(forward, backward, held, stored);
      if (recompute === 'none' || inference) return { count, stored: whole, recomputed: whole };
      const withAgain = plus(backward, again(recompute));
      return { count, stored: whole, recomputed: layerPrice(forward, withAgain, held, recomputed) };
    }),
    last: partPrice(phases.last, rankParametersOfLast(model, configuration), bytes.last),
    send: sendPrice(model, configuration, cluster),
    data: inference ? () => NO_TRANSFER : dataPricing(perLayer, configuration, cluster, constants),
    optimizerSeconds: (held) => (inference ? 0 : updateSeconds(held, configuration, cluster, constants)),
    gradientsOut: (held, lastBackwards) =>
      inference || !offloadsOptimizer(configuration)
        ? NO_TRANSFER
        : gradientTransfer(updatedOf(held, configuration), lastBackwards, configuration, cluster, constants),
  };
}

/** Prices and bytes that a search computes once for many configurations. */
export interface KnownOfParts {
  readonly phases: PartPhases;
  readonly bytes: PartsBytes;
}

/**
 * Seconds of a micro-batch through the parts of a model. They do not depend on ZeRO, on the layers that recompute, on offload to
 * the host, or on the cut and schedule of stages.
 */
export interface PartPhases {
  readonly first: Pick<PartPrice, 'forward' | 'backward'>;
  readonly layers: readonly LayerPhases[];
  readonly last: Pick<PartPrice, 'forward' | 'backward'>;
}

interface LayerPhases extends Pick<PartPrice, 'forward' | 'backward'> {
  /** Time of the recomputation in backward. */
  readonly again: (recompute: StepConfiguration['recompute']) => PhaseTime;
}

/** Prices the phases that configurations of the same degrees, micro-batch, precision and software share. */
export function partPhases(
  model: ModelWork,
  configuration: StepConfiguration,
  cluster: Cluster,
  constants: StepConstants,
): PartPhases {
  const pricing = new PhasePricing(model.chosen, configuration, cluster, constants);
  const phases = ({ forward, backward }: PartWork, head = false) => ({
    forward: pricing.phase(forward, head),
    backward: configuration.inference ? NOTHING : pricing.phase(backward, head),
  });
  return {
    first: phases(model.first),
    layers: model.layers.map(({ part }) => {
      // One factor for all phases, whatever recomputes: then every bound that is made of parts' prices holds with it as without.
      const factor = cluster.layerFactors?.factorOf(part, configuration) ?? 1;
      const measured = (time: PhaseTime) => (factor === 1 ? time : longer(time, factor));
      const known = new Map<StepConfiguration['recompute'], PhaseTime>();
      const again = (recompute: StepConfiguration['recompute']) =>
        madeOnce(known, recompute, () => measured(pricing.again(part, recompute)));
      const { forward, backward } = phases(part);
      return { forward: measured(forward), backward: measured(backward), again };
    }),
    last: phases(model.last, true),
  };
}

function partPrice(
  { forward, backward }: Pick<PartPrice, 'forward' | 'backward'>,
  held: RankParameters,
  bytes: PartBytes,
): PartPrice {
  return {
    forward,
    backward,
    forwardSeconds: elapsedSeconds(forward),
    backwardSeconds: elapsedSeconds(backward),
    parameters: held,
    bytes,
  };
}

/** Elements of parameters of a layer on one rank, over all layers; where they have none, of the first and last part. */
function averageLayer(model: ModelWork, configuration: StepConfiguration): number {
  let elements = 0;
  let layerCount = 0;
  for (const { count, part } of model.layers) {
    elements += count * elementsOf(rankParameters(part, configuration));
    layerCount += count;
  }
  if (elements > 0) return elements / layerCount;
  const ends = [rankParameters(model.first, configuration), rankParametersOfLast(model, configuration)]
    .map(elementsOf)
    .filter((own) => own > 0);
  return ends.reduce((sum, own) => sum + own, 0) / Math.max(ends.length, 1);
}

function elementsOf({ dense, experts }: RankParameters): number {
  return dense + experts;
}

function sendPrice(model: ModelWork, configuration: StepConfiguration, cluster: Cluster): PartPrices['send'] {
  const { degrees, virtualStages, tpSequence, scatteredSends, overlap } = configuration;
  const { tp, sp } = degrees;
  const whole = (model.boundary * elementBytes(configuration.precision)) / sp;
  const bytes = tpSequence || scatteredSends ? whole / tp : whole;
  const seconds = collectiveSeconds(
    'permute',
    bytes,
    hopOf(groupRuns(degrees, configuration.meshOrder).pp, cluster),
    cluster,
  );
  // Between chunks there is other work to do; plain 1F1B waits for each.
  return { seconds, blocks: !(overlap.pipeline && virtualStages > 1), bytes };
}

function updateSeconds(
  held: RankParameters,
  configuration: StepConfiguration,
  cluster: Cluster,
  constants: StepConstants,
): number {
  const updated = updatedOf(held, configuration);
  return offloadsOptimizer(configuration)
    ? hostUpdateSeconds(updated, configuration, cluster, constants)
    : memorySeconds(updated * constants.optimizerBytes, cluster.device);
}

/** Elements of parameters that a rank updates. */
function updatedOf({ dense, experts }: RankParameters, { degrees, zero }: StepConfiguration): number {
  const shardedBy = zero === 0 ? 1 : degrees.dp * degrees.sp;
  return (dense + experts * (zero === 0 ? 1 : Math.max(1, degrees.ep))) / shardedBy;
}
