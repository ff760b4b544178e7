/**
 * @file The least that a step takes whose stages may lie on devices of several kinds, however its layers are shared out: what all
 * stages do together, divided by the sum of what their devices can do.
 *
 * With t(j, k) the seconds of part j on devices of kind k, n(j) the number of such parts, S(s) the seconds of stage s and any
 * weights w(s) ≥ 0 (duality of the linear program that shares parts out),
 *
 *     Σ w(s) · S(s)  ≥  Σ n(j) · min over s of w(s) · t(j, k(s))
 *
 * With w(s) = 1 / W(k(s)), a kind's speed for the whole model, the right side is ρ, at most 1, and 1 where every part is slowed
 * alike: the slowest stage takes ρ / Σ 1/W at least.
 */
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import type { PartPrice, PartPrices } from '../../cost-model/step/part-price.js';
import { microBatches, scheduleRequest } from '../../cost-model/step/step-price.js';
import type { BoundRequest } from './bound-request.js';
import { mostCommon, recomputedAtLeast } from './least-recomputed.js';
import { bubbleShare, interleavedFill, passesBeside, passesOf, secondsOf, stepOf, withOnce } from './variant-bound.js';

/**
 * As `variantBound`, of stages that differ: seconds, infinite where memory holds no cut at all.
 * @param stages prices of the model's parts on the devices of each stage: one record where devices are alike
 */
export function unlikeBound(stages: readonly PartPrices[], request: BoundRequest): number {
  const [first] = stages;
  const again = first ? recomputedAtLeast(first, request) : 0;
  if (again === Number.POSITIVE_INFINITY) return again;
  const filled = unlikePipeline(stages, request.configuration, { ...request, again });
  const least = [...new Set(stages)].map((prices) => withOnce(filled, prices, request));
  return stepOf(Math.min(...least), request.configuration, request.cluster);
}

/** As `paceBound`, of stages that differ: no more than `unlikeBound`, and the same for every ZeRO level. */
export function unlikePace(stages: readonly PartPrices[], request: BoundRequest): number {
  const seconds = unlikePipeline(stages, request.configuration, { ...request, again: 0 });
  return stepOf(seconds, request.configuration, request.cluster);
}

/** What is known of recomputation: whether layers may do without, and how many of the commonest class do not at least. */
interface Recomputing {
  readonly isMixed: boolean;
  readonly again: number;
}

/** Seconds that all micro-batches of a schedule take at least, by stage prices. */
export function unlikePipeline(
  stages: readonly PartPrices[],
  configuration: StepConfiguration,
  recomputing: Recomputing,
): number {
  return pipelineLeast(sharesOf(stages, configuration.degrees.pp, recomputing), configuration);
}

/** What a pipeline's stages share out, whatever the schedule: seconds of one micro-batch. */
export interface Shares {
  /** Σ over stages of weight · seconds, where a stage's weight is one over its kind's whole: ρ. */
  readonly shared: number;
  /** Through all stages at least. */
  readonly through: number;
  /** Through the whole model on the devices of each stage: one figure where they are alike. */
  readonly wholes: readonly number[];
  /** Of the slowest stage, by its share, by the model's ends and by whole layers. */
  readonly slowest: number;
  readonly busiest: number;
  readonly hop: number;
  readonly blocks: boolean;
  /** Of 1F1B's waiting what zero-bubble leaves. */
  readonly left: number;
}

