/**
 * @file Of what is said of a whole step and leaves no plan: which of it does.
 */
import { AutoparError } from '../../ir/error.js';
import { smallestConflict } from '../../search/smallest-conflict.js';
import type { SimulateOptions } from '../simulate.js';

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
export type PinnedKey = keyof typeof PINS;

/** Searches; an AutoparError says that there is no plan. */
type Search<Options> = (options: Options) => Promise<unknown>;

/**
 * A smallest set of options that leaves no plan; empty where there is none without them either.
 * @param options of a search that has no plan
 */
export function conflictingPins<Options extends SimulateOptions>(
  options: Options,
  search: Search<Options>,
): Promise<readonly PinnedKey[]> {
  return smallestConflict(givenPins(options), async (kept) => {
    try {
      await search(keepingOnly(options, [...kept]));
      return false;
    } catch (error) {
      if (error instanceof AutoparError) return true;
      throw error;
    }
  });
}

/** The options without all that is said but these. */
export function keepingOnly<Options extends SimulateOptions>(options: Options, pins: readonly PinnedKey[]): Options {
  const left = givenPins(options).filter((pin) => !pins.includes(pin));
  return { ...options, ...Object.fromEntries(left.map((pin) => [pin, undefined])) };
}

/** As they are typed. */
export function pinsTyped(options: SimulateOptions, pins: readonly PinnedKey[]): readonly string[] {
  return pins.map((pin) => `${PINS[pin]} ${options[pin]}`);
}

function givenPins(options: SimulateOptions): readonly PinnedKey[] {
  return (Object.keys(PINS) as PinnedKey[]).filter((pin) => options[pin] !== undefined && options[pin] !== 'auto');
}
