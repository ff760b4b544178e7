/**
 * @file The cheapest configurations of a space, best first: all combinations of degrees, with all their variants, are compared.
 * One lower bound (`at-least.ts`) excludes configurations that no cut into stages makes faster than the best. Candidates are
 * tried in the order of that bound, so that a good one is found soon. Every combination ends with its best variant, or with the
 * figure that rules it out.
 */
import type { Degrees, StepConfiguration } from '../../cost-model/step/configuration.js';
import { kindByKind } from '../ruling-order.js';
import { fitsIn, type PricedConfiguration } from './priced.js';
import type { ConfigurationSearchOptions, MappingChoices, Pricing } from './pricing.js';
import {
  type Combination,
  combinations,
  type DeviceMapping,
  placed,
  type SpaceOptions,
  scheduled,
  states,
} from './space.js';

/** The outcome for one combination of degrees. */
export type DegreesVerdict =
  /** Its best configuration. */
  | { readonly kind: 'priced'; readonly degrees: Degrees; readonly best: PricedConfiguration }
  /** Not searched in full: no configuration of it takes less than this. */
  | { readonly kind: 'slower'; readonly degrees: Degrees; readonly atLeastSeconds: number }
  /** Not searched in full before the time was over. */
  | { readonly kind: 'unseen'; readonly degrees: Degrees; readonly atLeastSeconds: number }
  /** The configuration that needs the least memory, which is still too much. */
  | { readonly kind: 'too-large'; readonly degrees: Degrees; readonly least: PricedConfiguration }
  | { readonly kind: 'impossible'; readonly degrees: Degrees; readonly reason: string };

export interface FoundConfigurations {
  /** The best of each combination that was priced and fits, cheapest first; empty where nothing fits. */
  readonly best: readonly PricedConfiguration[];
  /** All that were priced and fit, of whatever combination. */
  readonly fitting: readonly PricedConfiguration[];
  /** One for each combination, those of `best` first. */
  readonly verdicts: readonly DegreesVerdict[];
  /** Lower bound on the cost of any configuration that fits: the cost of the best, unless time ran out before. */
  readonly bound: number;
  /** Configurations that a cut into stages could make faster than the best. */
  readonly open: readonly OpenConfiguration[];
  /** Configurations priced: the effort. */
  readonly priced: number;
  /** Whether the time was over before the end. */
  readonly isCutOff: boolean;
  /** Whether time ran out before any priced configuration fits: the best is then the first that fits, compared with nothing. */
  readonly isUncompared: boolean;
}

/** A configuration whose layers may be cut in any way. */
export interface OpenConfiguration {
  readonly configuration: StepConfiguration;
  /** Seconds with its layers distributed evenly; null where they do not fit so. */
  readonly seconds: number | null;
  /** Bytes of the fullest stage with its layers distributed evenly. */
  readonly bytes: number;
  /** Lower bound on its seconds over all cuts. */
  readonly atLeast: number;
}

/** Searches; deterministic but for `isOver`, ties go to what comes first in the space. */
export function bestConfigurations(
  space: SpaceOptions,
  pricing: Pricing,
  options: ConfigurationSearchOptions,
): FoundConfigurations {
  const all = combinations(space);
  const search = new Enumeration(space, pricing, options);
  const usual = search.inTurn(all, () => DEFAULT_MAPPING);
  search.compare(usual, () => Math.max(search.worst, search.nearest));
  const { mappings } = pricing;
  if (mappings && options.objective === 'time') {
    search.moveToHost(mappings);
    // The memory of devices and hosts is the same in every order, and norms that are whole over tp are stored whole.
    if (search.kept.size > 0 || options.below !== undefined) {
      search.isElsewhere = true;
      const elsewhere = (combination: Combination) => othersOf(combination, space, mappings);
      search.compare(search.inTurn(all, elsewhere), () => search.nearest);
      search.moveToHost(mappings);
    }
  }
  const isUncompared =
    search.isCutOff && search.kept.size === 0 && options.below === undefined && search.takeFirst(usual);
  const verdicts = all.flatMap((combination) => verdictOf(combination, search) ?? []);
  const best = verdicts
    .flatMap((verdict) => (verdict.kind === 'priced' ? [verdict.best] : []))
    .sort((a, b) => search.rank(a) - search.rank(b));
  const cost = best[0] ? search.rank(best[0]) : Number.POSITIVE_INFINITY;
  const unseen = Math.min(...search.missed.values());
  return {
    best,
    fitting: search.fitting,
    open: search.open,
    verdicts: inOrder(verdicts, options.objective),
    bound: Math.min(cost, options.objective === 'time' ? unseen : search.isCutOff ? 0 : cost),
    priced: search.count,
    isCutOff: search.isCutOff,
    isUncompared,
  };
}

