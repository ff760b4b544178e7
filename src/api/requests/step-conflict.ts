/**
 * @file Finds which of the options for a step leave no plan.
 */
import { AutoparError } from '../../ir/error.js';
import { smallestConflict } from '../../search/smallest-conflict.js';
import type { SimulateOptions } from '../simulate.js';

/** Settings of a step, with the options that give them. */
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

/** The key of a setting. */
export type PinnedKey = keyof typeof PINS;

/** A search; it throws an AutoparError if there is no plan. */
type Search<Options> = (options: Options) => Promise<unknown>;

/**
 * A smallest set of options that leaves no plan; empty if there is no plan without them either.
 * @param options of a search that has no plan
 */
export function conflictingPins<Options extends SimulateOptions>(
  options: Options,
  search: Search<Options>,
): Promise<readonly PinnedKey[]> {
  return smallestConflict(requestedPins(options), async (kept) => {
    try {
      await search(keepingOnly(options, [...kept]));
      return false;
    } catch (error) {
      if (error instanceof AutoparError) return true;
      throw error;
    }
  });
}

/** The options with only these settings; the other settings are left out. */
export function keepingOnly<Options extends SimulateOptions>(options: Options, pins: readonly PinnedKey[]): Options {
  const left = requestedPins(options).filter((pin) => !pins.includes(pin));
  return { ...options, ...Object.fromEntries(left.map((pin) => [pin, undefined])) };
}

/** The settings as they are typed. */
export function pinsTyped(options: SimulateOptions, pins: readonly PinnedKey[]): readonly string[] {
  return pins.map((pin) => `${PINS[pin]} ${options[pin]}`);
}

function requestedPins(options: SimulateOptions): readonly PinnedKey[] {
  return (Object.keys(PINS) as PinnedKey[]).filter((pin) => options[pin] !== undefined && options[pin] !== 'auto');
}
