/**
 * @file Tables of many samples are run whole by `npm run test:all`; `npm test`, which has five minutes for everything, takes the
 * first few of each kind, so that no kind goes untried. If a grid's cases take seconds each, `npm run test:all` takes a part of
 * them, and of long trainings the first steps.
 */

import type { ExecutionContext } from 'ava';

/** Whether grids are run whole too: `AUTOPAR_TESTS=whole npm run test:all`, which takes hours. */
export const WHOLE: boolean = process.env.AUTOPAR_TESTS === 'whole';

/** Whether all is run: ava.all.config.mjs says so. */
export const EVERYTHING: boolean = WHOLE || process.env.AUTOPAR_TESTS === 'all';

/** One of each `every` of a grid's expensive cases, from the first on; all where grids are run whole. */
export function thinned<T>(cases: readonly T[], every: number): readonly T[] {
  return WHOLE ? cases : cases.filter((_, index) => index % every === 0);
}

/** How many of the steps of a long training are compared: all where grids are run whole, else two of five. */
export function shortened(steps: number): number {
  return WHOLE ? steps : Math.ceil(0.4 * steps);
}

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

/** Key of the declaring `test` on a suite's `test` that declares hooks alone (titled.ts). */
export const SLOW: unique symbol = Symbol('slow');

/** In place of ava's `test` for what takes seconds and has a shorter test beside it: declared by `npm run test:all` alone. */
export function slowTests(test: Declare & { readonly [SLOW]?: Declare }, areSlow = true): Declare {
  if (!areSlow) return test;
  return EVERYTHING ? (test[SLOW] ?? test) : () => {};
}

type Declare = (title: string, run: (t: ExecutionContext) => Promise<void> | void) => void;

/** How many random inputs a property is held against: half of all in `npm run test:all`, a third in `npm test`. */
export function draws(all: number): number {
  return WHOLE ? all : Math.ceil(all / (EVERYTHING ? 2 : 3));
}
