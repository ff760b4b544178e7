/**
 * @file Parts of a sum that are evened out sum to what they did, and their minima to the minimum of their least costs together.
 */
import test from 'ava';
import fc from 'fast-check';
import { levelled } from '../../../src/solver/elimination/level-parts.js';
import { draws } from '../../selection.js';

const costs = (length: number) =>
  fc.array(fc.oneof({ weight: 9, arbitrary: fc.nat(30) }, { weight: 1, arbitrary: fc.constant(Infinity) }), {
    minLength: length,
    maxLength: length,
  });

/** Each part: a table over both variables (of 3 and 2 states), one over the second alone. */
const partsOfSums = fc.array(fc.tuple(costs(6), costs(2)), { minLength: 1, maxLength: 4 });

test('levels sum to nothing, and evened parts cost least together where their sum does', (t) => {
  fc.assert(
    fc.property(partsOfSums, (drawn) => {
      const parts = drawn.map(([both, second]) => [
        { table: { sizes: [3, 2], values: Float64Array.from(both) }, variables: [0, 1] },
        { table: { sizes: [2], values: Float64Array.from(second) }, variables: [1] },
      ]);
      const own = drawn.map(([both, second]) => both.map((cost, at) => cost + (second[at % 2] as number)));
      const levels = parts.map((_, index) => levelled(parts, index, [3, 2]).values);
      const total = own[0]?.map((_, at) => own.reduce((sum, part) => sum + (part[at] as number), 0)) ?? [];
      for (let at = 0; at < 6; at++)
        if (total[at] !== Infinity)
          t.is(
            levels.reduce((sum, level) => sum + (level[at] as number), 0),
            0,
          );
      const minima = own.map((part, index) =>
        Math.min(...part.map((cost, at) => cost + (levels[index]?.[at] as number))),
      );
      t.is(
        minima.reduce((sum, least) => sum + least, 0),
        Math.min(...total),
      );
    }),
    { numRuns: draws(60) },
  );
});
