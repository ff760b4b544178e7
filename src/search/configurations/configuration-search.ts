/**
 * @file A search over configurations while it goes on: what was found, what was ruled out, and what is left.
 */
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { byBound } from './by-bound.js';
import { fitsIn, type Priced } from './priced.js';
import type { Candidate, Pricing, SearchOptions } from './pricing.js';
import { type Combination, lightest, type Placing, placed, type SpaceOptions, variants } from './space.js';

/** What is wanted least of. */
export type Rank = (priced: Priced) => number;

export class ConfigurationSearch {
  /** The best of each combination that fits. */
  readonly kept = new Map<Combination, Priced>();
  /** What needs least of each combination that does not. */
  readonly least = new Map<Combination, Priced>();
  /** Of each combination that was ruled out the least that it would have taken; and of those that time did not allow. */
  readonly left = new Map<Combination, number>();
  readonly missed = new Map<Combination, number>();
  /** All that were priced and fit, in the order in which they were. */
  readonly fitting: Priced[] = [];
  /** Those that no bound of all their variants ruled out. */
  readonly open: Candidate[] = [];
  /** Combinations of which some configuration fits the devices, whether or not the hosts hold their part. */
  readonly onDevices = new Set<Combination>();
  /** What memory holds in no way, by what lies on the host. */
  private readonly tooLarge = new Map<Combination, Map<Placing['offload'], Candidate>>();
  /** What a further combination must beat to be among those that are shown. */
  worst = Number.POSITIVE_INFINITY;
  /** The least of what time did not allow to look at. */
  unseen = Number.POSITIVE_INFINITY;
  count = 0;
  /** Seconds of the best, where they are known. */
  private fastest: number | null = null;
  private readonly isTimed: boolean;
  private readonly isLayerByLayer: boolean;

  constructor(
    private readonly space: SpaceOptions,
    private readonly pricing: Pricing,
    private readonly options: SearchOptions,
    private readonly rank: Rank,
  ) {
    this.isTimed = options.objective === 'time';
    this.isLayerByLayer = this.isTimed && space.decided.recompute === undefined;
  }

  get isCutOff(): boolean {
    return this.missed.size > 0;
  }

  /** Seconds of the best. */
  best(): number {
    this.fastest ??= Math.min(...[...this.kept.values()].map(({ seconds }) => seconds));
    return this.fastest;
  }

  /** A combination of which nothing takes less than this. */
  leave(combination: Combination, atLeast: number): void {
    this.left.set(combination, Math.min(atLeast, this.left.get(combination) ?? Number.POSITIVE_INFINITY));
  }

  /** Whether the time is over: a combination then is not looked at. */
  misses(combination: Combination, atLeast: number): boolean {
    this.options.signal?.throwIfAborted();
    if (!this.options.isOver?.()) return false;
    this.missed.set(combination, Math.min(atLeast, this.missed.get(combination) ?? Number.POSITIVE_INFINITY));
    this.unseen = Math.min(this.unseen, atLeast);
    return true;
  }

  /**
   * Looks at a candidate's variants, least first.
   * @param most seconds that a configuration may take to be wanted
   * @param pass what to do with a combination that takes longer
   */
  look(
    candidate: Candidate,
    most: () => number,
    pass: (combination: Combination, atLeast: number) => void = (...passed) => this.leave(...passed),
  ): void {
    const { isTimed, pricing, kept } = this;
    const { combination, microBatch, placing, atLeast } = candidate;
    if (isTimed && atLeast > most()) {
      pass(combination, atLeast);
      return;
    }
    if (this.misses(combination, atLeast)) return;
    const own = placed(this.space, placing);
    if (isTimed) {
      const closer = pricing.closer(lightest(combination, microBatch, own), Math.min(most(), Number.MAX_VALUE));
      if (closer === Number.POSITIVE_INFINITY) {
        this.setAside(candidate);
        return;
      }
      if (closer > most()) {
        pass(combination, closer);
        return;
      }
    }
    this.open.push(candidate);
    for (const { item: variant, least: bound } of this.ordered([...variants(combination, microBatch, own)], most())) {
      const known = kept.get(combination);
      if (isTimed && known && bound > known.seconds) return;
      if (isTimed && bound > most() && bound < Number.POSITIVE_INFINITY) {
        pass(combination, bound);
        return;
      }
      if (this.misses(combination, Math.max(bound, atLeast))) return;
      this.offer(combination, variant);
    }
  }

