/**
 * @file The cheapest configurations of a space, best first: combinations of degrees and micro-batch are taken in the order of a
 * bound that no variant of them can beat, and looked at in full until the bound of the next is above the best that was found
 * (branch and bound, Land and Doig 1960). Every combination ends with its best variant, or with the figure that rules it out.
 */
import type { Degrees, MeshOrder, Offload, StepConfiguration } from '../../cost-model/step/configuration.js';
import { fitsIn, type Need, type Priced } from './priced.js';
import {
  type Combination,
  combinations,
  lightest,
  type Placing,
  placed,
  type SpaceOptions,
  variants,
} from './space.js';

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
  /**
   * Seconds that no variant of these degrees with this micro-batch beats, whatever the order of the axes; `lightest` does least of
   * all variants.
   */
  readonly atLeast: (combination: Combination, lightest: StepConfiguration) => number;
  /**
   * The same, closer to what the best variant takes, and dearer; of the order that is given, and with `freely` whatever memory
   * holds. What is not above `enough` is not worked out further, and may be above what a variant takes.
   */
  readonly closer: (lightest: StepConfiguration, enough: number, freely?: 'freely') => number;
  /** The same of one variant and others like it: no more than `variantAtLeast`, and cheap. */
  readonly roughly: (configuration: StepConfiguration) => number;
  /** The same of one variant, whatever of it recomputes; infinite where memory holds it in no way. */
  readonly variantAtLeast: (configuration: StepConfiguration) => number;
  /** Left out where neither orders of the axes nor the host's memory are searched. */
  readonly placings?: Placings;
}

/** What the search asks of a cost model that knows where axes and state may lie. */
export interface Placings {
  /** Orders of the axes beside the usual one that may be faster for something, and whether tp, sp and ep lie as usual in them. */
  readonly orders: (degrees: Degrees) => readonly { readonly order: MeshOrder; readonly isSameInside: boolean }[];
  /** Seconds that no variant beats wherever tp, sp and ep lie as usual, whatever lies on the host. */
  readonly anywhere: (lightest: StepConfiguration) => number;
  /** What may lie on the host. */
  readonly offloads: readonly Exclude<Offload, 'none'>[];
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
  /** Degrees and micro-batches whose bound is below the best: a cut into stages of theirs could be better. */
  readonly open: readonly Candidate[];
  /** Configurations priced: the effort. */
  readonly priced: number;
}

/** Degrees with one micro-batch, one order of the axes, and what lies on the host. */
export interface Candidate {
  readonly combination: Combination;
  readonly microBatch: number;
  readonly placing: Placing;
  /** Seconds that none of its variants beats, however its layers are cut. */
  readonly atLeast: number;
}

