/**
 * @file What each part of a model costs on one rank of a stage: seconds per micro-batch and direction, bytes, and what a stage
 * pays once per step for what it holds. A step is a sum of these (`step-price.ts`, `step-memory.ts`); searches price the parts
 * once and place layers by them. Nothing here depends on which layers lie on which stage.
 */
import type { Cluster } from '../cluster.js';
import { collectiveSeconds } from '../collective-price.js';
import type { StepConfiguration } from './configuration.js';
import type { StepConstants } from './constants.js';
import { type DataPrice, dataPricing, type Held, NONE, type Under } from './data-price.js';
import { elementBytes, memorySeconds } from './kernel-price.js';
import { groupRuns, hopOf } from './mesh-order.js';
import { heldByLast, heldOf, type PartBytes, partBytes } from './part-bytes.js';
import { PhasePricing } from './phase-price.js';
import { NOTHING, type PhaseTime, plus, secondsOf } from './phase-time.js';
import type { ModelWork, PartWork } from './work.js';

export interface PartPrice {
  /** Of one micro-batch; backward with what is recomputed. */
  readonly forward: PhaseTime;
  readonly backward: PhaseTime;
  readonly forwardSeconds: number;
  readonly backwardSeconds: number;
  readonly held: Held;
  readonly bytes: PartBytes;
}

/** One class of layers, of which there are `count`. */
export interface LayerPrice {
  readonly count: number;
  /** One that keeps all that its backward reads. */
  readonly kept: PartPrice;
  /** One that recomputes as the configuration says; the same as `kept` where it says none. */
  readonly recomputed: PartPrice;
}

export interface PartPrices {
  readonly first: PartPrice;
  readonly layers: readonly LayerPrice[];
  /** With a table of its own where it shares the embedding's and lies on another stage. */
  readonly last: PartPrice;
  /** One activation, or its gradient, from a stage to its neighbour; `blocks`: the stage computes nothing while it sends. */
  readonly send: { readonly seconds: number; readonly blocks: boolean; readonly bytes: number };
  /** Once per step, for what a stage holds: gradients and parameters over the data-parallel ranks. */
  readonly data: (held: Held, under: Under) => DataPrice;
  /** Once per step, for what a stage holds. */
  readonly optimizerSeconds: (held: Held) => number;
}

/** Seconds of a model's parts, which no ZeRO level and no number of chunks changes. */
export interface PartTimes {
  readonly first: Times;
  /** By class of layers; `again` is their backward where they recompute as the configuration says. */
  readonly layers: readonly (Times & { readonly again: PhaseTime | null })[];
  readonly last: Times;
}

type Times = Pick<PartPrice, 'forward' | 'backward'>;

/** The seconds of a model's parts on devices that are all alike. */
export function timeParts(
  model: ModelWork,
  configuration: StepConfiguration,
  cluster: Cluster,
  constants: StepConstants,
): PartTimes {
  const { inference, recompute } = configuration;
  const pricing = new PhasePricing(model.hidden, model.chosen, configuration, cluster, constants);
  const phases = ({ forward, backward }: PartWork, head = false) => ({
    forward: pricing.phase(forward, head),
    backward: inference ? NOTHING : pricing.phase(backward, head),
  });
  return {
    first: phases(model.first),
    layers: model.layers.map(({ part }) => {
      const { forward, backward } = phases(part);
      const again = recompute === 'none' || inference ? null : plus(backward, pricing.again(part, recompute));
      return { forward, backward, again };
    }),
    last: phases(model.last, true),
  };
}

/**
 * The prices of a model's parts on devices that are all alike.
 * @param cluster of the stage that they are for, where stages lie on nodes of several kinds (`stages.ts`)
 * @param times of the parts, where the caller has them already
 */
export function priceParts(
  model: ModelWork,
  configuration: StepConfiguration,
  cluster: Cluster,
  constants: StepConstants,
  times: PartTimes = timeParts(model, configuration, cluster, constants),
): PartPrices {
  const { inference, frozen } = configuration;
  const bytes = partBytes(model, configuration);
  const perLayer = averageLayer(model, configuration);
  return {
    first: partPrice(times.first, heldOf(model.first, configuration), bytes.first),
    layers: model.layers.map(({ count, part }, index) => {
      const { forward, backward, again } = times.layers[index] ?? { ...times.first, again: null };
      const held = heldOf(part, configuration);
      const { kept = bytes.first, recomputed = bytes.first } = bytes.layers[index] ?? {};
      const whole = partPrice({ forward, backward }, held, kept);
      if (again === null) return { count, kept: whole, recomputed: whole };
      return { count, kept: whole, recomputed: partPrice({ forward, backward: again }, held, recomputed) };
    }),
    last: partPrice(times.last, heldByLast(model, configuration), bytes.last),
    send: sendPrice(model, configuration, cluster),
    data: frozen || inference ? () => NONE : dataPricing(perLayer, configuration, cluster, constants),
    optimizerSeconds: (held) => (frozen || inference ? 0 : updateSeconds(held, configuration, cluster, constants)),
  };
}

function partPrice(
  { forward, backward }: Pick<PartPrice, 'forward' | 'backward'>,
  held: Held,
  bytes: PartBytes,
): PartPrice {
  return { forward, backward, forwardSeconds: secondsOf(forward), backwardSeconds: secondsOf(backward), held, bytes };
}

/** Elements of parameters of a layer on one rank, over all layers. */
function averageLayer({ layers }: ModelWork, configuration: StepConfiguration): number {
  let elements = 0;
  let layerCount = 0;
  for (const { count, part } of layers) {
    const { dense, experts } = heldOf(part, configuration);
    elements += count * (dense + experts);
    layerCount += count;
  }
  return elements / layerCount;
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
  { dense, experts }: Held,
  { degrees, zero, shardRanks }: StepConfiguration,
  cluster: Cluster,
  constants: StepConstants,
): number {
  const shardedBy = zero === 0 ? 1 : (shardRanks ?? degrees.dp * degrees.sp);
  const updated = (dense + experts * (zero === 0 ? 1 : Math.max(1, degrees.ep))) / shardedBy;
  return memorySeconds(updated * constants.optimizerBytes, cluster.device);
}
