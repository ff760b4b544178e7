/**
 * @file The cut of units on parts against every cut written out.
 */
import test from 'ava';
import fc from 'fast-check';
import { type Balance, balancedCut } from '../../../src/search/pipeline/balance.js';

const drawn = fc
  .record({
    seconds: fc.array(fc.integer({ min: 0, max: 20 }), { minLength: 1, maxLength: 8 }),
    arrival: fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 8, maxLength: 8 }),
    parts: fc.integer({ min: 1, max: 5 }),
    fills: fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 8, maxLength: 8 }),
    pins: fc.array(fc.record({ unit: fc.nat(7), part: fc.nat(4) }), { maxLength: 2 }),
  })
  .map(({ seconds, arrival, parts, fills, pins }) => ({
    seconds,
    arrival,
    parts,
    fills: fills.map((draw) => draw > 0),
    mayBe: (unit: number, part: number) => pins.every((pin) => pin.unit !== unit || pin.part === part),
  }));

test('the longest part is the shortest of all cuts, and there is a cut wherever there is one', (t) => {
  fc.assert(
    fc.property(drawn, (balance) => {
      const all = everyCut(balance.seconds.length, balance.parts)
        .filter((sizes) => isAllowed(sizes, balance))
        .map((sizes) => longest(sizes, balance));
      const found = balancedCut(balance);
      if (found === null) return all.length === 0;
      return isAllowed(found, balance) && longest(found, balance) === Math.min(...all);
    }),
    { numRuns: 2000 },
  );
  t.pass();
});

function everyCut(units: number, parts: number): readonly (readonly number[])[] {
  if (parts === 1) return units > 0 ? [[units]] : [];
  return Array.from({ length: Math.max(0, units - 1) }, (_, index) => index + 1).flatMap((first) =>
    everyCut(units - first, parts - 1).map((others) => [first, ...others]),
  );
}

/** The units of each part. */
function unitsOfParts(sizes: readonly number[]): readonly (readonly number[])[] {
  let next = 0;
  return sizes.map((size) => Array.from({ length: size }, () => next++));
}

function isAllowed(sizes: readonly number[], { fills, mayBe }: Balance): boolean {
  return unitsOfParts(sizes).every(
    (units, part) => units.some((unit) => fills[unit]) && units.every((unit) => mayBe(unit, part)),
  );
}

function longest(sizes: readonly number[], { seconds, arrival }: Balance): number {
  const parts = unitsOfParts(sizes).map((units, part) => {
    const own = units.reduce((sum, unit) => sum + (seconds[unit] ?? 0), 0);
    return own + (part === 0 ? 0 : (arrival[units[0] ?? 0] ?? 0));
  });
  return Math.max(...parts);
}