/** Searches; deterministic, ties go to what comes first in the space. */
export function bestConfigurations(space: SpaceOptions, pricing: Pricing, options: SearchOptions): Found {
  const all = combinations(space);
  const verdicts = new Map<Combination, Verdict>();
  const queue: Candidate[] = [];
  for (const combination of all) {
    const { degrees, reason } = combination;
    if (reason !== null) verdicts.set(combination, { kind: 'impossible', degrees, reason });
    for (const microBatch of combination.microBatches)
      queue.push({
        combination,
        microBatch,
        placing: USUAL,
        atLeast: pricing.atLeast(combination, lightest(combination, microBatch, space)),
      });
  }
  queue.sort((a, b) => a.atLeast - b.atLeast);
  const kept = new Map<Combination, Priced>();
  const least = new Map<Combination, Priced>();
  const rank = (priced: Priced) => (options.objective === 'memory' ? priced.bytes : priced.seconds);
  let count = 0;
  const timed = options.objective === 'time';
  // What the search never came to: of each combination the least that it would have taken.
  const left = new Map<Combination, number>();
  const leave = (combination: Combination, atLeast: number) =>
    left.set(combination, Math.min(atLeast, left.get(combination) ?? Number.POSITIVE_INFINITY));
  let worst = Number.POSITIVE_INFINITY;
  const layerByLayer = timed && space.decided.recompute === undefined;
  // Those that no bound of all their variants ruled out.
  const open: Candidate[] = [];
  /** @param most seconds that a configuration may take to be wanted; @param pass what to do with a combination that takes longer */
  const look = (
    candidate: Candidate,
    most: () => number,
    pass: (combination: Combination, atLeast: number) => void,
  ) => {
    const { combination, microBatch, placing, atLeast } = candidate;
    options.signal?.throwIfAborted();
    if (timed && atLeast > most()) return pass(combination, atLeast);
    const own = placed(space, placing);
    if (timed && most() < Number.POSITIVE_INFINITY) {
      const closer = pricing.closer(lightest(combination, microBatch, own), most());
      if (closer > most() && closer < Number.POSITIVE_INFINITY) return pass(combination, closer);
    }
    open.push(candidate);
    const all = [...variants(combination, microBatch, own)];
    for (const { variant, least: bound } of timed ? byBound(all, pricing) : inOrder(all)) {
      const known = kept.get(combination);
      if (timed && known && bound > known.seconds) break;
      if (timed && bound > most() && bound < Number.POSITIVE_INFINITY) return pass(combination, bound);
      const configuration = layerByLayer ? pricing.fitted(variant, options.limitBytes) : variant;
      // Where nothing has to recompute it is the variant without.
      if (configuration !== variant && configuration.recompute === 'none') continue;
      const need = pricing.bytes(configuration);
      const fits = fitsIn(need, options.limitBytes);
      const smallest = least.get(combination);
      if (!fits && smallest && smallest.bytes <= need.bytes) continue;
      count++;
      const priced = { configuration, seconds: pricing.seconds(configuration), ...need };
      // What is too large is remembered by what it needs of the devices.
      if ((!smallest || need.bytes < smallest.bytes) && fitsIn({ ...need, bytes: 0 }, null))
        least.set(combination, priced);
      if (!fits || (known && rank(priced) >= rank(known))) continue;
      kept.set(combination, priced);
      worst = worstOfTop(kept, options.top);
    }
  };
  for (const candidate of queue) look(candidate, () => worst, leave);
  // Then what else may be the best of all: other orders, and what the host holds. Runners-up are those of the usual order, and of
  // what the devices hold, where they have a price there.
  const placings = timed ? otherPlacings(space, pricing, options) : null;
  const best = () => Math.min(...[...kept.values()].map(({ seconds }) => seconds));
  const pass = (combination: Combination, atLeast: number) => {
    if (!kept.has(combination)) leave(combination, atLeast);
  };
  for (const candidate of placings ? queue : []) {
    const { combination, microBatch } = candidate;
    if (candidate.atLeast > best()) {
      pass(combination, candidate.atLeast);
      continue;
    }
    const { orders, offloads, anywhere } = placings?.(combination) ?? NOWHERE;
    const lie = (placing: Placing, atLeast: number) => {
      look({ ...candidate, placing, atLeast }, best, pass);
    };
    const least = anywhere(lightest(combination, microBatch, space));
    for (const { placing: order, isSameInside } of [{ placing: USUAL, isSameInside: true }, ...orders]) {
      if (isSameInside && least > best()) {
        pass(combination, least);
        continue;
      }
      // The host makes no step shorter than it would be if the devices held it.
      const freely = pricing.closer(lightest(combination, microBatch, placed(space, order)), best(), 'freely');
      if (freely > best()) {
        pass(combination, freely);
        continue;
      }
      if (order !== USUAL) lie(order, candidate.atLeast);
      for (const placing of offloads) {
        const own = lightest(combination, microBatch, placed(space, placing));
        lie({ ...placing, ...order }, pricing.atLeast(combination, own));
      }
    }
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
  const sorted = [...verdicts.values()]
    .flatMap((verdict) => (verdict.kind === 'priced' ? [verdict.best] : []))
    .sort((a, b) => rank(a) - rank(b));
  const [first] = sorted;
  const cost = first ? rank(first) : Number.POSITIVE_INFINITY;
  return {
    best: sorted,
    open: timed ? open.filter(({ combination, atLeast }) => combination.degrees.pp > 1 && atLeast < cost) : [],
    verdicts: [...verdicts.values()].sort((a, b) => orderOf(a, rank) - orderOf(b, rank)),
    bound: cost,
    priced: count,
  };
}

/** The usual order of the axes, and nothing on the host. */
const USUAL: Placing = {};

const NOWHERE = { orders: [], offloads: [], anywhere: () => Number.POSITIVE_INFINITY };

interface OtherPlacings extends Pick<Placings, 'anywhere'> {
  readonly orders: readonly { readonly placing: Placing; readonly isSameInside: boolean }[];
  readonly offloads: readonly Placing[];
}

/** How else the axes and what a step holds may lie, as far as it is searched; null where it is not. */
function otherPlacings(
  { decided, base }: SpaceOptions,
  { placings }: Pricing,
  { limitBytes }: SearchOptions,
): ((combination: Combination) => OtherPlacings) | null {
  if (!placings) return null;
  // Where devices have no limit nothing goes to the host.
  const onDevices = decided.offload !== undefined || base.inference === true || limitBytes === null;
  const offloads = onDevices ? [] : placings.offloads.map((offload) => ({ offload }));
  return ({ degrees }) => ({
    orders: decided.meshOrder
      ? []
      : placings.orders(degrees).map(({ order, ...where }) => ({ ...where, placing: { meshOrder: order } })),
    offloads,
    anywhere: placings.anywhere,
  });
}

interface Bounded {
  readonly variant: StepConfiguration;
  readonly least: number;
}

function inOrder(all: readonly StepConfiguration[]): readonly Bounded[] {
  return all.map((variant) => ({ variant, least: 0 }));
}

/** Variants in the order of their bounds, of which each is made when those before it have been looked at. */
function* byBound(
  all: readonly StepConfiguration[],
  { roughly, variantAtLeast }: Pick<Pricing, 'roughly' | 'variantAtLeast'>,
): Generator<Bounded> {
  const rough = all.map((variant) => ({ variant, least: roughly(variant) })).sort((a, b) => a.least - b.least);
  const ready: Bounded[] = [];
  for (let next = 0; next < rough.length || ready.length > 0; ) {
    const first = ready.reduce<Bounded | undefined>(
      (best, one) => (best && best.least <= one.least ? best : one),
      undefined,
    );
    const other = rough[next];
    if (other && (!first || other.least <= first.least)) {
      next++;
      const { variant, least } = other;
      ready.push({ variant, least: least === Number.POSITIVE_INFINITY ? least : variantAtLeast(variant) });
    } else if (first) {
      ready.splice(ready.indexOf(first), 1);
      yield first;
    }
  }
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
