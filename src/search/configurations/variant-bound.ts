/**
 * @file Seconds that a step takes at least with given degrees, micro-batch, schedule and ZeRO level, however its layers are cut
 * into stages and whichever of them recompute: the continuous relaxation, in one formula.
 *
 * All stages together do all the work, so the pace is their mean at least, and a pipeline's fill is that of equal stages, or a
 * share of it that averaging over the stages proves. What memory forces to recompute is a fractional knapsack: each stage keeps
 * as many layers as its micro-batches in flight leave room for, and layers move to where they cost least room.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../cost-model/step/constants.js';
import type { LayerPrice, PartPrice, PartPrices } from '../../cost-model/step/part-price.js';
import { microBatches } from '../../cost-model/step/step-price.js';
import { type BoundRequest, MOST_CHUNKS, ROUNDING } from './bound-request.js';
import { mostCommon, recomputingAtLeast } from './least-recomputed.js';

/**
 * Seconds; infinite where memory holds no cut at all.
 * @param prices of the model's parts on the devices of every stage: where nodes differ see `unlike-stages.ts`
 */
export function variantBound(prices: PartPrices, request: BoundRequest): number {
  const { configuration } = request;
  const again = recomputingAtLeast(prices, request);
  if (again === Number.POSITIVE_INFINITY) return again;
  const { filled } = paceOf(prices, request, again);
  return stepOf(withOnce(filled, prices, request), configuration, request.cluster);
}

/**
 * The least of a pipeline that takes so long at least and of what some stage, with its share of the layers, pays once per step.
 */
export function withOnce(filled: number, prices: PartPrices, { configuration, isMixed }: BoundRequest): number {
  const most = mostCommon(prices);
  if (!most) return filled;
  const each = microBatches(configuration) * secondsOf(isMixed ? most.kept : most.recomputed);
  // Some stage has its share of the layers at least: the more it has, the longer it takes, whatever its gradients hide under.
  // Of several classes an even stage may have parts of layers (`chunkLayers`), so that counts are looked at in ranges.
  const others = prices.layers.filter((layer) => layer !== most);
  const share = most.count / configuration.degrees.pp;
  if (others.length === 0 && configuration.degrees.pp > 1) {
    const atLeast = (fewest: number, upTo: number) =>
      Math.max(filled, fewest * each) + onceBetween(most, fewest, upTo, prices, configuration);
    const from = Math.ceil(share);
    const first = atLeast(from, from);
    // With more layers than these the pipeline alone takes longer.
    return leastBetween(from + 1, Math.min(most.count, Math.floor(first / each)), first, atLeast);
  }
  let least = Number.POSITIVE_INFINITY;
  for (let count = others.length === 0 ? Math.ceil(share) : share; count <= most.count; count++) {
    const pipeline = Math.max(filled, count * each);
    if (pipeline >= least) break;
    least = Math.min(least, pipeline + onceAtLeast(most, count, others, prices, configuration));
  }
  return least;
}

/**
 * The least of what is known and of a function of whole numbers from one to another, by halves; below that by a thousandth at
 * most.
 * @param atLeast what the function is no less than between two of them
 */
function leastBetween(from: number, to: number, known: number, atLeast: (from: number, to: number) => number): number {
  if (from > to) return known;
  const bound = atLeast(from, to);
  if (from === to || bound >= known * NEARLY) return Math.min(known, bound);
  const middle = Math.floor((from + to) / 2);
  return leastBetween(middle + 1, to, leastBetween(from, middle, known, atLeast), atLeast);
}

const NEARLY = 0.999;

/** The same by its micro-batches alone: no more than `variantBound`, and the same for every ZeRO level. */
export function paceBound(prices: PartPrices, request: BoundRequest): number {
  const { filled, each, most } = paceOf(prices, request, 0);
  const share = (most?.count ?? 0) / request.configuration.degrees.pp;
  const count = prices.layers.length === 1 ? Math.ceil(share) : share;
  return stepOf(Math.max(filled, count * each), request.configuration, request.cluster);
}