/** @param stages one record where devices are alike */
export function sharesOf(stages: readonly PartPrices[], count: number, recomputing: Recomputing): Shares {
  const kinds = [...new Set(stages)];
  const loads = loadsOf(kinds, recomputing);
  const whole = kinds.map((_, index) =>
    loads.reduce((sum, { count: parts, seconds }) => sum + parts * at(seconds, index), 0),
  );
  const through = loads.reduce((sum, { count: parts, seconds }) => sum + parts * Math.min(...seconds), 0);
  const shared =
    through === 0
      ? 0
      : loads.reduce(
          (sum, { count: parts, seconds }) =>
            sum + parts * Math.min(...seconds.map((own, index) => own / at(whole, index))),
          0,
        );
  const wholes = stages.map((prices) => at(whole, kinds.indexOf(prices)));
  const speeds = wholes.length === 1 ? count / at(wholes, 0) : wholes.reduce((sum, own) => sum + 1 / own, 0);
  const slowest = through === 0 ? 0 : shared / speeds;
  const ends = Math.max(
    secondsOf((stages[0] as PartPrices).first),
    secondsOf((stages[stages.length - 1] as PartPrices).last),
  );
  return {
    ...{ shared, through, wholes, slowest },
    busiest: Math.max(slowest, ends, wholeLayers(kinds, count, recomputing)),
    hop: Math.max(...kinds.map(({ send }) => send.seconds)),
    blocks: kinds[0]?.send.blocks ?? false,
    left: Math.min(...kinds.map(bubbleShare)),
  };
}

/** Seconds of all micro-batches. */
export function pipelineLeast(shares: Shares, configuration: StepConfiguration): number {
  const { kind, virtualStages: v, training, stages: p } = scheduleRequest(configuration);
  const { shared, through, wholes, slowest, busiest, hop, blocks, left } = shares;
  const m = microBatches(configuration);
  const isAlike = wholes.length === 1;
  const busy = m * busiest;
  if (p === 1 || through === 0) return busy;
  if (kind === 'naive') return Math.max(busy, m * through);
  if (!training || kind === 'f-then-b') return v > 1 ? busy : Math.max(busy, through + (m - 1) * slowest);
  // Of forwards and backwards together half is the lesser.
  const fill = isAlike ? interleavedFill(p, m, v, through / p / 2, through / p / 2) : 0;
  if (v > 1) return Math.max(busy, (m * through) / p + fill);
  // The first stage fills the pipeline, and drains it; between, nothing comes back faster than p micro-batches at a time.
  const around =
    m > p ? 2 * through + ((m - p - 1) * through) / p + (blocks ? (m - p - 1) * hop : 0) + 4 * (p - 1) * hop : through;
  let harmonic = isAlike ? passesBeside(p, m) / at(wholes, 0) : 0;
  for (let stage = 0; stage < p && !isAlike; stage++) harmonic += 1 / (at(wholes, stage) * passesOf(stage, p, m));
  const alternating = Math.max(busy, around, through + (m > 1 ? shared / harmonic : 0) + 2 * (p - 1) * hop);
  return kind === 'zero-bubble' ? left * alternating + (1 - left) * busy : alternating;
}

/** Parts that stages share: how many there are, and seconds of a micro-batch through one on devices of each kind. */
interface Load {
  readonly count: number;
  readonly seconds: readonly number[];
}

function loadsOf(kinds: readonly PartPrices[], { isMixed, again }: Recomputing): readonly Load[] {
  const on = (of: (prices: PartPrices) => number) => kinds.map(of);
  const [prices] = kinds as readonly [PartPrices];
  const own = (part: { readonly kept: PartPrice; readonly recomputed: PartPrice } | undefined) =>
    part ? secondsOf(isMixed ? part.kept : part.recomputed) : 0;
  const extra = (all: PartPrices) => {
    const most = mostCommon(all);
    return most ? most.recomputed.backwardSeconds - most.kept.backwardSeconds : 0;
  };
  return [
    { count: 1, seconds: on(({ first }) => secondsOf(first)) },
    ...prices.layers.map(({ count }, index) => ({ count, seconds: on(({ layers }) => own(layers[index])) })),
    { count: 1, seconds: on(({ last }) => secondsOf(last)) },
    { count: isMixed ? again : 0, seconds: on(extra) },
  ];
}

/** Of one class, some stage has as many whole layers. */
function wholeLayers(kinds: readonly PartPrices[], stages: number, { isMixed }: Recomputing): number {
  const each = kinds.flatMap(({ layers: [layer, ...others] }) =>
    layer && others.length === 0 ? [{ count: layer.count, ...(isMixed ? layer.kept : layer.recomputed) }] : [],
  );
  return each.length === 0 ? 0 : Math.min(...each.map((own) => Math.ceil(own.count / stages) * secondsOf(own)));
}

function at(values: readonly number[], index: number): number {
  return values[index] as number;
}
