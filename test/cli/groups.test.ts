import test from 'ava';
import fc from 'fast-check';
import { processGroups } from '../../src/api/groups.js';
import { autopar } from './autopar.js';

/** Two nodes of eight devices, as introductions to hybrid parallelism draw them. */
const SIXTEEN = {
  mp: [
    [0, 1, 4, 5, 8, 9, 12, 13],
    [2, 3, 6, 7, 10, 11, 14, 15],
  ],
  tp: [
    [0, 1],
    [2, 3],
    [4, 5],
    [6, 7],
    [8, 9],
    [10, 11],
    [12, 13],
    [14, 15],
  ],
  pp: [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
  ],
  dp: [
    [0, 2],
    [1, 3],
    [4, 6],
    [5, 7],
    [8, 10],
    [9, 11],
    [12, 14],
    [13, 15],
  ],
};

test('sixteen devices, pp 4 · dp 2 · tp 2', async (t) => {
  const { code, stdout } = await autopar(['groups', '--pp', '4', '--dp', '2', '--tp', '2', '--json']);
  t.is(code, 0);
  const result = JSON.parse(stdout) as { schema: string; devices: number; groups: typeof SIXTEEN };
  t.is(result.schema, 'autopar-groups-v1');
  t.is(result.devices, 16);
  t.like(result.groups, SIXTEEN);
});

test('one rank sees its own groups and its place', async (t) => {
  const { stdout } = await autopar(['groups', '--pp', '4', '--dp', '2', '--tp', '2', '--rank', '6', '--json']);
  const { groups, place } = JSON.parse(stdout) as { groups: typeof SIXTEEN; place: Record<string, number> };
  t.deepEqual(place, { pp: 1, dp: 1, sp: 0, tp: 0 });
  t.deepEqual(groups.tp, [[6, 7]]);
  t.deepEqual(groups.pp, [[2, 6, 10, 14]]);
});

test('dp takes what the other degrees leave', async (t) => {
  const { stdout } = await autopar(['groups', '--devices', '16', '--tp', '4', '--json']);
  t.is((JSON.parse(stdout) as { degrees: { dp: number } }).degrees.dp, 4);
});

test('every kind of group is a partition of the ranks into equal parts', (t) => {
  const degree = fc.integer({ min: 1, max: 4 });
  fc.assert(
    fc.property(degree, degree, degree, degree, degree, (pp, dp, sp, tp, ep) => {
      fc.pre((dp * sp) % ep === 0);
      const { devices, groups } = processGroups({ pp, dp, sp, tp, ep });
      const sizes = { pp, dp, sp, tp, ep, mp: pp * sp * tp };
      for (const [kind, lists] of Object.entries(groups)) {
        const ranks = lists.flat().sort((left, right) => left - right);
        t.deepEqual(
          ranks,
          Array.from({ length: devices }, (_, rank) => rank),
        );
        t.true(lists.every((list) => list.length === sizes[kind as keyof typeof sizes]));
      }
    }),
    { numRuns: 40 },
  );
});

test('expert groups take the fastest part of dp · sp', (t) => {
  const { groups } = processGroups({ pp: 1, dp: 4, sp: 1, tp: 2, ep: 2 });
  t.deepEqual(groups.ep, [
    [0, 2],
    [1, 3],
    [4, 6],
    [5, 7],
  ]);
});
