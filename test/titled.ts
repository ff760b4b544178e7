/**
 * @file A replacement of ava's `test` for the test files of a suite (scripts/suites.mjs): titles begin with the file's, and tests
 * run one after the other. All of them at once would hold the objects of every file of the suite.
 */
import test, { type TestFn } from 'ava';
import { EVERYTHING, SLOW } from './selection.js';

/** Declarations of the suite's files: ava takes those that come at once, and a file may await something before its own. */
const declarations: (() => void)[] = [];

/** Declares all tests of the suite's files, which have been imported. */
export function declare(): void {
  for (const one of declarations) one();
}

/**
 * Ava's `test` for the tests of one file.
 * @param adds whether `npm run test:all` runs its slow tests alone, those of `slowTests` (selection.ts): `npm test` ran the
 * others
 */
export function titled(file: string, adds: boolean): TestFn {
  const every = under(file, test.serial, true);
  if (!adds || !EVERYTHING) return every as TestFn;
  const hooksAlone = under(file, test.serial, false) as object;
  return new Proxy(hooksAlone, {
    get: (target, key) => (key === SLOW ? every : key === 'serial' ? titled(file, adds) : Reflect.get(target, key)),
  }) as TestFn;
}

type Chain = (...words: readonly unknown[]) => unknown;

const HOOKS: ReadonlySet<unknown> = new Set(['before', 'after', 'beforeEach', 'afterEach']);

/** A function of ava's chain with all that follows it: `test.skip`, `test.after.always`. */
function under(file: string, chain: unknown, declares: boolean): unknown {
  if (typeof chain !== 'function') return chain;
  return new Proxy(chain as Chain, {
    apply: (target, _self, [first, ...rest]) => {
      if (declares) declarations.push(() => target(typeof first === 'string' ? `${file} › ${first}` : first, ...rest));
    },
    get: (target, key) =>
      key === 'serial'
        ? under(file, target, declares)
        : under(file, Reflect.get(target, key), declares || HOOKS.has(key)),
  });
}
