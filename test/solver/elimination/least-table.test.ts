/**
 * @file The lower bound on the largest table of an elimination: against every order.
 */
import test from 'ava';
import fc from 'fast-check';
import { leastTableDoublings } from '../../../src/solver/elimination/least-table.js';
import type { CostProblem } from '../../../src/solver/problem.js';
import { draws } from '../../selection.js';

/** A problem of given sizes whose tables join the pairs listed. */
function joined(sizes: readonly number[], pairs: readonly (readonly [number, number])[]): CostProblem {
  const factors = pairs.map(([a, b]) => {
    const both = [sizes[a] as number, sizes[b] as number];
    return { variables: [a, b], table: { sizes: both, values: new Float64Array((both[0] ?? 1) * (both[1] ?? 1)) } };
  });
  return { sizes, factors };
}

/** Entries of the largest table, in the order for which that is least. */
function bestOrder(sizes: readonly number[], near: readonly ReadonlySet<number>[], left: readonly number[]): number {
  if (left.length === 0) return 1;
  return Math.min(
    ...left.map((variable) => {
      const around = [...(near[variable] as Set<number>)];
      const next = near.map((set, other) => {
        const kept = new Set([...set, ...(around.includes(other) ? around : [])]);
        kept.delete(variable);
        kept.delete(other);
        return kept;
      });
      const own = around.reduce((product, other) => product * (sizes[other] as number), 1);
      return Math.max(
        own,
        bestOrder(
          sizes,
          next,
          left.filter((other) => other !== variable),
        ),
      );
    }),
  );
}

test('no order of elimination has a smaller largest table', (t) => {
  const drawn = fc
    .array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 6 })
    .chain((sizes) => fc.tuple(fc.constant(sizes), fc.array(fc.tuple(fc.nat(), fc.nat()), { maxLength: 15 })));
  let tight = 0;
  fc.assert(
    fc.property(drawn, ([sizes, ends]) => {
      const pairs = ends.map(([a, b]) => [a % sizes.length, b % sizes.length] as const).filter(([a, b]) => a !== b);
      const near = sizes.map(() => new Set<number>());
      for (const [a, b] of pairs) {
        near[a]?.add(b);
        near[b]?.add(a);
      }
      const least = 2 ** leastTableDoublings(joined(sizes, pairs));
      const best = bestOrder(sizes, near, [...sizes.keys()]);
      t.true(least <= best * (1 + 1e-9), `${least} of ${best}`);
      if (best > 1 && least > best / 2) tight += 1;
    }),
    { numRuns: draws(300) },
  );
  t.true(tight > 20, `${tight} bounds were near`);
});

test('a chain, however long, needs small tables; where all read all before, they double with each', (t) => {
  const four = (count: number) => new Array<number>(count).fill(4);
  const chain = Array.from({ length: 99 }, (_, index) => [index, index + 1] as const);
  t.is(leastTableDoublings(joined(four(100), chain)), 2);
  // A mask that all read adds one variable to each table.
  t.is(leastTableDoublings(joined(four(101), [...chain, ...chain.map(([index]) => [index, 100] as const)])), 4);
  for (const count of [4, 8]) {
    const all = Array.from({ length: count }, (_, b) => Array.from({ length: b }, (_, a) => [a, b] as const)).flat();
    t.is(leastTableDoublings(joined(four(count), all)), 2 * (count - 1));
  }
  t.is(leastTableDoublings({ sizes: [], factors: [] }), 0);
});
