import test from 'ava';
import fc from 'fast-check';
import { localShape, mergedLayout } from '../../src/sharding-propagation/layout.js';
import { layoutText, parseLayout } from '../../src/sharding-propagation/layout-text.js';
import { axesSize, type Mesh, makeMesh } from '../../src/sharding-propagation/mesh.js';
import { makeResharder, type ReshardPrice, reshardDetail } from '../../src/sharding-propagation/resharding.js';
import { draws, EVERYTHING, slowTests } from '../selection.js';
import { allPairs, type ShardPrice } from './brute-force.js';
import { reshardCases, unevenCases } from './random-layouts.js';
import { carryOut, cutAll, summed } from './simulate.js';

const slow = slowTests(test);

const MESH = makeMesh([
  ['dp', 2],
  ['tp', 4],
]);

/** Elements received, and a little for every step that communicates. */
function byReceived(mesh: Mesh): ReshardPrice {
  return (step, shape) => {
    const { receivedElements } = reshardDetail(step, shape, mesh);
    return receivedElements === 0 ? 0 : receivedElements * 100 + 1;
  };
}

function stepsOf(from: string, to: string, shape: readonly number[], mesh: Mesh) {
  const [first, last] = [parseLayout(from, shape, mesh), parseLayout(to, shape, mesh)];
  return makeResharder(mesh, byReceived(mesh)).ops(first, last, shape, 32);
}

function kinds(from: string, to: string, shape: readonly number[], mesh = MESH): string[] {
  return stepsOf(from, to, shape, mesh).map((step) => `${step.kind}(${step.axes.join(',')})`);
}

function received(from: string, to: string, shape: readonly number[], mesh: Mesh): number {
  const ops = stepsOf(from, to, shape, mesh);
  return ops.reduce((sum, step) => sum + reshardDetail(step, shape, mesh).receivedElements, 0);
}

test('equal layouts need no step, however their pieces are written', (t) => {
  t.deepEqual(kinds('[dp, -]', '[dp, -]', [4, 8]), []);
  t.deepEqual(kinds('[(2:dp | 4:tp), -]', '[(dp,tp), -]', [8, 8]), []);
  const from = {
    dims: [
      [
        { size: 2, axes: ['dp'] },
        { size: 4, axes: [] },
      ],
    ],
    partial: [],
  };
  const to = { dims: [[{ size: 8, axes: ['dp'] }]], partial: [] };
  t.is(makeResharder(MESH, byReceived(MESH)).cost(from, to, [8], 32), 0);
});

test('what every redistribution should be in one step is one step', (t) => {
  t.deepEqual(kinds('[-, -]', '[-, tp]', [4, 8]), ['slice(tp.0,tp.1)']);
  t.deepEqual(kinds('[-, tp]', '[-, -]', [4, 8]), ['all-gather(tp.0,tp.1)']);
  t.deepEqual(kinds('[dp, -] + partial(tp)', '[dp, -]', [4, 8]), ['all-reduce(tp.0,tp.1)']);
  t.deepEqual(kinds('[dp, -] + partial(tp)', '[dp, tp]', [4, 8]), ['reduce-scatter(tp.0,tp.1)']);
  t.deepEqual(kinds('[tp, -]', '[-, tp]', [4, 8]), ['all-to-all(tp.0,tp.1)']);
  t.deepEqual(kinds('[(dp,tp.0), -]', '[(tp.0,dp), -]', [4, 8]), ['permute(dp,tp.0)']);
  t.deepEqual(kinds('[-, -]', '[-, -] + partial(tp)', [4, 8]), ['to-partial(tp.0,tp.1)']);
  t.deepEqual(kinds('[(dp,tp.0), -]', '[dp, tp.0]', [4, 8]), ['all-to-all(tp.0)']);
});

test('pieces: a fused projection, and (b s) flattened', (t) => {
  const mesh = makeMesh([
    ['dp', 2],
    ['sp', 2],
    ['tp', 2],
  ]);
  t.deepEqual(kinds('[-, -]', '[(3 | 64:tp), -]', [192, 16], mesh), ['slice(tp)']);
  t.deepEqual(kinds('[tp]', '[(2 | 32:tp)]', [64], mesh), ['all-to-all(tp)']);
  t.deepEqual(kinds('[(4:dp | 12:sp), -]', '[dp, -]', [48, 16], mesh), ['all-gather(sp)']);
  t.deepEqual(kinds('[(4:dp | 12:sp), -]', '[dp, sp]', [48, 16], mesh), ['all-to-all(sp)']);
});

test('cuts that cannot be written in common digits go through less than the whole where they can', (t) => {
  const mesh = makeMesh([
    ['dp', 2],
    ['tp', 3],
  ]);
  t.deepEqual(kinds('[(2 | 3:tp)]', '[dp]', [6], mesh), ['slice(dp)', 'all-gather(tp)']);
  t.deepEqual(kinds('[dp]', '[tp]', [6], mesh), ['slice(tp)', 'permute(dp,tp)', 'all-gather(dp)']);
});

