/**
 * @file The cheapest configurations of a space, best first: combinations of degrees and micro-batch are taken in the order of a
 * bound that no variant of them can beat, and looked at in full until the bound of the next is above the best that was found
 * (branch and bound, Land and Doig 1960). Every combination ends with its best variant, or with the figure that rules it out.
 */
import type { Degrees } from '../../cost-model/step/configuration.js';
import { ConfigurationSearch, type Rank } from './configuration-search.js';
import { lookElsewhere, offloadsOf } from './other-placings.js';
import type { Priced } from './priced.js';
import type { Candidate, Pricing, SearchOptions } from './pricing.js';
import { type Combination, combinations, lightest, type SpaceOptions } from './space.js';

/** What became of one combination of degrees. */
export type Verdict =
  /** Its best configuration. */
  | { readonly kind: 'priced'; readonly degrees: Degrees; readonly best: Priced }
  /** Not looked at in full: no configuration of it takes less than this. */
  | { readonly kind: 'slower'; readonly degrees: Degrees; readonly atLeastSeconds: number }
  /** Not looked at in full before the time was over. */
  | { readonly kind: 'unseen'; readonly degrees: Degrees; readonly atLeastSeconds: number }
  /** The configuration that needs least, and still more than there is. */
  | { readonly kind: 'too-large'; readonly degrees: Degrees; readonly least: Priced }
  | { readonly kind: 'impossible'; readonly degrees: Degrees; readonly reason: string };

export interface Found {
  /** The best of each combination that was priced and fits, cheapest first; empty where nothing fits. */
  readonly best: readonly Priced[];
  /** All that were priced and fit, of whatever combination. */
  readonly fitting: readonly Priced[];
  /** One for each combination, those of `best` first. */
  readonly verdicts: readonly Verdict[];
  /** No configuration of the space that fits costs less: the best one's, where the time was not over before. */
  readonly bound: number;
  /** Degrees and micro-batches whose bound is below the best: a cut into stages of theirs could be better. */
  readonly open: readonly Candidate[];
  /** Configurations priced: the effort. */
  readonly priced: number;
  /** Whether the time was over before the end. */
  readonly isCutOff: boolean;
  /** Whether it was over before anything was priced that fits: the best then is what fits first, compared with nothing. */
  readonly isUncompared: boolean;
}

/** Searches; deterministic but for `isOver`, ties go to what comes first in the space. */
export function bestConfigurations(space: SpaceOptions, pricing: Pricing, options: SearchOptions): Found {
  const all = combinations(space);
  const isTimed = options.objective === 'time';
  const rank: Rank = isTimed ? ({ seconds }) => seconds : ({ bytes }) => bytes;
  const queue = candidatesOf(all, space, pricing);
  const search = new ConfigurationSearch(space, pricing, options, rank);
  const inTurn = promising(queue, space);
  for (const candidate of inTurn) search.look(candidate, () => search.worst);
  if (isTimed) lookElsewhere(queue, search, space, pricing, options);
  const placings = [{}, ...(isTimed ? offloadsOf(space, pricing.placings, options) : [])];
  const isUncompared =
    search.isCutOff && search.kept.size === 0 && placings.some((placing) => search.takeFirst(inTurn, placing));
  search.weighTooLarge();
  const verdicts = all.flatMap((combination) => verdictOf(combination, search) ?? []);
  const best = verdicts
    .flatMap((verdict) => (verdict.kind === 'priced' ? [verdict.best] : []))
    .sort((a, b) => rank(a) - rank(b));
  const cost = best[0] ? rank(best[0]) : Number.POSITIVE_INFINITY;
  return {
    best,
    fitting: search.fitting,
    open: isTimed ? search.open.filter(({ combination, atLeast }) => combination.degrees.pp > 1 && atLeast < cost) : [],
    verdicts: verdicts.sort((a, b) => orderOf(a, rank) - orderOf(b, rank)),
    bound: Math.min(cost, isTimed ? search.unseen : search.isCutOff ? 0 : cost),
    priced: search.count,
    isCutOff: search.isCutOff,
    isUncompared,
  };
}

/** Degrees with each micro-batch, least first; the usual order of the axes, and nothing on the host. */
function candidatesOf(
  all: readonly Combination[],
  space: SpaceOptions,
  { atLeast }: Pick<Pricing, 'atLeast'>,
): readonly Candidate[] {
  return all
    .flatMap((combination) =>
      combination.microBatches.map((microBatch) => ({
        combination,
        microBatch,
        placing: {},
        atLeast: atLeast(combination, lightest(combination, microBatch, space)),
      })),
    )
    .sort((a, b) => a.atLeast - b.atLeast);
}

/**
 * In the order of what they may well take, so that there is something to beat soon: the bound with the waiting of a pipeline as
 * the best schedule usually has it.
 */
function promising(candidates: readonly Candidate[], { globalBatch, facts }: SpaceOptions): readonly Candidate[] {
  const guess = ({ combination: { degrees }, microBatch, atLeast }: Candidate) => {
    const { pp, dp } = degrees;
    const times = globalBatch / (dp * microBatch);
    const chunks = times % pp === 0 ? Math.floor(facts.layers / pp) : 1;
    return atLeast * (1 + (pp - 1) / (times * Math.max(ZERO_BUBBLES, chunks)));
  };
  return candidates
    .map((candidate) => ({ candidate, seconds: guess(candidate) }))
    .sort((a, b) => a.seconds - b.seconds)
    .map(({ candidate }) => candidate);
}

/** Zero-bubble leaves about a third of the waiting. */
const ZERO_BUBBLES = 3;

/** Null where nothing of a combination was priced, ruled out or left. */
function verdictOf(combination: Combination, { kept, least, left, missed }: ConfigurationSearch): Verdict | null {
  const { degrees, reason } = combination;
  if (reason !== null) return { kind: 'impossible', degrees, reason };
  const best = kept.get(combination);
  const atLeastSeconds = left.get(combination);
  if (best && (atLeastSeconds === undefined || best.seconds <= atLeastSeconds))
    return { kind: 'priced', degrees, best };
  const over = missed.get(combination);
  if (over !== undefined && over <= (atLeastSeconds ?? Number.POSITIVE_INFINITY))
    return best ? { kind: 'priced', degrees, best } : { kind: 'unseen', degrees, atLeastSeconds: over };
  if (atLeastSeconds !== undefined) return { kind: 'slower', degrees, atLeastSeconds };
  const smallest = least.get(combination);
  return smallest ? { kind: 'too-large', degrees, least: smallest } : null;
}

/** Cheapest first, then those that are slower at least, not looked at, too large, impossible. */
function orderOf(verdict: Verdict, rank: Rank): number {
  switch (verdict.kind) {
    case 'priced':
      return rank(verdict.best);
    case 'slower':
      return 1e20 + verdict.atLeastSeconds;
    case 'unseen':
      return 1e25 + verdict.atLeastSeconds;
    case 'too-large':
      return 1e30 + verdict.least.bytes;
    case 'impossible':
      return 1e40;
  }
}
