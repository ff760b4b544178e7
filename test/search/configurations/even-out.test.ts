/**
 * @file The most even of the cuts with one pace, against all cuts.
 */
import test from 'ava';
import fc from 'fast-check';
import { evenOut } from '../../../src/search/configurations/even-out.js';

/** All ways to cut so many parts into stages of one part at least. */
function cuts(parts: number, stages: number): readonly (readonly number[])[] {
  if (stages === 1) return [[parts]];
  return Array.from({ length: Math.max(0, parts - stages + 1) }, (_, index) => index + 1).flatMap((first) =>
    cuts(parts - first, stages - 1).map((rest) => [first, ...rest]),
  );
}

function lengths(seconds: readonly number[], cut: readonly number[]): readonly number[] {
  let from = 0;
  return cut.map((count) => {
    const own = seconds.slice(from, from + count).reduce((sum, one) => sum + one, 0);
    from += count;
    return own;
  });
}

const squares = (values: readonly number[]) => values.reduce((sum, value) => sum + value * value, 0);

test('least squares of all cuts that keep the pace, none where no cut does', (t) => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 8 }),
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 1, max: 60 }),
      (seconds, stages, pace) => {
        const fast = cuts(seconds.length, stages)
          .map((cut) => lengths(seconds, cut))
          .filter((own) => Math.max(...own) <= pace);
        const found = evenOut(seconds, stages, pace);
        if (fast.length === 0) return t.is(found, null);
        const own = lengths(seconds, found ?? []);
        t.true(Math.max(...own) <= pace);
        t.is(squares(own), Math.min(...fast.map(squares)));
      },
    ),
  );
});