/** The default rank order, norms along the sequence. */
const DEFAULT_MAPPING: readonly DeviceMapping[] = [{}];

/** Every other order that may be faster, and norms whole over tp in each. */
function othersOf(
  { degrees }: Combination,
  { decided }: SpaceOptions,
  { orders }: MappingChoices,
): readonly DeviceMapping[] {
  const reordered = decided.meshOrder ? [] : orders(degrees).map((meshOrder): DeviceMapping => ({ meshOrder }));
  const isWhole = degrees.tp > 1 && decided.tpSequence === undefined;
  const whole = isWhole ? [{}, ...reordered].map((mapping): DeviceMapping => ({ ...mapping, tpSequence: false })) : [];
  return [...reordered, ...whole];
}

/** Degrees with one micro-batch, one rank order and one schedule. */
interface ConfigurationCandidate {
  readonly combination: Combination;
  readonly mapping: DeviceMapping;
  /** Without ZeRO and recomputation. */
  readonly configuration: StepConfiguration;
  /** Lower bound on the seconds of all its variants, however its layers are cut. */
  readonly atLeast: number;
}

/** The outcome for a configuration: its price where it fits, and its bytes on the fullest device. */
interface PricedOutcome {
  readonly priced: PricedConfiguration | null;
  readonly bytes: number;
}

/** A search while it goes on: what was found, what was ruled out, and what is left. */
class Enumeration {
  /** The best of each combination that fits. */
  readonly kept = new Map<Combination, PricedConfiguration>();
  /** The configuration that needs the least memory, for each combination that does not fit. */
  readonly least = new Map<Combination, PricedConfiguration>();
  /** Lower bounds on the seconds of each combination that was ruled out, and of those that time did not allow. */
  readonly left = new Map<Combination, number>();
  readonly missed = new Map<Combination, number>();
  /** Lower bounds on the seconds of configurations that only have an estimate. */
  readonly estimated = new Map<Combination, number>();
  readonly fitting: PricedConfiguration[] = [];
  readonly open: OpenConfiguration[] = [];
  /** The seconds that a further combination must beat to be among those shown; and to be the best, by its exact price. */
  worst: number;
  best: number;
  count = 0;
  /** Whether other rank orders are tried: combinations that have a price keep the figures of the default order. */
  isElsewhere = false;
  /** Configurations that exceed the devices' memory without recomputation. */
  private tight: { readonly candidate: ConfigurationCandidate; readonly configuration: StepConfiguration }[] = [];
  private readonly isTimed: boolean;
  private readonly isLayerByLayer: boolean;

  constructor(
    private readonly space: SpaceOptions,
    private readonly pricing: Pricing,
    private readonly options: ConfigurationSearchOptions,
  ) {
    this.isTimed = options.objective === 'time';
    const { below = Number.POSITIVE_INFINITY } = options;
    [this.worst, this.best] = [below, below];
    this.isLayerByLayer = this.isTimed && space.decided.recompute === undefined;
  }

  /** Seconds up to which a configuration is as fast as the best. */
  get nearest(): number {
    return this.best * (this.options.near ?? 1);
  }

  get isCutOff(): boolean {
    return this.missed.size > 0;
  }

  /** The figure to minimise. */
  rank({ seconds, bytes }: PricedConfiguration): number {
    return this.isTimed ? seconds : bytes;
  }

  /** Candidates in the order of their bounds, those of one combination, micro-batch and rank order one after another. */
  inTurn(all: readonly Combination[], mappingsOf: (combination: Combination) => readonly DeviceMapping[]) {
    const groups = all.flatMap((combination) =>
      mappingsOf(combination).flatMap((mapping) => {
        const space = placed(this.space, mapping);
        return combination.microBatches.map((microBatch) => {
          const candidates = scheduled(combination, microBatch, space).map((configuration): ConfigurationCandidate => {
            const atLeast = this.isTimed ? this.pricing.atLeast(configuration) : 0;
            return { combination, mapping, configuration, atLeast };
          });
          return { candidates, atLeast: Math.min(...candidates.map((own) => own.atLeast)) };
        });
      }),
    );
    if (this.isTimed) groups.sort((a, b) => a.atLeast - b.atLeast);
    return groups.flatMap(({ candidates }) => candidates);
  }

  /** Compares all variants of candidates. @param most candidates whose bound is above it are skipped */
  compare(candidates: readonly ConfigurationCandidate[], most: () => number): void {
    for (const candidate of candidates) {
      const { combination, mapping, atLeast } = candidate;
      if (this.isTimed && atLeast > most()) {
        this.leave(combination, atLeast);
      } else if (this.isOver()) note(this.missed, combination, atLeast);
      else {
        const configuration = this.pricing.balanced(candidate.configuration);
        const done = new Set<number>();
        for (const variant of states(configuration, placed(this.space, mapping)))
          if (!done.has(variant.zero)) this.look(candidate, variant, most(), done);
      }
    }
  }

