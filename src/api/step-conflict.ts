/**
 * @file Of what is said of a whole step and leaves no plan: which of it does.
 */
import { AutoparError } from '../ir/error.js';
import { smallestConflict } from '../search/smallest-conflict.js';
import type { SimulateOptions } from './simulate.js';

/** What may be said of a step, and the option that says it. */
const PINS = {
  pp: '--pp',
  dp: '--dp',
  sp: '--sp',
  tp: '--tp',
  ep: '--ep',
  microBatch: '--micro-batch',
  microBatches: '--micro-batches',
  schedule: '--schedule',
  virtualStages: '--virtual-stages',
  zero: '--zero',
  recompute: '--recompute',
  offload: '--offload',
  tpSequence: '--tp-sequence',
} as const satisfies Partial<Record<keyof SimulateOptions, string>>;

/** A key of what is said. */
export type Pin = keyof typeof PINS;

/** Searches; an AutoparError says that there is no plan. */
type Search<Options> = (options: Options) => Promise<unknown>;

/**
 * A smallest set of options that leaves no plan; empty where there is none without them either.
 * @param options of a search that has no plan
 * @param unpinned searches without any of them; it may overlook a plan, which leaves the set empty
 */
export function conflictingPins<Options extends SimulateOptions>(
  options: Options,
  search: Search<Options>,
  unpinned = search,
): Promise<readonly Pin[]> {
  const given = givenPins(options);
  return smallestConflict(given, async (kept) => {
    const left = given.filter((pin) => !kept.has(pin)).map((pin) => [pin, undefined]);
    try {
      await (kept.size === 0 ? unpinned : search)({ ...options, ...Object.fromEntries(left) });
      return false;
    } catch (error) {
      if (error instanceof AutoparError) return true;
      throw error;
    }
  });
}

/** As they are typed. */
export function pinsTyped(options: SimulateOptions, pins: readonly Pin[]): readonly string[] {
  return pins.map((pin) => `${PINS[pin]} ${options[pin]}`);
}

function givenPins(options: SimulateOptions): readonly Pin[] {
  return (Object.keys(PINS) as Pin[]).filter((pin) => options[pin] !== undefined && options[pin] !== 'auto');
}
