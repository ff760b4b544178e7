/**
 * @file Bounds from prices and messages: never above the optimum, nor above the best assignment with a state or pair.
 */
import test from 'ava';
import fc from 'fast-check';
import { type Core, coreCost, packed, rowUsage } from '../../../src/solver/bounds/core.js';
import { Dual } from '../../../src/solver/bounds/dual.js';
import { reduce } from '../../../src/solver/bounds/reduction.js';
import { draws } from '../../selection.js';
import { bruteForce, problems } from './random-problems.js';

test('reduction keeps the optimum, and its assignments cost what they cost in the core', (t) => {
  fc.assert(
    fc.property(problems(6), (problem) => {
      const least = bruteForce(problem);
      if (least === Infinity) return;
      const reduction = reduce(problem);
      const core = packed(reduction, problem.limit);
      t.is(bestWith(core, () => true) + core.constant, least);
    }),
    { numRuns: draws(200) },
  );
});

test('no bound passes what it bounds: all assignments, those with a state, those with a pair', (t) => {
  fc.assert(
    fc.property(problems(6), fc.integer({ min: 1, max: 40 }), (problem, sweeps) => {
      if (bruteForce(problem) === Infinity) return;
      const core = packed(reduce(problem), problem.limit);
      const dual = new Dual(core, problem.limit);
      for (let sweep = 0; sweep < sweeps; sweep++) {
        dual.sweep();
        if (sweep % 2 === 1) dual.reprice(dual.best + 10);
      }
      const bound = dual.safeBound();
      t.true(bound <= bestWith(core, () => true));
      const above = dual.minMarginals();
      for (let v = 0; v < core.count; v++) {
        for (let s = core.offsets[v] as number; s < (core.offsets[v + 1] as number); s++) {
          const best = bestWith(core, (states) => states[v] === s - (core.offsets[v] as number));
          t.true(bound + (above[s] as number) <= best + 1e-6);
        }
      }
      core.tables.forEach((table, e) => {
        const [a, b] = [core.edgeA[e] as number, core.edgeB[e] as number];
        const width = (core.offsets[b + 1] as number) - (core.offsets[b] as number);
        const pairs = dual.pairMarginals(e);
        table.forEach((_, at) => {
          const [i, j] = [Math.floor(at / width), at % width];
          const best = bestWith(core, (states) => states[a] === i && states[b] === j);
          t.true(bound + (pairs[at] as number) <= best + 1e-6);
        });
      });
    }),
    { numRuns: draws(60) },
  );
});

/** The least cost among a core's assignments that keep its rows and a condition. */
function bestWith(core: Core, holds: (states: Int32Array) => boolean): number {
  const states = new Int32Array(core.count);
  let least = Infinity;
  for (;;) {
    if (holds(states) && rowUsage(core, states).every((bytes, row) => bytes <= (core.capacity[row] as number))) {
      least = Math.min(least, coreCost(core, states));
    }
    let digit = core.count - 1;
    while (digit >= 0 && states[digit] === sizeOf(core, digit) - 1) states[digit--] = 0;
    if (digit < 0) return least;
    states[digit] = (states[digit] as number) + 1;
  }
}

function sizeOf(core: Core, v: number): number {
  return (core.offsets[v + 1] as number) - (core.offsets[v] as number);
}
