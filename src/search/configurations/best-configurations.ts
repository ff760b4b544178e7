/**
 * @file The cheapest configurations of a space, best first: combinations of degrees and micro-batch are taken in the order of a
 * bound that no variant of them can beat, and looked at in full until the bound of the next is above the best that was found
 * (branch and bound, Land and Doig 1960). Every combination ends with its best variant, or with the figure that rules it out.
 */
import type { Degrees, StepConfiguration } from '../../cost-model/step/configuration.js';
import { type Further, lookFurther, type Tried } from './further.js';
import { fitsIn, type Need, type Priced } from './priced.js';
import { type Combination, combinations, lightest, type SpaceOptions, variants } from './space.js';

export interface SearchOptions {
  readonly objective: 'time' | 'memory';
  /** Bytes of each device; null for no limit. */
  readonly limitBytes: number | null;
  /** How many combinations of degrees are priced in full beside the best. */
  readonly top: number;
  readonly signal?: AbortSignal;
}

/** What the search asks of a cost model. */
export interface Pricing {
  /** Seconds of a step. */
  readonly seconds: (configuration: StepConfiguration) => number;
  /** Bytes of the fullest stage, and of the fullest host where something lies there. */
  readonly bytes: (configuration: StepConfiguration) => Need;
  /** The variant with as few layers recomputed as memory allows. */
  readonly fitted: (configuration: StepConfiguration, limitBytes: number | null) => StepConfiguration;
  /** Seconds that no variant of these degrees with this micro-batch beats; `lightest` does least of all variants. */
  readonly atLeast: (combination: Combination, lightest: StepConfiguration) => number;
  /** Left out where neither orders of the axes nor the host's memory are searched. */
  readonly further?: Further;
}

/** What became of one combination of degrees. */
export type Verdict =
  /** Its best configuration. */
  | { readonly kind: 'priced'; readonly degrees: Degrees; readonly best: Priced }
  /** Not looked at in full: no configuration of it takes less than this. */
  | { readonly kind: 'slower'; readonly degrees: Degrees; readonly atLeastSeconds: number }
  /** The configuration that needs least, and still more than there is. */
  | { readonly kind: 'too-large'; readonly degrees: Degrees; readonly least: Priced }
  | { readonly kind: 'impossible'; readonly degrees: Degrees; readonly reason: string };

export interface Found {
  /** The best of each combination that was priced and fits, cheapest first; empty where nothing fits. */
  readonly best: readonly Priced[];
  /** One for each combination, those of `best` first. */
  readonly verdicts: readonly Verdict[];
  /** No configuration of the space that fits costs less: the best one's. */
  readonly bound: number;
  /** The same for stages that are cut unevenly too: no configuration with a pipeline is below its relaxation. */
  readonly unevenBound: number;
  /** Configurations priced: the effort. */
  readonly priced: number;
}