/**
 * A configuration whose `variantBound` holds for all that differ from it in how many layers recompute and, where there are
 * several, in the number of chunks: what waits least, hides most and holds least.
 */
export function loosest(configuration: StepConfiguration, isMixed: boolean): StepConfiguration {
  const { virtualStages } = configuration;
  return {
    ...configuration,
    // With ever more chunks nothing waits, and gradients have the most micro-batches to hide under.
    virtualStages: virtualStages > 1 ? MOST_CHUNKS : 1,
    recompute: loosestRecompute(configuration, isMixed),
  };
}

/** What layers recompute in such a configuration. Those that do attention alone hold more and take less: another bound. */
export function loosestRecompute({ recompute }: StepConfiguration, isMixed: boolean): StepConfiguration['recompute'] {
  return isMixed && recompute === 'none' ? 'full' : recompute;
}

/** What bounds every variant with a ZeRO level: the waiting of endless chunks, and what one micro-batch in flight holds. */
export function loosestOfAll(request: BoundRequest, zero: StepConfiguration['zero']): BoundRequest {
  const { configuration, isMixed } = request;
  const own = loosest({ ...configuration, zero }, isMixed);
  if (configuration.degrees.pp === 1) return { ...request, configuration: own };
  return {
    ...request,
    configuration: { ...own, schedule: 'interleaved-1f1b', virtualStages: MOST_CHUNKS },
    holding: { ...own, schedule: 'naive', virtualStages: 1 },
  };
}

/**
 * Seconds of the pipeline with so many seconds of each micro-batch recomputed; and of all micro-batches through one layer of the
 * class of which there are most.
 */
function paceOf(prices: PartPrices, { configuration, isMixed }: BoundRequest, again: number) {
  const { first, layers, last } = prices;
  let forward = first.forwardSeconds + last.forwardSeconds;
  let backward = first.backwardSeconds + last.backwardSeconds;
  for (const { count, kept, recomputed } of layers) {
    const part = isMixed ? kept : recomputed;
    forward += count * part.forwardSeconds;
    backward += count * part.backwardSeconds;
  }
  const most = mostCommon(prices);
  if (isMixed) backward += again;
  const m = microBatches(configuration);
  const ends = Math.max(secondsOf(first), secondsOf(last));
  const filled = Math.max(filledSeconds(forward, backward, prices, configuration), m * ends);
  return { filled, most, each: most ? m * secondsOf(isMixed ? most.kept : most.recomputed) : 0 };
}

/** The whole step, from its pipeline, its data parallelism and its optimizer. */
export function stepOf(seconds: number, configuration: StepConfiguration, cluster: Cluster): number {
  const { tp, pp, dp, sp } = configuration.degrees;
  const nodes = Math.max(1, (tp * pp * dp * sp) / cluster.perNode);
  const outside = configuration.inference ? 0 : STEP_CONSTANTS.stepSeconds;
  return (seconds + outside) * (1 + STEP_CONSTANTS.jitter * Math.log2(nodes)) * ROUNDING;
}

/** The pipeline of a step that takes so long: `stepOf` the other way round. */
export function pipelineOf(step: number, configuration: StepConfiguration, cluster: Cluster): number {
  const perSecond = stepOf(1, configuration, cluster) - stepOf(0, configuration, cluster);
  return (step - stepOf(0, configuration, cluster)) / perSecond;
}

export function secondsOf({ forwardSeconds, backwardSeconds }: PartPrice): number {
  return forwardSeconds + backwardSeconds;
}

/**
 * The pipeline's seconds where its stages share all work as they like. With W the seconds of a micro-batch through all of them,
 * what the first stage waits for and does is (m + p − 1) · W/p at least under 1F1B with more micro-batches than stages; with
 * several chunks see `interleavedFill`.
 */
