/**
 * @file The training step that is taken among those that a search finds. Plans are searched within the memory that headroom
 * leaves, and the fastest within all memory; where no plan leaves headroom at the accepted cost, all within all memory.
 */
import { bestConfigurations, type FoundConfigurations } from '../../search/configurations/best-configurations.js';
import { cutUnevenly } from '../../search/configurations/cut-unevenly.js';
import type { PricedConfiguration } from '../../search/configurations/priced.js';
import { pricingOf, type StepPricing } from '../../search/configurations/step-pricing.js';
import { isWorthHeadroom, preferred, roomyBytes } from '../../search/preference.js';
import type { PreparedStep } from './prepared-step.js';

export interface PreferredStep extends FoundConfigurations {
  /** The fastest that fits, and why another was taken; null where it was taken itself. */
  readonly passed: PassedStep | null;
  /** Bytes per device that headroom allows, where no plan leaves it at the accepted cost; null where the one taken does. */
  readonly tight: number | null;
}

export interface PassedStep {
  readonly priced: PricedConfiguration;
  /** Its seconds over those of the one that is taken. */
  readonly ratio: number;
  readonly because: string;
}

/** All results of the search, first the configuration that is taken. */
export function preferredStep(prepared: PreparedStep): PreferredStep {
  const { space, limitBytes, preferences, searching } = prepared;
  const pricing = pricingFor(prepared);
  if (searching.objective === 'memory')
    return { ...bestConfigurations(space, pricing, { ...searching, limitBytes }), passed: null, tight: null };
  const roomy = limitBytes === null || preferences.headroom === 0 ? null : roomyBytes(limitBytes, preferences);
  const within = roomy === null ? null : fastest(prepared, pricing, roomy);
  const [best] = within?.best ?? [];
  const withinAll = () => chosen(fastest(prepared, pricing, limitBytes), null, prepared, pricing);
  if (!within || !best) return { ...withinAll(), tight: roomy };
  if (within.isCutOff) return { ...chosen(within, null, prepared, pricing), tight: null };
  const all = fastest(prepared, pricing, limitBytes, best.seconds);
  const [least] = all.best;
  if (least && !isWorthHeadroom(best.seconds, least.seconds, preferences)) return { ...withinAll(), tight: roomy };
  return { ...chosen(withAll(within, all), all.best[0] ?? null, prepared, pricing), tight: null };
}

/** The cost model for all searches of a prepared step. */
export function pricingFor({ cluster, works, space }: PreparedStep): StepPricing {
  return pricingOf(cluster, works, space.decided.recompute === undefined);
}

/**
 * The fastest configurations within a memory limit.
 * @param below seconds that a configuration must beat to be of interest
 */
export function fastest(
  prepared: PreparedStep,
  pricing: StepPricing,
  limitBytes: number | null,
  below?: number,
): FoundConfigurations {
  const { space, searching, preferences } = prepared;
  const { signal, isOver = () => false } = searching;
  const wanted = below === undefined ? { near: preferences.near } : { below, top: 1 };
  const even = bestConfigurations(space, pricing, { ...searching, limitBytes, ...wanted });
  const request = { limitBytes, signal, isOver, ...(below === undefined ? {} : { below }) };
  return cutUnevenly(even, pricing, request);
}

/**
 * The results of a search, first the configuration that is taken.
 * @param outside the fastest that leaves no headroom; null where none was looked for
 */
function chosen(
  found: FoundConfigurations,
  outside: PricedConfiguration | null,
  prepared: PreparedStep,
  pricing: StepPricing,
): Omit<PreferredStep, 'tight'> {
  const { limitBytes, preferences } = prepared;
  const [best] = found.best;
  if (!best) return { ...found, passed: null };
  const least = best.seconds;
  const near = found.fitting.filter((priced) => priced !== best && priced.seconds <= least * preferences.near);
  let left = MOST_SIMULATED;
  const isSo = (priced: PricedConfiguration) =>
    left-- > 0 && exactly(priced, pricing).seconds <= least * preferences.near;
  const { taken, passed } = preferred(
    [best, ...near, ...(outside ? [outside] : [])],
    (priced) => {
      const { degrees, offload = 'none' } = priced.configuration;
      return {
        // Configurations that may be faster than the best were simulated, and are not.
        seconds: priced === outside ? priced.seconds : Math.max(least, priced.seconds),
        bytes: priced.bytes,
        degrees,
        isOffloaded: offload !== 'none',
        liftsRoles: false,
      };
    },
    preferences,
    limitBytes,
    isSo,
  );
  const led = exactly(taken, pricing);
  return {
    ...(taken === best ? found : ledBy(led, taken, found)),
    passed: passed && {
      priced: passed.plan,
      ratio: passed.plan.seconds / led.seconds,
      because: passed.because,
    },
  };
}

/** The simulated price of a configuration that has only an estimate. */
function exactly(priced: PricedConfiguration, pricing: StepPricing): PricedConfiguration {
  return priced.priceLevel === 'estimate' ? { ...priced, ...pricing.exactly(priced.configuration) } : priced;
}

/** The results, with another configuration than the fastest in the first place and in the place of its degrees. */
function ledBy(
  first: PricedConfiguration,
  instead: PricedConfiguration,
  found: FoundConfigurations,
): FoundConfigurations {
  const { degrees } = first.configuration;
  return {
    ...found,
    best: [first, ...found.best.filter(({ configuration }) => configuration.degrees !== degrees)],
    fitting: found.fitting.map((priced) => (priced === instead ? first : priced)),
    verdicts: [
      { kind: 'priced', degrees, best: first },
      ...found.verdicts.filter((verdict) => verdict.degrees !== degrees),
    ],
  };
}

/** The most simpler configurations whose schedules are simulated, to check that they are as fast. */
const MOST_SIMULATED = 12;

/** Merges a search within headroom with one in all memory: combinations without headroom fit, and bounds hold for all. */
function withAll(within: FoundConfigurations, all: FoundConfigurations): FoundConfigurations {
  const others = new Map(all.verdicts.map((verdict) => [JSON.stringify(verdict.degrees), verdict]));
  return {
    ...within,
    verdicts: within.verdicts.map((verdict) =>
      verdict.kind === 'too-large' ? (others.get(JSON.stringify(verdict.degrees)) ?? verdict) : verdict,
    ),
    bound: Math.min(within.bound, all.bound),
    priced: within.priced + all.priced,
  };
}