/** Searches; deterministic, ties go to what comes first in the space. */
export function bestConfigurations(space: SpaceOptions, pricing: Pricing, options: SearchOptions): Found {
  const all = combinations(space);
  const verdicts = new Map<Combination, Verdict>();
  const queue: { readonly combination: Combination; readonly microBatch: number; readonly atLeast: number }[] = [];
  for (const combination of all) {
    const { degrees, reason } = combination;
    if (reason !== null) verdicts.set(combination, { kind: 'impossible', degrees, reason });
    for (const microBatch of combination.microBatches)
      queue.push({
        combination,
        microBatch,
        atLeast: pricing.atLeast(combination, lightest(combination, microBatch, space)),
      });
  }
  queue.sort((a, b) => a.atLeast - b.atLeast);
  const kept = new Map<Combination, Priced>();
  const least = new Map<Combination, Priced>();
  const rank = (priced: Priced) => (options.objective === 'memory' ? priced.bytes : priced.seconds);
  let count = 0;
  const timed = options.objective === 'time';
  const layerByLayer = timed && space.decided.recompute === undefined;
  // What the search never came to: of each combination the least that it would have taken.
  const left = new Map<Combination, number>();
  const leave = (combination: Combination, atLeast: number) =>
    left.set(combination, Math.min(atLeast, left.get(combination) ?? Number.POSITIVE_INFINITY));
  let worst = Number.POSITIVE_INFINITY;
  const keep = (combination: Combination, priced: Priced) => {
    const known = kept.get(combination);
    if (known && rank(priced) >= rank(known)) return;
    kept.set(combination, priced);
    worst = worstOfTop(kept, options.top);
  };
  const looked: { readonly combination: Combination; readonly microBatch: number; readonly tried: readonly Tried[] }[] =
    [];
  for (const { combination, microBatch, atLeast } of queue) {
    options.signal?.throwIfAborted();
    if (timed && atLeast > worst) {
      leave(combination, atLeast);
      continue;
    }
    const tried: Tried[] = [];
    for (const variant of variants(combination, microBatch, space)) {
      const configuration = layerByLayer ? pricing.fitted(variant, options.limitBytes) : variant;
      const need = pricing.bytes(configuration);
      const fits = fitsIn(need, options.limitBytes);
      tried.push({ variant, configuration, need, fits });
      const smallest = least.get(combination);
      if (!fits && smallest && smallest.bytes <= need.bytes) continue;
      count++;
      const priced = { configuration, seconds: pricing.seconds(configuration), ...need };
      if (!smallest || need.bytes < smallest.bytes) least.set(combination, priced);
      if (fits) keep(combination, priced);
    }
    looked.push({ combination, microBatch, tried });
  }
  // When all has been priced in the usual order and on the devices alone, little else can still be better.
  for (const { combination, microBatch, tried } of timed && pricing.further ? looked : []) {
    options.signal?.throwIfAborted();
    const isPointless = (floor: number) => {
      const known = kept.get(combination)?.seconds ?? Number.POSITIVE_INFINITY;
      if (floor > worst && floor < known) leave(combination, floor);
      return floor >= known || floor > worst;
    };
    count += lookFurther(tried, {
      further: pricing.further as Further,
      lightest: lightest(combination, microBatch, space),
      isLayerByLayer: layerByLayer,
      seconds: pricing.seconds,
      fitted: (configuration) => pricing.fitted(configuration, options.limitBytes),
      needOf: pricing.bytes,
      fits: (configuration, need) => {
        const smallest = least.get(combination);
        // What is too large for the devices is remembered by what it needs of them.
        if (smallest && need.bytes < smallest.bytes && fitsIn({ ...need, bytes: 0 }, options.limitBytes))
          least.set(combination, { configuration, seconds: pricing.seconds(configuration), ...need });
        return fitsIn(need, options.limitBytes);
      },
      isPointless,
      keep: (priced) => keep(combination, priced),
    });
  }
  for (const combination of all) {
    if (verdicts.has(combination)) continue;
    const { degrees } = combination;
    const known = kept.get(combination);
    const smallest = least.get(combination);
    const atLeast = left.get(combination);
    if (known && (atLeast === undefined || known.seconds <= atLeast))
      verdicts.set(combination, { kind: 'priced', degrees, best: known });
    else if (atLeast !== undefined) verdicts.set(combination, { kind: 'slower', degrees, atLeastSeconds: atLeast });
    else if (smallest) verdicts.set(combination, { kind: 'too-large', degrees, least: smallest });
  }
  const best = [...verdicts.values()]
    .flatMap((verdict) => (verdict.kind === 'priced' ? [verdict.best] : []))
    .sort((a, b) => rank(a) - rank(b));
  const [first] = best;
  const cost = first ? rank(first) : Number.POSITIVE_INFINITY;
  const piped = queue.find(({ combination }) => combination.degrees.pp > 1);
  return {
    best,
    unevenBound: Math.min(cost, piped?.atLeast ?? Number.POSITIVE_INFINITY),
    verdicts: [...verdicts.values()].sort((a, b) => orderOf(a, rank) - orderOf(b, rank)),
    bound: cost,
    priced: count,
  };
}

/** What a further combination must beat to be among those that are shown. */
function worstOfTop(kept: ReadonlyMap<Combination, Priced>, top: number): number {
  if (kept.size < top) return Number.POSITIVE_INFINITY;
  const seconds = [...kept.values()].map((priced) => priced.seconds).sort((a, b) => a - b);
  return seconds[top - 1] ?? Number.POSITIVE_INFINITY;
}

/** Cheapest first, then those that are slower at least, too large, impossible. */
function orderOf(verdict: Verdict, rank: (priced: Priced) => number): number {
  if (verdict.kind === 'priced') return rank(verdict.best);
  if (verdict.kind === 'slower') return 1e20 + verdict.atLeastSeconds;
  return verdict.kind === 'too-large' ? 1e30 + verdict.least.bytes : 1e40;
}