function filledSeconds(
  forward: number,
  backward: number,
  prices: PartPrices,
  configuration: StepConfiguration,
): number {
  const { degrees, schedule, virtualStages: v, inference } = configuration;
  const p = degrees.pp;
  const m = microBatches(configuration);
  const whole = forward + backward;
  const share = whole / p;
  if (p === 1 || schedule === 'naive') return m * whole;
  if (inference || schedule === 'f-then-b') return m * share + ((p - 1) * share) / v;
  if (v > 1) return m * share + interleavedFill(p, m, v, forward / p, backward / p);
  const { seconds: hop, blocks } = prices.send;
  const plain =
    m > p
      ? (m + p - 1) * share + (blocks ? (m - p - 1) * hop : 0) + 4 * (p - 1) * hop
      : whole + whole / passesBeside(p, m) + 2 * (p - 1) * hop;
  if (schedule !== 'zero-bubble') return plain;
  // Zero-bubble keeps a share of the waiting: that of the slowest stage, and no part's is smaller than this.
  const kept = bubbleShare(prices);
  return kept * plain + (1 - kept) * m * share;
}

/**
 * Every stage waits for one micro-batch through all of them, and does the rest, but for half of its warm-up while nothing else
 * counts (of forwards and backwards half is the lesser): with t(s) the seconds of a stage, t(s) · rest(s) beside W. Of all ways
 * to share W out the longest of these is least where they are equal: W / Σ 1/rest(s). That sum; infinite for a single
 * micro-batch.
 */
export function passesBeside(p: number, m: number): number {
  let sum = 0;
  for (let stage = 0; stage < p; stage++) sum += 1 / passesOf(stage, p, m);
  return sum;
}

/** Micro-batches that a stage of p does beside one's way through all stages, less half of its warm-up. */
export function passesOf(stage: number, p: number, m: number): number {
  return m - 1 - Math.min(p - 1 - stage, m - 1) / 2;
}

/**
 * Seconds that interleaved stages wait at least beside their m · (F + B), the mean forward and backward of a stage, however all
 * of it is shared out among them: of the (p − 1) · (F + B) / v of equal stages
 *
 *     m = p       the larger of F and B
 *     m ≥ 2 · p   half
 *
 * `stageSpan` of stage s is no less than the m · v · (f + b) of its own chunks and a micro-batch's way there and back through one
 * chunk of all earlier stages, b(s); nor than that and the way through all later ones, a(s), less l(s) · f, or less l(s) · b,
 * where l(s) = warm-up − (v − 1) · p is 2 · (p − 1 − s), and p − 1 at most where m = p. The mean of b(s) + a(s) over all stages
 * is the fill of equal ones; of f at most (p − 1) / p of all forwards is lost where m = p, and likewise of b. Else half of
 * the first bound and a quarter of each of the others leave half.
 */
export function interleavedFill(p: number, m: number, v: number, forward: number, backward: number): number {
  const kept = m < 2 * p ? Math.max(forward, backward) : (forward + backward) / 2;
  return ((p - 1) * kept) / v;
}

/** The least share of 1F1B's bubble that zero-bubble leaves, whatever parts a stage has: 1 − (W + w) / (F + B). */
export function bubbleShare({ first, layers, last }: PartPrices): number {
  const parts = [first, ...layers.flatMap(({ kept, recomputed }) => [kept, recomputed]), last].filter(
    (part) => secondsOf(part) > 0,
  );
  const most = (of: (forward: number, weight: number) => number) =>
    Math.max(
      0,
      ...parts.map((part) => {
        const weight = part.forward.weightGradient + part.backward.weightGradient;
        return of(part.forwardSeconds, weight) / secondsOf(part);
      }),
    );
  // w is the least of F, B − W and W; of each sum over parts the mean is no larger than the largest. That B − W is no smaller
  // is left out, since it grows with what recomputes.
  const filled = Math.min(
    most((forward, weight) => weight + forward),
    most((_, weight) => 2 * weight),
  );
  return Math.max(0, 1 - filled);
}

/**
 * Seconds once per step of a stage that has so many layers of a class, where gradients have all its backward to hide under; with
 * others, of one that has less than a layer more of the class and any of the others.
 */
