/**
 * @file A search over configurations while it goes on: what was found, what was ruled out, and what is left.
 */
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { byBound } from './by-bound.js';
import { fitsIn, type Priced } from './priced.js';
import type { Candidate, Pricing, SearchOptions } from './pricing.js';
import { type Combination, lightest, placed, type SpaceOptions, variants } from './space.js';

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
    if (isTimed && most() < Number.POSITIVE_INFINITY) {
      const closer = pricing.closer(lightest(combination, microBatch, own), most());
      if (closer > most() && closer < Number.POSITIVE_INFINITY) {
        pass(combination, closer);
        return;
      }
      // Memory holds none of its variants, and another micro-batch's fits: what this one needs is not told.
      if (closer === Number.POSITIVE_INFINITY && kept.has(combination)) return;
    }
    this.open.push(candidate);
    for (const { item: variant, least: bound } of this.ordered([...variants(combination, microBatch, own)])) {
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

  /** Prices a variant, recomputing as few layers as memory needs, and keeps it where it is the best of its combination. */
  private offer(combination: Combination, variant: StepConfiguration): void {
    const { pricing, options, kept, least } = this;
    const configuration = this.isLayerByLayer ? pricing.fitted(variant, options.limitBytes) : variant;
    // Where nothing has to recompute it is the variant without.
    if (configuration !== variant && configuration.recompute === 'none') return;
    const need = pricing.bytes(configuration);
    const fits = fitsIn(need, options.limitBytes);
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

  private ordered(all: readonly StepConfiguration[]) {
    return this.isTimed
      ? byBound(all, this.pricing.roughly, this.pricing.variantAtLeast)
      : all.map((item) => ({ item, least: 0 }));
  }
}

function worstOfTop(kept: ReadonlyMap<Combination, Priced>, top: number): number {
  if (kept.size < top) return Number.POSITIVE_INFINITY;
  const seconds = [...kept.values()].map((priced) => priced.seconds).sort((a, b) => a - b);
  return seconds[top - 1] ?? Number.POSITIVE_INFINITY;
}
