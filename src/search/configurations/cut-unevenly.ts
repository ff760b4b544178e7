/**
 * @file Stages that are cut unevenly, of the few best combinations and of every one whose bound is below the best: what a bound
 * does not rule out is bounded by cut, and the cuts that come nearest to that bound are priced, until nothing is left below the
 * best.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { offloadsActivations } from '../../cost-model/step/offload.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import type { Found } from './best-configurations.js';
import type { CutBound } from './cut-bound.js';
import { cutLayers } from './cut-layers.js';
import { fitsIn, type Priced } from './priced.js';
import type { Candidate, Pricing } from './pricing.js';
import { lightest, placed, type SpaceOptions, variants } from './space.js';

/** A cost model that bounds cuts too. */
export interface StepPricing extends Pricing {
  /** Seconds that every cut of a configuration takes, of those that take less than `below`. */
  readonly cutsAtLeast: (configuration: StepConfiguration, below: number) => CutBound | null;
}

export interface UnevenRequest {
  readonly space: SpaceOptions;
  readonly cluster: Cluster;
  readonly works: (tp: number, microBatch: number) => ModelWork;
  readonly limitBytes: number | null;
  readonly signal: AbortSignal | undefined;
  /** Whether the time is over: then what is left is not cut. */
  readonly isOver: () => boolean;
}

/** A configuration whose layers may be cut in any way, with what every cut takes at least. */
interface Open {
  readonly candidate: Candidate;
  readonly configuration: StepConfiguration;
  readonly atLeast: number;
}

/**
 * The best of each combination, cut unevenly where that is faster. The bound is what no configuration takes less than, however
 * its layers are cut and whichever of them recompute.
 */
export function cutUnevenly(even: Found, pricing: StepPricing, request: UnevenRequest): Found {
  const best = new Map<Candidate['combination']['degrees'], Priced>();
  for (const priced of even.best) best.set(priced.configuration.degrees, priced);
  const fitting = [...even.fitting];
  const offer = (configuration: StepConfiguration) => {
    const need = pricing.bytes(configuration);
    if (!fitsIn(need, request.limitBytes)) return;
    const priced = { configuration, seconds: pricing.seconds(configuration), ...need };
    fitting.push(priced);
    const known = best.get(configuration.degrees);
    // Half a percent is less than prices are good for: of cuts as near as that the more even one is taken.
    if (!known || priced.seconds < known.seconds * EVEN_ENOUGH) best.set(configuration.degrees, priced);
  };
  let isCutOff = even.isCutOff;
  for (const { configuration } of even.best.slice(0, MOST_CUTS)) {
    if (configuration.degrees.pp === 1) continue;
    if (request.isOver()) isCutOff = true;
    else for (const cut of cutsOf(configuration, request)) offer(cut);
  }
  let bound = even.bound;
  let looked = 0;
  const cost = () => Math.min(...[...best.values()].map(({ seconds }) => seconds));
  const isLate = request.isOver();
  if (isLate) bound = Math.min(bound, ...even.open.map(({ atLeast }) => atLeast));
  isCutOff ||= isLate && even.open.length > 0;
  for (const { configuration, atLeast } of isLate ? [] : openOf(even, pricing, request)) {
    request.signal?.throwIfAborted();
    if (atLeast >= Math.min(bound, cost())) break;
    if (request.isOver()) {
      bound = Math.min(bound, atLeast);
      isCutOff = true;
      break;
    }
    const found = looked++ < MOST_BOUNDS ? pricing.cutsAtLeast(configuration, Math.min(bound, cost())) : null;
    // What comes nearest to the bound may be odd: a cut that is nearly as fast, and more even, goes first.
    const nearest = (found?.configurations ?? []).filter((cut) => pricing.seconds(cut) < cost());
    if (nearest.length > 0) for (const cut of cutsOf(configuration, request)) offer(cut);
    for (const cut of nearest) offer(cut);
    bound = Math.min(bound, Math.max(atLeast, found?.atLeast ?? 0));
  }
  const sorted = [...best.values()].sort((a, b) => a.seconds - b.seconds);
  const least = sorted[0]?.seconds ?? Number.POSITIVE_INFINITY;
  return {
    ...even,
    best: sorted,
    fitting,
    // Bounds lie below the truth by more than rounding: what is as near as that is proven.
    bound: bound >= least * PROVEN ? least : bound,
    isCutOff,
    verdicts: [
      ...sorted.map((priced) => ({ kind: 'priced' as const, degrees: priced.configuration.degrees, best: priced })),
      ...even.verdicts.filter(({ degrees }) => !best.has(degrees)),
    ],
  };
}

/**
 * Every variant whose bound is below the best of even stages, least first. One that may recompute stands for one that does not.
 */
function openOf(even: Found, pricing: StepPricing, { space }: UnevenRequest): readonly Open[] {
  const best = even.best[0]?.seconds ?? Number.POSITIVE_INFINITY;
  const undecided = space.decided.recompute === undefined && !space.base.inference;
  return even.open
    .flatMap((candidate) => {
      const own = placed(space, candidate.placing);
      const { combination, microBatch } = candidate;
      if (pricing.closer(lightest(combination, microBatch, own), best) >= best) return [];
      return [...variants(combination, microBatch, own)]
        .filter((variant) => !(undecided && isMixable(variant)) || variant.recompute !== 'none')
        .filter((configuration) => pricing.roughly(configuration, best) < best)
        .map((configuration) => ({ candidate, configuration, atLeast: pricing.variantAtLeast(configuration) }));
    })
    .filter(({ atLeast }) => atLeast < best)
    .sort((a, b) => a.atLeast - b.atLeast);
}

/** The cuts that are best by the sum of all stages and the pace of the slowest, which is kinder to even ones. */
function cutsOf(
  configuration: StepConfiguration,
  { space, cluster, works, limitBytes }: UnevenRequest,
): readonly StepConfiguration[] {
  const pinned = space.decided.recompute !== undefined || !isMixable(configuration);
  const { recomputedLayers: _, ...whole } = configuration;
  const choices: readonly StepConfiguration[] =
    pinned || whole.recompute !== 'none' ? [whole] : [whole, { ...whole, recompute: 'full' }];
  return choices.flatMap((choice) => {
    const work = works(choice.degrees.tp, choice.microBatch);
    return cutLayers(work, choice, cluster, { limitBytes, work: CUT_WORK, isMixed: !pinned })?.configurations ?? [];
  });
}

/** Whether some layers may recompute where others keep what they need: with activations on the host all do or none. */
export function isMixable(configuration: StepConfiguration): boolean {
  return !offloadsActivations(configuration);
}

const PROVEN = 1 - 1e-8;
/** Cuts this much faster than even stages are taken. */
export const EVEN_ENOUGH = 0.995;
/** Combinations whose layers are cut unevenly in any case, and table entries that each may look at. */
const MOST_CUTS = 4;
const CUT_WORK = 1e6;
/** Configurations that are bounded by cut. */
const MOST_BOUNDS = 400;
