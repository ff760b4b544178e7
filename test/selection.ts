/**
 * @file Tables of many samples are run whole by `npm run test:all`; `npm test`, which has five minutes for everything, takes the
 * first few of each kind, so that no kind goes untried.
 */

import type { ExecutionContext } from 'ava';

/** Whether all is run: ava.all.config.mjs says so. */
export const EVERYTHING: boolean = process.env.AUTOPAR_TESTS === 'all';

/** The samples to run with their places in the table: all, or the first `most` of each kind. */
export function selection<T>(
  samples: readonly T[],
  kindOf: (sample: T) => string,
  most = 2,
): readonly (readonly [number, T])[] {
  const taken = new Map<string, number>();
  return [...samples.entries()].filter(([, sample]) => {
    const kind = kindOf(sample);
    const before = taken.get(kind) ?? 0;
    taken.set(kind, before + 1);
    return EVERYTHING || before < most;
  });
}

/** In place of ava's `test` for what takes seconds and has a shorter test beside it: declared by `npm run test:all` alone. */
export function slowTests(test: Declare, areSlow = true): Declare {
  return EVERYTHING || !areSlow ? test : () => {};
}

type Declare = (title: string, run: (t: ExecutionContext) => Promise<void> | void) => void;

/** How many random inputs a property is held against: all that it is worth in `npm run test:all`, a third in `npm test`. */
export function draws(all: number): number {
  return EVERYTHING ? all : Math.ceil(all / 3);
}
