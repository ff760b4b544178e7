/**
 * @file A replacement of ava's `test` for the test files of a suite (scripts/suites.mjs): titles begin with the file's, and tests
 * run one after the other. All of them at once would hold the objects of every file of the suite.
 */
import test, { type TestFn } from 'ava';

/** Declarations of the suite's files: ava takes those that come at once, and a file may await something before its own. */
const declarations: (() => void)[] = [];

/** Declares all tests of the suite's files, which have been imported. */
export function declare(): void {
  for (const one of declarations) one();
}

/** Ava's `test` for the tests of one file. */
export function titled(file: string): TestFn {
  return under(file, test.serial) as TestFn;
}

type Chain = (...words: readonly unknown[]) => unknown;

/** A function of ava's chain with all that follows it: `test.skip`, `test.after.always`. */
function under(file: string, chain: unknown): unknown {
  if (typeof chain !== 'function') return chain;
  return new Proxy(chain as Chain, {
    apply: (target, _self, [first, ...rest]) => {
      declarations.push(() => target(typeof first === 'string' ? `${file} › ${first}` : first, ...rest));
    },
    get: (target, key) => (key === 'serial' ? under(file, target) : under(file, Reflect.get(target, key))),
  });
}
