/**
 * @file Results from a core's memory rows: the rows that an integer program states, and assignments made to fit; against all
 * rows of random cores.
 */
import test from 'ava';
import fc from 'fast-check';
import { bindingRows } from '../../../src/solver/bounds/binding-rows.js';
import { type Core, coreCost, rowUsage } from '../../../src/solver/bounds/core.js';
import { levelOf } from '../../../src/solver/bounds/level.js';
import { repaired } from '../../../src/solver/bounds/repair.js';
import { NoAssignment } from '../../../src/solver/problem.js';
import { draws } from '../../selection.js';
import { layered } from './random-problems.js';

/** Small networks under limits of which many bind, with bytes that are taken whatever is chosen. */
const limited = (min: number, max: number) =>
  fc
    .record({ seed: fc.nat(1e6), limit: fc.integer({ min, max }), times: fc.array(fc.nat(11), { maxLength: 8 }) })
    .map(({ seed, limit, times }) => ({
      ...layered(7, 3, seed),
      limit,
      decided: times.map((start) => ({ start, end: start + 1, bytes: 100 })),
    }));

test('an assignment keeps all rows where it keeps the binding ones, which are fewer', (t) => {
  let [dropped, kept] = [0, 0];
  fc.assert(
    fc.property(limited(1000, 2500), (problem) => {
      const core = coreOf(problem);
      if (!core) return;
      const { rows, entries } = bindingRows(core);
      dropped += core.rows - rows.length;
      kept += rows.length;
      t.is(entries, entriesOf(core, rows));
      for (const states of assignments(core)) {
        const fits = (row: number) => (usage[row] as number) <= (core.capacity[row] as number);
        const usage = rowUsage(core, states);
        t.is(rows.every(fits), Array.from(usage.keys()).every(fits));
      }
    }),
    // One in twenty has a row to drop: fewer runs can be without any.
    { numRuns: 300 },
  );
  t.true(dropped > 0 && kept > dropped, `${dropped} dropped, ${kept} kept`);
});

test('what is made to fit keeps every row, and takes no forbidden pair that was not taken', (t) => {
  let [made, all] = [0, 0];
  fc.assert(
    fc.property(limited(1500, 4000), fc.infiniteStream(fc.nat()), (problem, draw) => {
      const core = coreOf(problem);
      if (!core) return;
      const from = Int32Array.from({ length: core.count }, (_, v) => (draw.next().value as number) % sizeOf(core, v));
      const states = repaired(core, from);
      all += 1;
      if (!states) return;
      made += 1;
      const usage = rowUsage(core, states);
      t.true(usage.every((bytes, row) => bytes <= (core.capacity[row] as number)));
      if (coreCost(core, from) < Infinity) t.true(coreCost(core, states) < Infinity);
    }),
    { numRuns: draws(300) },
  );
  t.true(made > all / 2, `${made} of ${all}`);
});

test('a layered network that takes its dearest states is made to fit, and costs less for it', (t) => {
  const core = coreOf(layered(200, 8, 4)) as Core;
  const worst = Int32Array.from({ length: core.count }, (_, v) => {
    const own = core.unary.subarray(core.offsets[v], core.offsets[v + 1]);
    return own.indexOf(own.reduce((a, b) => Math.max(a, b)));
  });
  const states = repaired(core, worst);
  t.truthy(states);
  t.true(coreCost(core, states as Int32Array) < coreCost(core, worst));
});

/** A problem's core; null where nothing is left, or nothing possible. */
function coreOf(problem: Parameters<typeof levelOf>[0]): Core | null {
  try {
    const { core } = levelOf(problem, 0, (states) => Array.from(states));
    return core.count > 0 ? core : null;
  } catch (error) {
    if (error instanceof NoAssignment) return null;
    throw error;
  }
}

function sizeOf(core: Core, v: number): number {
  return (core.offsets[v + 1] as number) - (core.offsets[v] as number);
}

/** States that take bytes at some rows, over the uses that are alive there. */
function entriesOf(core: Core, rows: readonly number[]): number {
  let entries = 0;
  for (const row of rows) {
    core.useBytes.forEach((bytes, use) => {
      if ((core.useFrom[use] as number) <= row && row < (core.useTo[use] as number))
        entries += bytes.filter((amount) => amount > 0).length;
    });
  }
  return entries;
}

function* assignments(core: Core): Iterable<Int32Array> {
  const states = new Int32Array(core.count);
  for (let at = 0; at < core.count; ) {
    yield states;
    for (at = 0; at < core.count; at++) {
      states[at] = ((states[at] as number) + 1) % sizeOf(core, at);
      if (states[at] !== 0) break;
    }
  }
}