  /**
   * Prices a variant, recomputing as few layers as memory needs.
   * @param done ZeRO levels that cannot improve: they need no recomputation, or take too long even so
   */
  private look(candidate: ConfigurationCandidate, variant: StepConfiguration, most: number, done: Set<number>): void {
    const { pricing, isLayerByLayer } = this;
    const isPlain = variant.recompute === 'none';
    const configuration = isLayerByLayer ? pricing.fitted(variant, this.options.limitBytes) : variant;
    const { priced, bytes } = this.offer(candidate.combination, configuration);
    if (!this.isTimed) return;
    if (isPlain && isLayerByLayer) {
      const unlimited = priced || most === Number.POSITIVE_INFINITY ? 0 : pricing.least(variant);
      if (priced || unlimited > most) done.add(variant.zero);
      if (unlimited > most) this.leave(candidate.combination, unlimited);
    }
    if (!priced && !done.has(variant.zero) && (isPlain || !isLayerByLayer))
      this.tight.push({ candidate, configuration: variant });
    // The recomputing variant comes next and stands for both; even stages that take too long may take less when cut otherwise.
    if (!isPlain || priced || !isLayerByLayer || variant.inference || done.has(variant.zero))
      this.leaveOpen(candidate, variant, { priced, bytes });
  }

  /** Notes a lower bound on the seconds of a combination; in other axis orders, only where it has no price yet. */
  private leave(combination: Combination, atLeast: number): void {
    if (!this.isElsewhere || !this.kept.has(combination)) note(this.left, combination, atLeast);
  }

  /** Other cuts may be faster than even stages, or fit where these do not; each states which layers it recomputes. */
  private leaveOpen(
    { atLeast }: ConfigurationCandidate,
    variant: StepConfiguration,
    { priced, bytes }: PricedOutcome,
  ): void {
    if (variant.degrees.pp === 1 || this.space.decided.stageLayers || atLeast >= this.best) return;
    const { stageLayers: _, ...whole } = variant;
    const isFree = this.isLayerByLayer && !variant.inference && variant.recompute === 'none';
    const configuration: StepConfiguration = isFree ? { ...whole, recompute: 'full' } : whole;
    this.open.push({ configuration, seconds: priced?.seconds ?? null, bytes, atLeast });
  }

  /** Offloads to the host what does not fit without recomputation: no step is shorter for it than if the devices held it. */
  moveToHost(mappings: MappingChoices): void {
    const { pricing, isLayerByLayer } = this;
    const { limitBytes } = this.options;
    // Offloading everything comes first: if that leaves too much on the devices, the others leave more.
    const offloads = [...offloadsOf(this.space, mappings, this.options)].reverse();
    for (const { candidate, configuration } of this.tight) {
      for (const offload of offloads) {
        if (candidate.atLeast > this.best) {
          this.leave(candidate.combination, candidate.atLeast);
          break;
        }
        if (this.isOver()) {
          note(this.missed, candidate.combination, candidate.atLeast);
          break;
        }
        const kept: StepConfiguration = { ...configuration, offload };
        const full: StepConfiguration = isLayerByLayer ? { ...kept, recompute: 'full' } : kept;
        const unmoved = this.best < Number.POSITIVE_INFINITY ? pricing.least(configuration) : 0;
        if (unmoved > this.best) {
          this.leave(candidate.combination, unmoved);
          // Cuts that recompute fewer layers may take less.
          this.leaveOpen(candidate, full, { priced: null, bytes: pricing.bytes(full).bytes });
          continue;
        }
        const fitted = isLayerByLayer ? pricing.fitted(full, limitBytes) : full;
        const recomputing = this.offer(candidate.combination, fitted);
        this.leaveOpen(candidate, full, recomputing);
        if (offload === 'all' && limitBytes !== null && recomputing.bytes > limitBytes) break;
        // With activations there all layers recompute or none.
        if (isLayerByLayer && recomputing.priced) this.offer(candidate.combination, kept);
      }
    }
    this.tight = [];
  }

  /** The first configuration that fits, whatever the time, on the devices or else with the host: compared with nothing. */
  takeFirst(candidates: readonly ConfigurationCandidate[]): boolean {
    const { isTimed, pricing, options } = this;
    const offloads = isTimed && pricing.mappings ? offloadsOf(this.space, pricing.mappings, options) : [];
    for (const offload of [undefined, ...offloads]) {
      for (const { combination, configuration } of candidates) {
        this.options.signal?.throwIfAborted();
        for (const variant of states(pricing.balanced(configuration), this.space)) {
          const own = offload ? { ...variant, offload } : variant;
          const fitted = this.isLayerByLayer ? pricing.fitted(own, options.limitBytes) : own;
          if (this.offer(combination, fitted).priced) return true;
        }
      }
    }
    return false;
  }

