/**
 * @file Of what is said of a whole step and leaves no plan: which of it does.
 */
import { AutoparError } from '../ir/error.js';
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
 * A smallest set of options that leaves no plan: each in turn is left out, and stays out where the others still leave none (deletion
 * filter, Chinneck and Dravnieks 1991). Empty where there is none without them either.
 * @param options of a search that has no plan
 * @param unpinned searches without any of them; it may overlook a plan, which leaves the set empty
 */
export async function conflictingPins<Options extends SimulateOptions>(
  options: Options,
  search: Search<Options>,
  unpinned = search,
): Promise<readonly Pin[]> {
  const given = givenPins(options);
  const kept = new Set(given);
  if (given.length === 0 || (await leavesNone(options, new Set(), unpinned))) return [];
  for (const pin of given) {
    kept.delete(pin);
    if (!(await leavesNone(options, kept, search))) kept.add(pin);
  }
  return [...kept];
}

/** As they are typed. */
export function pinsTyped(options: SimulateOptions, pins: readonly Pin[]): readonly string[] {
  return pins.map((pin) => `${PINS[pin]} ${options[pin]}`);
}

function givenPins(options: SimulateOptions): readonly Pin[] {
  return (Object.keys(PINS) as Pin[]).filter((pin) => options[pin] !== undefined && options[pin] !== 'auto');
}

async function leavesNone<Options extends SimulateOptions>(
  options: Options,
  kept: ReadonlySet<Pin>,
  search: Search<Options>,
): Promise<boolean> {
  const left = givenPins(options).filter((pin) => !kept.has(pin));
  try {
    await search({ ...options, ...Object.fromEntries(left.map((pin) => [pin, undefined])) });
    return false;
  } catch (error) {
    if (error instanceof AutoparError) return true;
    throw error;
  }
}
