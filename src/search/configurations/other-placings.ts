/**
 * @file What else may be the best of all: other orders of the mesh's axes, what the host holds, and norms that lie whole over tp.
 * Runners-up are those of the usual order, and of what the devices hold, where they have a price there.
 */
import type { ConfigurationSearch } from './configuration-search.js';
import type { Candidate, Placings, Pricing, SearchOptions } from './pricing.js';
import { type Combination, lightest, type Placing, placed, type SpaceOptions } from './space.js';

/** Looks at every candidate of the usual placing in the others, as far as it may be better than the best. */
export function lookElsewhere(
  candidates: readonly Candidate[],
  search: ConfigurationSearch,
  space: SpaceOptions,
  pricing: Pricing,
  options: SearchOptions,
): void {
  const { placings } = pricing;
  if (!placings) return;
  const best = () => search.best();
  const pass = (combination: Combination, atLeast: number) => {
    if (!search.kept.has(combination)) search.leave(combination, atLeast);
  };
  const offloads = offloadsOf(space, placings, options);
  const lookAround = (candidate: Candidate) => {
    const { combination, microBatch, placing: own, atLeast } = candidate;
    if (atLeast > best()) {
      pass(combination, atLeast);
      return;
    }
    if (search.misses(combination, atLeast)) return;
    const lie = (placing: Placing, least: number) =>
      search.look({ ...candidate, placing: { ...own, ...placing }, atLeast: least }, best, pass);
    const lying = (placing: Placing) => lightest(combination, microBatch, placed(space, { ...own, ...placing }));
    const least = placings.anywhere(lying(USUAL));
    for (const { placing: order, isSameInside } of ordersOf(combination, space, placings)) {
      // Where nothing was found, nothing was ruled out by its seconds; and what a device holds is the same in every order.
      if (order !== USUAL && best() === Number.POSITIVE_INFINITY && !search.onDevices.has(combination)) break;
      if (isSameInside && least > best()) {
        pass(combination, least);
        continue;
      }
      // The host makes no step shorter than it would be if the devices held it.
      const freely = pricing.closer(lying(order), best(), 'freely');
      if (freely > best()) {
        pass(combination, freely);
        continue;
      }
      if (order !== USUAL || own === WHOLE) lie(order, atLeast);
      for (const placing of offloads) lie({ ...placing, ...order }, pricing.atLeast(combination, lying(placing)));
    }
  };
  for (const candidate of candidates) lookAround(candidate);
  if (space.decided.tpSequence !== undefined) return;
  for (const candidate of candidates) {
    const { combination, microBatch, atLeast: along } = candidate;
    // What lies whole is held whole: where nothing fits, this does not.
    if (combination.degrees.tp === 1 || best() === Number.POSITIVE_INFINITY) continue;
    if (!placings.gainsWhole(lightest(combination, microBatch, space), along - best())) continue;
    const atLeast = pricing.atLeast(combination, lightest(combination, microBatch, placed(space, WHOLE)));
    lookAround({ ...candidate, placing: WHOLE, atLeast });
  }
}

/** Norms whole on every rank of tp. */
const WHOLE: Placing = { tpSequence: false };

/** The usual order of the axes, and nothing on the host. */
const USUAL: Placing = {};

/** The orders that are looked at, the usual one first. */
function ordersOf(
  { degrees }: Combination,
  { decided }: SpaceOptions,
  { orders }: Placings,
): readonly { readonly placing: Placing; readonly isSameInside: boolean }[] {
  const others = decided.meshOrder ? [] : orders(degrees);
  return [
    { placing: USUAL, isSameInside: true },
    ...others.map(({ order, isSameInside }) => ({ isSameInside, placing: { meshOrder: order } })),
  ];
}

/** What may lie on the host: nothing where that is decided, or devices have no limit. */
export function offloadsOf(
  { decided, base }: SpaceOptions,
  placings: Placings | undefined,
  { limitBytes }: SearchOptions,
): readonly Placing[] {
  const onDevices = decided.offload !== undefined || base.inference === true || limitBytes === null;
  return onDevices ? [] : (placings?.offloads ?? []).map((offload) => ({ offload }));
}