function onceAtLeast(
  layer: LayerPrice,
  count: number,
  others: readonly LayerPrice[],
  prices: PartPrices,
  configuration: StepConfiguration,
): number {
  const { kept, recomputed } = layer;
  const { first, last } = prices;
  const sum = (start: number, of: (other: LayerPrice) => number) =>
    others.reduce((total, other) => total + other.count * of(other), start);
  const up = others.length === 0 ? count : count + 1;
  // What moves to the host and back makes forwards longer, of layers that keep little and of those that keep much.
  const longer = (own: LayerPrice) => Math.max(own.kept.forwardSeconds, own.recomputed.forwardSeconds);
  const forward = sum(up * longer(layer), longer);
  const backward = sum(up * recomputed.backwardSeconds, (other) => other.recomputed.backwardSeconds);
  const heldBy = ({ held }: PartPrice) => held.dense + held.experts;
  // What more a stage holds at the ends of the model adds to it, but for the first gather of ZeRO 3.
  const some = configuration.zero < 3 ? NONE_BESIDE : [[], [first], [last]];
  const ends = configuration.degrees.pp === 1 ? [[first, last]] : some;
  let least = Number.POSITIVE_INFINITY;
  for (const own of ends) {
    const held = {
      dense: own.reduce((total, end) => total + end.held.dense, count * kept.held.dense),
      experts: own.reduce((total, end) => total + end.held.experts, count * kept.held.experts),
    };
    const once = onceSeconds(held, forward, backward, prices, configuration);
    if (others.length === 0 || configuration.zero < 3) {
      least = Math.min(least, once);
      continue;
    }
    // The first gather of ZeRO 3 is one layer's share of all, and falls the more others there are: by their ratio at most.
    const beside = own.reduce((total, end) => total + heldBy(end), 0);
    const all = sum(up * heldBy(kept) + beside, (other) => heldBy(other.kept));
    least = Math.min(least, (once * (held.dense + held.experts)) / all);
  }
  return least;
}

/**
 * Seconds once per step that no stage takes less than which has so many layers of the only class, from fewest to most, whatever
 * it has beside: they grow with what it holds, but for the first gather of ZeRO 3, and fall with what that hides under. Exact for
 * one number of layers, but for that gather.
 */
function onceBetween(
  { kept, recomputed }: LayerPrice,
  fewest: number,
  most: number,
  prices: PartPrices,
  configuration: StepConfiguration,
): number {
  const { first, last } = prices;
  const held = { dense: fewest * kept.held.dense, experts: fewest * kept.held.experts };
  const largest = {
    dense: most * kept.held.dense + first.held.dense + last.held.dense,
    experts: most * kept.held.experts + first.held.experts + last.held.experts,
  };
  // What moves to the host and back makes forwards longer, of layers that keep little and of those that keep much.
  const forward = most * Math.max(kept.forwardSeconds, recomputed.forwardSeconds);
  return onceSeconds(held, forward, most * recomputed.backwardSeconds, prices, configuration, largest);
}

const NONE_BESIDE: readonly (readonly PartPrice[])[] = [[]];

/**
 * What a stage pays once per step: gradients and parameters that compute does not hide, on their way to the host too, the
 * optimizer.
 * @param largest for a bound: what it holds at most
 */
export function onceSeconds(
  held: PartPrice['held'],
  forward: number,
  backward: number,
  prices: PartPrices,
  configuration: StepConfiguration,
  largest?: PartPrice['held'],
): number {
  const m = microBatches(configuration);
  const { degrees, virtualStages: v } = configuration;
  const passes = (1 + (v - 1) * Math.min(degrees.pp, m)) / v;
  const under = {
    forward,
    backward,
    firstForwards: forward * passes,
    lastBackwards: backward * passes,
    microBatches: m,
    ...(largest && configuration.zero === 3 ? { largest } : {}),
  };
  const out = prices.gradientsOut(held, under.lastBackwards);
  return prices.data(held, under).exposed + prices.optimizerSeconds(held) + out.exposed;
}