  /**
   * Keeps the first configuration that fits, whatever the time: each candidate's variants in the order of their bounds, in the
   * usual order of the axes. What time did not allow to look at stays missed.
   * @param placing what lies on the host
   * @returns whether there is one
   */
  takeFirst(candidates: readonly Candidate[], placing: Placing): boolean {
    const { isTimed, pricing, kept } = this;
    const space = placed(this.space, placing);
    for (const { combination, microBatch } of candidates) {
      this.options.signal?.throwIfAborted();
      const most = Number.MAX_VALUE;
      // What memory holds in no way has no bound that is finite.
      if (isTimed && !Number.isFinite(pricing.closer(lightest(combination, microBatch, space), most))) continue;
      for (const { item: variant, least } of this.ordered([...variants(combination, microBatch, space)], most)) {
        if (least === Number.POSITIVE_INFINITY) continue;
        this.offer(combination, variant);
        if (kept.size > 0) return true;
      }
    }
    return false;
  }

  /**
   * What memory holds in no way, priced where nothing else of its combination fits: how much it needs at least. More samples at
   * once need no less.
   */
  weighTooLarge(): void {
    for (const [combination, byOffload] of this.tooLarge) {
      if (this.kept.has(combination)) continue;
      for (const { microBatch, placing } of byOffload.values()) {
        for (const variant of variants(combination, microBatch, placed(this.space, placing))) {
          if (this.options.isOver?.()) return;
          this.offer(combination, variant);
        }
      }
    }
  }

  /** Sets aside what memory holds in no way: of one combination and one part on the host the least micro-batch. */
  private setAside(candidate: Candidate): void {
    const { combination, microBatch, placing } = candidate;
    const byOffload = this.tooLarge.get(combination) ?? new Map<Placing['offload'], Candidate>();
    this.tooLarge.set(combination, byOffload);
    const known = byOffload.get(placing.offload);
    if (!known || microBatch < known.microBatch) byOffload.set(placing.offload, candidate);
  }

  /** Prices a variant, recomputing as few layers as memory needs, and keeps it where it is the best of its combination. */
  private offer(combination: Combination, variant: StepConfiguration): void {
    const { pricing, options, kept, least } = this;
    const configuration = this.isLayerByLayer ? pricing.fitted(variant, options.limitBytes) : variant;
    // Where nothing has to recompute it is the variant without.
    if (configuration !== variant && configuration.recompute === 'none') return;
    const need = pricing.bytes(configuration);
    const fits = fitsIn(need, options.limitBytes);
    if (options.limitBytes === null || need.bytes <= options.limitBytes) this.onDevices.add(combination);
    const smallest = least.get(combination);
    if (!fits && smallest && smallest.bytes <= need.bytes) return;
    this.count++;
    const priced = { configuration, seconds: pricing.seconds(configuration), ...need };
    // What is too large is remembered by what it needs of the devices.
    if ((!smallest || need.bytes < smallest.bytes) && fitsIn({ ...need, bytes: 0 }, null))
      least.set(combination, priced);
    if (fits) this.fitting.push(priced);
    const known = kept.get(combination);
    if (!fits || (known && this.rank(priced) >= this.rank(known))) return;
    kept.set(combination, priced);
    this.fastest = null;
    this.worst = worstOfTop(kept, options.top);
  }

  private ordered(all: readonly StepConfiguration[], enough: number) {
    const { roughly, variantAtLeast } = this.pricing;
    return this.isTimed
      ? byBound(all, (one) => roughly(one, enough), variantAtLeast)
      : all.map((item) => ({ item, least: 0 }));
  }
}

function worstOfTop(kept: ReadonlyMap<Combination, Priced>, top: number): number {
  if (kept.size < top) return Number.POSITIVE_INFINITY;
  const seconds = [...kept.values()].map((priced) => priced.seconds).sort((a, b) => a - b);
  return seconds[top - 1] ?? Number.POSITIVE_INFINITY;
}