  /** Keeps a configuration where it is the best of its combination. */
  private offer(combination: Combination, configuration: StepConfiguration): PricedOutcome {
    const { pricing, options, kept, least } = this;
    const need = pricing.bytes(configuration);
    const fits = fitsIn(need, options.limitBytes);
    const smallest = least.get(combination);
    this.count++;
    const { bytes } = need;
    if (!fits && smallest && smallest.bytes <= bytes) return { priced: null, bytes };
    const seconds = pricing.seconds(configuration);
    const estimate: PricedConfiguration = { configuration, seconds, priceLevel: 'estimate', ...need };
    if (!fits) {
      // A configuration is remembered as too large only if it exceeds the devices' memory, not the host's.
      if (fitsIn({ ...need, bytes: 0 }, null)) least.set(combination, estimate);
      return { priced: null, bytes };
    }
    const atLeast = Math.min(seconds, pricing.least(configuration));
    const mayBeBest = atLeast < this.best;
    const priced = mayBeBest ? { ...estimate, ...pricing.exactly(configuration) } : estimate;
    if (!mayBeBest) note(this.estimated, combination, atLeast);
    this.fitting.push(priced);
    const known = kept.get(combination);
    if (known && this.rank(priced) >= this.rank(known)) return { priced, bytes };
    kept.set(combination, priced);
    this.best = Math.min(this.best, priced.seconds);
    this.worst = Math.min(worstOfTop(kept, options.top), options.below ?? Number.POSITIVE_INFINITY);
    return { priced, bytes };
  }

  private isOver(): boolean {
    this.options.signal?.throwIfAborted();
    return this.options.isOver?.() ?? false;
  }
}

function note(where: Map<Combination, number>, combination: Combination, atLeast: number): void {
  where.set(combination, Math.min(atLeast, where.get(combination) ?? Number.POSITIVE_INFINITY));
}

function worstOfTop(kept: ReadonlyMap<Combination, PricedConfiguration>, top: number): number {
  if (kept.size < top) return Number.POSITIVE_INFINITY;
  const seconds = [...kept.values()].map((priced) => priced.seconds).sort((a, b) => a - b);
  return seconds[top - 1] ?? Number.POSITIVE_INFINITY;
}

/** The offloads to try: none where offloading is decided, or the devices have no limit. */
function offloadsOf(
  { decided, base }: SpaceOptions,
  { offloads }: MappingChoices,
  { limitBytes }: ConfigurationSearchOptions,
): MappingChoices['offloads'] {
  return decided.offload !== undefined || base.inference === true || limitBytes === null ? [] : offloads;
}

/** Null where nothing of a combination was priced, ruled out or left. */
function verdictOf(
  combination: Combination,
  { kept, least, left, missed, estimated }: Enumeration,
): DegreesVerdict | null {
  const { degrees, reason } = combination;
  if (reason !== null) return { kind: 'impossible', degrees, reason };
  const best = kept.get(combination);
  const atLeastSeconds = left.get(combination);
  if (best && (atLeastSeconds === undefined || best.seconds <= atLeastSeconds))
    return { kind: 'priced', degrees, best };
  const over = missed.get(combination);
  if (over !== undefined && over <= (atLeastSeconds ?? Number.POSITIVE_INFINITY))
    return best ? { kind: 'priced', degrees, best } : { kind: 'unseen', degrees, atLeastSeconds: over };
  if (atLeastSeconds !== undefined) {
    const all = Math.min(atLeastSeconds, estimated.get(combination) ?? Number.POSITIVE_INFINITY);
    return { kind: 'slower', degrees, atLeastSeconds: all };
  }
  const smallest = least.get(combination);
  return smallest ? { kind: 'too-large', degrees, least: smallest } : null;
}

/** Cheapest first, then those that are slower at least, not searched, too large, impossible. */
export function inOrder(
  verdicts: readonly DegreesVerdict[],
  objective: ConfigurationSearchOptions['objective'],
): readonly DegreesVerdict[] {
  const figure = (verdict: DegreesVerdict) => {
    if (verdict.kind === 'priced') return objective === 'time' ? verdict.best.seconds : verdict.best.bytes;
    if (verdict.kind === 'too-large') return verdict.least.bytes;
    return verdict.kind === 'impossible' ? 0 : verdict.atLeastSeconds;
  };
  return kindByKind(verdicts, KINDS, figure);
}

const KINDS: readonly DegreesVerdict['kind'][] = ['priced', 'slower', 'unseen', 'too-large', 'impossible'];
