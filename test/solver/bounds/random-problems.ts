/**
 * @file Random problems with a memory limit, small enough for brute force.
 */
import fc from 'fast-check';
import { generator } from '../../../src/solver/generator.js';
import { type CostFactor, type LimitedProblem, limitedCostOf, type MemoryUse } from '../../../src/solver/problem.js';

/** The recipe of a random problem; everything follows from it. */
interface Recipe {
  readonly sizes: readonly number[];
  readonly density: number;
  readonly forbidden: number;
  readonly equal: number;
  readonly tightness: number;
  readonly seed: number;
}

/** Up to `most` variables of up to four states: pairs, equalities, forbidden pairs, uses over up to twelve moments. */
export function problems(most: number): fc.Arbitrary<LimitedProblem> {
  return fc
    .record({
      sizes: fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: most }),
      density: fc.double({ min: 0, max: 1, noNaN: true }),
      forbidden: fc.double({ min: 0, max: 0.4, noNaN: true }),
      equal: fc.double({ min: 0, max: 0.4, noNaN: true }),
      tightness: fc.double({ min: 0, max: 1, noNaN: true }),
      seed: fc.integer({ min: 1, max: 2 ** 30 }),
    })
    .map(problemOf);
}

/** The least cost of any assignment that keeps the limit; Infinity where none does. */
export function bruteForce(problem: LimitedProblem): number {
  const states = problem.sizes.map(() => 0);
  let least = Infinity;
  for (;;) {
    least = Math.min(least, limitedCostOf(problem, states));
    let digit = states.length - 1;
    while (digit >= 0 && states[digit] === (problem.sizes[digit] as number) - 1) states[digit--] = 0;
    if (digit < 0) return least;
    states[digit] = (states[digit] as number) + 1;
  }
}

function problemOf({ sizes, density, forbidden, equal, tightness, seed }: Recipe): LimitedProblem {
  const random = generator(seed);
  const values = (count: number, chance: number) =>
    Float64Array.from({ length: count }, () => (random.next() < chance ? Infinity : random.below(30)));
  const factors: CostFactor[] = sizes.map((size, v) => ({
    variables: [v],
    table: { sizes: [size], values: values(size, forbidden / 4) },
  }));
  sizes.forEach((a, i) => {
    sizes.forEach((b, j) => {
      if (i === j || random.next() >= density / 2) return;
      const table = values(a * b, forbidden);
      if (random.next() < equal) {
        // Equal states only, as between a value and its alias.
        table.forEach((_, at) => {
          table[at] = Math.floor(at / b) % b === at % b ? random.below(5) : Infinity;
        });
      }
      factors.push({ variables: [i, j], table: { sizes: [a, b], values: table } });
    });
  });
  const uses: MemoryUse[] = [];
  sizes.forEach((size, variable) => {
    for (let count = random.below(3); count > 0; count--) {
      const start = random.below(12);
      uses.push({ variable, start, end: start + random.below(6), bytes: values(size, 0) });
    }
  });
  const most = uses.reduce((sum, { bytes }) => sum + Math.max(...bytes), 0);
  return { sizes, factors, uses, limit: random.next() < 0.1 ? Infinity : Math.floor(most * tightness) };
}

/** A layered network: each variable joined to the one before and to one up to three before; memory over five moments each. */
export function layered(count: number, size: number, seed: number): LimitedProblem {
  const random = generator(seed);
  const values = (length: number) => Float64Array.from({ length }, () => random.below(1000));
  const factors: CostFactor[] = [];
  const uses: MemoryUse[] = [];
  for (let v = 0; v < count; v++) {
    factors.push({ variables: [v], table: { sizes: [size], values: values(size) } });
    if (v > 0) factors.push({ variables: [v - 1, v], table: { sizes: [size, size], values: values(size * size) } });
    const back = v - 2 - random.below(2);
    if (back >= 0) factors.push({ variables: [back, v], table: { sizes: [size, size], values: values(size * size) } });
    uses.push({ variable: v, start: v, end: v + 5, bytes: values(size) });
  }
  return { sizes: new Array<number>(count).fill(size), factors, uses, limit: 1800 };
}