test("no more elements than MindSpore's recorded redistributions (device matrices as sub-axes of one mesh)", (t) => {
  const mesh = makeMesh([['d', 8]]);
  t.is(received('[-, d]', '[-, (d.0,d.1)]', [32, 256], mesh), 1024);
  t.is(received('[d, -]', '[(d.0,d.1), -]', [32, 256], mesh), 1024);
  t.is(received('[(d.0,d.1), d.2]', '[-, -]', [32, 256], mesh), 7168);
  t.is(received('[d, -]', '[d.0, -]', [32, 256], mesh), 3072);
  t.is(received('[d, -]', '[-, d]', [32, 64], mesh), 224);
});

test('random pairs, carried out with data', (t) => {
  const sizes = [
    [1, 2],
    [2, 2],
    [2, 3],
    [2, 4],
    [4, 2],
    [4, 4],
    [6, 2],
    [4, 8],
  ] as const;
  fc.assert(
    fc.property(reshardCases(sizes), ({ mesh, shape, from, to }) => {
      const ops = makeResharder(mesh, byReceived(mesh)).ops(from, to, shape, 32);
      const whole = Array.from({ length: shape.reduce((product, size) => product * size, 1) }, (_, index) => index + 1);
      const after = carryOut(cutAll(whole, shape, from, mesh), ops, shape, mesh);
      t.deepEqual(summed(after, to, mesh), summed(cutAll(whole, shape, to, mesh), to, mesh));
    }),
    { numRuns: draws(EVERYTHING ? 600 : 240), seed: 20240611 },
  );
});

slow('random pairs with sizes that axes do not divide, carried out with data', (t) => {
  const sizes = [
    [1, 2],
    [2, 2],
    [2, 3],
    [4, 2],
    [1, 4],
    [4, 4],
  ] as const;
  fc.assert(
    fc.property(unevenCases(sizes), ({ mesh, shape, from, to }) => {
      const ops = makeResharder(mesh, byReceived(mesh)).ops(from, to, shape, 32);
      const whole = Array.from({ length: shape.reduce((product, size) => product * size, 1) }, (_, index) => index + 1);
      const after = carryOut(cutAll(whole, shape, from, mesh), ops, shape, mesh);
      t.deepEqual(summed(after, to, mesh), summed(cutAll(whole, shape, to, mesh), to, mesh));
      t.deepEqual(parseLayout(layoutText(to, mesh), shape, mesh), mergedLayout(to, mesh));
    }),
    { numRuns: draws(EVERYTHING ? 600 : 240), seed: 20240612 },
  );
});

/** Elements received with ring algorithms, and `latency` per step that communicates. */
function linear(latency: number): ShardPrice {
  return (kind, n, elements) => {
    const received = {
      slice: 0,
      'to-partial': 0,
      repad: 0,
      'all-gather': (n - 1) * elements,
      'all-to-all': ((n - 1) / n) * elements,
      'reduce-scatter': ((n - 1) / n) * elements,
      'all-reduce': ((2 * (n - 1)) / n) * elements,
      permute: elements,
    }[kind];
    return received === 0 ? 0 : Math.round(received * 1000) + latency * (kind === 'all-reduce' ? 2 : 1);
  };
}

const BRUTE: readonly { readonly shape: readonly number[]; readonly sizes: readonly [number, number] }[] = [
  { shape: [4, 4], sizes: [2, 2] },
  { shape: [12], sizes: [2, 3] },
  { shape: [2, 2, 4], sizes: [2, 2] },
];

for (const { shape, sizes } of BRUTE) {
  for (const latency of [0, 3000]) {
    test(`as cheap as brute force on all pairs: [${shape.join(', ')}] on ${sizes.join(' x ')}, latency ${latency}`, (t) => {
      const mesh = makeMesh([
        ['dp', sizes[0]],
        ['tp', sizes[1]],
      ]);
      const price = linear(latency);
      const resharder = makeResharder(mesh, (step) =>
        price(
          step.kind,
          axesSize(mesh, step.axes),
          localShape(shape, step.from, mesh).reduce((product, size) => product * size, 1),
        ),
      );
      const { layouts, costs } = allPairs(shape, mesh, price);
      const worse: string[] = [];
      for (const [i, from] of layouts.entries()) {
        for (const [j, to] of layouts.entries()) {
          const cost = resharder.cost(from, to, shape, 32);
          if (cost !== costs[i]?.[j]) {
            worse.push(`${layoutText(from, mesh)} -> ${layoutText(to, mesh)}: ${cost}, not ${costs[i]?.[j]}`);
          }
        }
      }
      t.deepEqual(worse.slice(0, 10), [], `${worse.length} of ${layouts.length ** 2} pairs`);
    });
  }
}
