/**
 * @file Smallest conflicts among drawn families of sets that leave nothing; and pins of a model with which nothing fits.
 */
import test from 'ava';
import fc from 'fast-check';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { AutoparError } from '../../src/ir/error.js';
import { plan } from '../../src/search/plan.js';
import { listInWords, smallestConflict } from '../../src/search/smallest-conflict.js';
import type { OperatorPin } from '../../src/sharding-propagation/pin.js';
import { slowTests } from '../selection.js';
import { mlpGraph } from './small-graphs.js';

const slow = slowTests(test);

test('what is returned leaves nothing, without any one of it something is left, and one is enough where one does', async (t) => {
  const things = [0, 1, 2, 3, 4, 5, 6];
  const families = fc.array(fc.subarray(things, { minLength: 1 }), { minLength: 1, maxLength: 4 });
  await fc.assert(
    fc.asyncProperty(families, async (conflicts) => {
      const leavesNone = (kept: ReadonlySet<number>) => conflicts.some((set) => set.every((one) => kept.has(one)));
      let asked = 0;
      const set = await smallestConflict(things, async (kept) => {
        asked++;
        return leavesNone(kept);
      });
      t.true(leavesNone(new Set(set)));
      for (const one of set) t.false(leavesNone(new Set(set.filter((other) => other !== one))));
      t.true(asked <= 2 * things.length + 1);
      if (conflicts.some(({ length }) => length === 1)) t.is(set.length, 1);
    }),
  );
  t.deepEqual(await smallestConflict(things, async () => true), []);
  t.deepEqual(await smallestConflict([], async () => true), []);
  t.deepEqual(
    [[], ['a'], ['a', 'b'], ['a', 'b', 'c']].map((names) => listInWords(names)),
    ['', 'a', 'a and b', 'a, b and c'],
  );
});

slow(
  'pins with which nothing fits are named: alone they do not fit, without any one of them a plan does',
  async (t) => {
    const graph = mlpGraph(8, 64, 256, 3);
    const cluster = parseCluster('1x4:a100-sxm-80', 4);
    const products = graph.nodes.filter(({ op }) => op === 'MatMul');
    t.true(products.length >= 3);
    const pinOf = (index: number): OperatorPin => ({
      kind: 'operator',
      node: products[index]?.name ?? '',
      source: { file: 'pins.yaml', line: index + 3, text: `pins[${index}]`, priority: 0, why: null },
      axes: { n: [], k: [] },
    });
    const pins = products.map((_, index) => pinOf(index));
    const degrees = { dp: 1, tp: 4 };
    const planned = (kept: readonly OperatorPin[], memoryBytes?: number) =>
      plan(graph, cluster, {
        degrees,
        operatorPins: () => kept,
        ...(memoryBytes === undefined ? {} : { memoryBytes }),
      });
    const fits = (kept: readonly OperatorPin[], memoryBytes: number) =>
      planned(kept, memoryBytes).then(
        () => true,
        (error: unknown) => {
          t.true(error instanceof AutoparError && error.code === 'nothing-fits', String(error));
          return false;
        },
      );
    const sizes = new Set<number>();
    const [free = 0] = (await planned([])).prediction.peakBytes;
    const [whole = 0] = (await planned(pins)).prediction.peakBytes;
    t.true(whole > free);
    for (const share of [0, 0.3, 0.6, 0.9]) {
      const memoryBytes = Math.floor(free + share * (whole - free));
      const error = await t.throwsAsync(planned(pins, memoryBytes), { instanceOf: AutoparError });
      const [, named = ''] = /^(.*) leaves? no plan that fits with these degrees/.exec(error?.hint ?? '') ?? [];
      const set = pins.filter(({ source }) => named.includes(source.text));
      t.true(set.length > 0, error?.hint);
      sizes.add(set.length);
      t.false(await fits(set, memoryBytes));
      for (const one of set)
        t.true(
          await fits(
            set.filter((other) => other !== one),
            memoryBytes,
          ),
        );
    }
    t.true(sizes.size > 1, [...sizes].join(' '));
    const none = await t.throwsAsync(planned(pins, 1000), { instanceOf: AutoparError });
    t.notRegex(none?.hint ?? '', /no plan that fits with/);
  },
);
