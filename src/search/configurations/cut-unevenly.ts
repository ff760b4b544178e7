/**
 * @file Uneven cuts into stages, for the best configurations that such a cut could make faster than the best of even stages.
 */
import type { FoundConfigurations, OpenConfiguration } from './best-configurations.js';
import { fitsIn, type PricedConfiguration } from './priced.js';
import type { StepPricing } from './step-pricing.js';

export interface UnevenRequest {
  readonly limitBytes: number | null;
  readonly signal: AbortSignal | undefined;
  /** Whether the time is over: then the remaining configurations are not cut. */
  readonly isOver: () => boolean;
  /** Seconds that a cut must beat to be of interest. */
  readonly below?: number;
}

/** The best of each combination, cut unevenly where that is faster. */
export function cutUnevenly(
  even: FoundConfigurations,
  pricing: StepPricing,
  request: UnevenRequest,
): FoundConfigurations {
  const best = new Map(even.best.map((priced) => [priced.configuration.degrees, priced]));
  const fitting = [...even.fitting];
  let least = Math.min(even.best[0]?.seconds ?? Number.POSITIVE_INFINITY, request.below ?? Number.POSITIVE_INFINITY);
  let { isCutOff } = even;
  // Where nothing fits, configurations that exceed memory least come first: they may fit.
  const rank = ({ configuration, seconds, bytes }: OpenConfiguration) =>
    least === Number.POSITIVE_INFINITY ? bytes : (seconds ?? pricing.seconds(pricing.balanced(configuration)));
  const mayGain = even.open
    .filter(({ atLeast }) => atLeast < least)
    .map((open) => ({ ...open, rank: rank(open) }))
    .sort((a, b) => a.rank - b.rank)
    .slice(0, MOST_CUTS);
  for (const { configuration, atLeast } of mayGain) {
    request.signal?.throwIfAborted();
    if (atLeast >= least) continue;
    if (request.isOver()) {
      isCutOff = true;
      break;
    }
    for (const cut of pricing.cuts(configuration, request.limitBytes)) {
      const need = pricing.bytes(cut);
      if (!fitsIn(need, request.limitBytes)) continue;
      const seconds = pricing.seconds(cut);
      const mayBeBest = seconds < least || pricing.least(cut) < least;
      const price = mayBeBest ? pricing.exactly(cut) : ({ seconds, priceLevel: 'estimate' } as const);
      const priced: PricedConfiguration = { configuration: cut, ...price, ...need };
      fitting.push(priced);
      const known = best.get(cut.degrees);
      if (known && priced.seconds >= known.seconds) continue;
      best.set(cut.degrees, priced);
      least = Math.min(least, priced.seconds);
    }
  }
  const sorted = [...best.values()].sort((a, b) => a.seconds - b.seconds);
  return {
    ...even,
    best: sorted,
    fitting,
    bound: Math.min(even.bound, least),
    isCutOff,
    verdicts: [
      ...sorted.map((priced) => ({ kind: 'priced' as const, degrees: priced.configuration.degrees, best: priced })),
      ...even.verdicts.filter(({ degrees }) => !best.has(degrees)),
    ],
  };
}

/** The most configurations whose layers are cut. */
const MOST_CUTS = 256;
