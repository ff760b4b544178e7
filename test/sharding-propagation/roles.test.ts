/**
 * @file Roles: the ranks that experts are on are those that `groups` lists and that a program's mesh has; neighbours where ep is
 * the fast end of dp · sp, as in Megatron.
 */
import test from 'ava';
import fc from 'fast-check';
import { processGroups } from '../../src/api/groups.js';
import { groupOf } from '../../src/program/mesh.js';
import { axesSize } from '../../src/sharding-propagation/mesh.js';
import { axisParts, dataAxes, expertAxes, innerMesh, listedDegrees } from '../../src/sharding-propagation/roles.js';

const DEGREES = fc
  .record({
    dp: fc.integer({ min: 1, max: 12 }),
    sp: fc.integer({ min: 1, max: 6 }),
    tp: fc.constantFrom(1, 2, 3),
    ep: fc.integer({ min: 1, max: 24 }),
  })
  .filter(({ dp, sp, ep }) => (dp * sp) % ep === 0);

test('expert groups of a program are those of `groups`, for all degrees', (t) => {
  fc.assert(
    fc.property(DEGREES, (degrees) => {
      const { dp, sp, tp, ep } = degrees;
      const mesh = innerMesh(degrees);
      const names = expertAxes(mesh, ep);
      t.is(axesSize(mesh, names), ep);
      const program = mesh.axes.map(({ name, size, subAxes }) => ({ axis: name, size, subAxes }));
      const ranks = Array.from({ length: dp * sp * tp }, (_, rank) => rank);
      const own = new Set(ranks.map((rank) => [...groupOf(program, names, rank)].sort((a, b) => a - b).join()));
      const listed = processGroups({ pp: 1, dp, sp, tp, ep }).groups;
      t.deepEqual([...own].sort(), listed.ep.map((group) => group.join()).sort());
      for (const axis of ['dp', 'sp', 'tp'] as const) {
        const subs = mesh.axes.find(({ name }) => name === axis)?.subAxes.map(({ name }) => name) ?? [];
        const of = new Set(ranks.map((rank) => [...groupOf(program, subs, rank)].sort((a, b) => a - b).join()));
        t.deepEqual([...of].sort(), listed[axis].map((group) => group.join()).sort());
      }
    }),
  );
});

test('where ep is a power of two on powers of two, its ranks are consecutive in dp · sp', (t) => {
  for (const [dp, sp, ep] of [
    [4, 1, 2],
    [8, 2, 4],
    [2, 4, 8],
    [4, 4, 2],
  ] as const) {
    const groups = Array.from({ length: (dp * sp) / ep }, (_, group) =>
      Array.from({ length: ep }, (_, index) => group * ep + index),
    );
    t.deepEqual(processGroups({ pp: 1, dp, sp, tp: 1, ep }).groups.ep, groups);
  }
});

test('parts of axes are the axes, apart where experts lie', (t) => {
  const mesh = innerMesh({ dp: 4, sp: 2, tp: 2, ep: 4 });
  t.deepEqual(
    dataAxes(mesh).map(({ name }) => name),
    ['dp', 'sp'],
  );
  t.deepEqual(mesh.experts, ['dp.1', 'sp']);
  const parts = (hasExperts: boolean) =>
    axisParts(mesh, hasExperts).map(({ name, axis, size }) => `${name} of ${axis}: ${size}`);
  t.deepEqual(parts(false), ['dp of dp: 4', 'sp of sp: 2', 'tp of tp: 2']);
  t.deepEqual(parts(true), ['dp of dp: 2', 'ep of dp: 2', 'sp of sp: 1', 'ep of sp: 2', 'tp of tp: 2']);
});

test('degrees are listed in one order, whichever they are read in', (t) => {
  t.is(listedDegrees({ ep: 2, sp: 1, pp: 2, tp: 1, dp: 4 }), 'dp 4 · tp 1 · pp 2 · ep 2');
  t.is(listedDegrees({ pp: 2, dp: 4 }, []), 'dp 4 · pp 2');
});
