/**
 * @file The bound against the real costs of reshardings: never above, and equal for single steps.
 */
import test from 'ava';
import fc from 'fast-check';
import { type Cluster, parseCluster } from '../../src/cost-model/cluster.js';
import { TOPOLOGIES } from '../../src/cost-model/levels.js';
import { stepPrice } from '../../src/cost-model/price.js';
import { reshardBound } from '../../src/cost-model/reshard-bound.js';
import type { Layout } from '../../src/sharding-propagation/layout.js';
import { layoutText, parseLayout } from '../../src/sharding-propagation/layout-text.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import { makeResharder } from '../../src/sharding-propagation/resharding.js';
import { draws } from '../selection.js';
import { reshardCases, unevenCases } from '../sharding-propagation/random-layouts.js';

const SHAPE = [8, 16, 24];
const LAYOUTS = [
  '[-, -, -]',
  '[dp, -, -]',
  '[dp, tp, -]',
  '[dp, -, tp]',
  '[-, (dp,tp), -]',
  '[-, tp, dp]',
  '[tp, -, -]',
  '[dp, -, (2 | 12:tp)]',
  '[dp, -, -] + partial(tp)',
  '[-, -, -] + partial(dp,tp)',
  '[-, tp, -] + partial(dp)',
  '[-, -, tp]',
];

/** A layout of a tensor that is larger in every dimension, sharded likewise. */
function scaled(layout: Layout, by: number): Layout {
  return {
    ...layout,
    dims: layout.dims.map((pieces) =>
      pieces.map((piece, index) => (index === pieces.length - 1 ? { ...piece, size: piece.size * by } : piece)),
    ),
  };
}

for (const name of ['local', '1x4:h100-sxm-80', '2x2:a100-sxm-80']) {
  test(`no redistribution is cheaper than its bound: ${name}`, (t) => {
    const cluster = parseCluster(name, 4);
    const mesh = makeMesh([
      ['dp', 2],
      ['tp', 2],
    ]);
    const price = stepPrice(cluster, mesh);
    const bound = reshardBound(cluster, mesh, price);
    const resharder = makeResharder(mesh, price);
    const layouts = fc.constantFrom(...LAYOUTS).map((text) => parseLayout(text, SHAPE, mesh));
    fc.assert(
      fc.property(layouts, layouts, (from, to) => {
        const cost = resharder.cost(from, to, SHAPE, 32);
        t.true(bound(from, to, SHAPE, 32) <= cost, JSON.stringify([from, to, bound(from, to, SHAPE, 32), cost]));
      }),
      { numRuns: draws(150) },
    );
  });
}

for (const name of ['1x8:h100-sxm-80', '2x4:a100-sxm-80', '4x2:h100-sxm-80', '8x1:h100-sxm-80']) {
  test(`over three sub-axes the bound leads to the same costs sooner: ${name}`, (t) => {
    const cluster = parseCluster(name, 8);
    fc.assert(
      fc.property(
        reshardCases([
          [2, 4],
          [1, 8],
        ]),
        ({ mesh, shape, from, to }) => {
          const price = stepPrice(cluster, mesh);
          const bound = reshardBound(cluster, mesh, price);
          const cost = makeResharder(mesh, price).cost(from, to, shape, 32);
          const pair = `${layoutText(from, mesh)} → ${layoutText(to, mesh)} of [${shape.join(', ')}]`;
          t.is(makeResharder(mesh, price, bound).cost(from, to, shape, 32), cost, pair);
          t.true(bound(from, to, shape, 32) <= cost, pair);
        },
      ),
      { numRuns: draws(150) },
    );
  });
}

for (const [name, sizes] of [
  ['4x2:h100-sxm-80', [4, 2]],
  ['4x4:h100-sxm-80', [4, 4]],
  ['8x2:a100-sxm-80', [4, 4]],
  ['8x1:h100-sxm-80', [2, 4]],
  ['8x8:h100-sxm-80', [8, 8]],
  // Sub-axes of three straddle nodes of four.
  ['3x4:h100-sxm-80', [2, 6]],
  ['3x4:a100-sxm-80', [4, 3]],
] as const) {
  test(`no redistribution between nodes is cheaper than its bound: ${name}`, (t) => {
    const cluster = parseCluster(name, sizes[0] * sizes[1]);
    fc.assert(
      fc.property(reshardCases([sizes]), fc.constantFrom(1, 64, 4096), ({ mesh, shape, from, to }, scale) => {
        const price = stepPrice(cluster, mesh);
        const [large, start, end] = [shape.map((size) => size * scale), scaled(from, scale), scaled(to, scale)];
        const bound = reshardBound(cluster, mesh, price);
        const cost = makeResharder(mesh, price, bound).cost(start, end, large, 32);
        const pair = `${layoutText(start, mesh)} → ${layoutText(end, mesh)} of [${large.join(', ')}]`;
        t.true(bound(start, end, large, 32) <= cost, pair);
      }),
      { numRuns: draws(60) },
    );
  });
}

const WHOLE = parseCluster('4x2:h100-sxm-80', 8);

/** Four nodes of two devices, with other links at one of the levels; and two racks of two of them. */
const LINKED: readonly (readonly [string, Cluster])[] = [
  ...TOPOLOGIES.flatMap((topology) =>
    [0, 1].map((place): readonly [string, Cluster] => [
      `${topology} at level ${place}`,
      {
        ...WHOLE,
        levels: WHOLE.levels.map((level, index) =>
          index === place ? { ...level, topology, dimensions: topology === 'torus' ? 2 : 1, busBandwidth: {} } : level,
        ),
      },
    ]),
  ),
  [
    'three levels',
    {
      ...WHOLE,
      levels: WHOLE.levels.flatMap((level, index) =>
        index === 0
          ? [level]
          : [
              { ...level, size: 2 },
              { ...level, name: 'rack', size: 2, latencySeconds: 3e-5 },
            ],
      ),
    },
  ],
];

for (const [name, cluster] of LINKED) {
  test(`padded or not, bounds hold along the way and lead to the same costs: ${name}`, (t) => {
    const sizes = [
      [2, 4],
      [4, 2],
    ] as const;
    fc.assert(
      fc.property(
        fc.oneof(reshardCases(sizes), unevenCases(sizes)),
        fc.constantFrom(16, 32),
        ({ mesh, shape, from, to }, bits) => {
          const price = stepPrice(cluster, mesh);
          const bound = reshardBound(cluster, mesh, price);
          const exact = makeResharder(mesh, price);
          const pair = `${layoutText(from, mesh)} → ${layoutText(to, mesh)} of [${shape.join(', ')}]`;
          const cost = exact.cost(from, to, shape, bits);
          t.is(makeResharder(mesh, price, bound).cost(from, to, shape, bits), cost, pair);
          let [before, after] = [0, cost];
          for (const step of exact.ops(from, to, shape, bits)) {
            t.true(bound(step.from, to, shape, bits) <= after, pair);
            const own = price(step, shape, bits);
            [before, after] = [before + own, after - own];
            t.true(bound(from, step.to, shape, bits) <= before, pair);
          }
        },
      ),
      { numRuns: draws(60) },
    );
  });
}

test('an all-reduce between nodes costs what its bound says, but for what fills links', (t) => {
  const mesh = makeMesh([
    ['dp', 4],
    ['tp', 2],
  ]);
  const price = stepPrice(WHOLE, mesh);
  const shape = [4, 4];
  const [from, to] = ['[-, -] + partial(dp)', '[-, -]'].map((text) => parseLayout(text, shape, mesh)) as [
    Layout,
    Layout,
  ];
  const cost = makeResharder(mesh, price).cost(from, to, shape, 32);
  const bound = reshardBound(WHOLE, mesh, price)(from, to, shape, 32);
  t.true(bound <= cost);
  // A launch and four rounds of 15.5 µs: where a permutation was thought to spare rounds, a third of it was left open.
  t.true(bound > 0.95 * cost, `${bound} of ${cost}`);
});

test('a scatter and a renaming permutation may spare a slice', (t) => {
  const cluster = parseCluster('1x8:h100-sxm-80', 8);
  const mesh = makeMesh([
    ['dp', 2],
    ['tp', 4],
  ]);
  const shape = [6, 6, 1];
  const price = stepPrice(cluster, mesh);
  const [from, to] = [parseLayout('[-, -, -] + partial(tp.0)', shape, mesh), parseLayout('[dp, tp.1, -]', shape, mesh)];
  const cost = makeResharder(mesh, price).cost(from, to, shape, 32);
  t.true(reshardBound(cluster, mesh, price)(from, to, shape, 32) <= cost);
});

test('for a single step the bound is the price', (t) => {
  const cluster = parseCluster('local', 4);
  const mesh = makeMesh([['tp', 4]]);
  const price = stepPrice(cluster, mesh);
  const bound = reshardBound(cluster, mesh, price);
  const resharder = makeResharder(mesh, price);
  const pairs = [
    ['[-, tp, -]', '[-, -, -]'],
    ['[-, -, -]', '[-, tp, -]'],
    ['[-, -, -] + partial(tp)', '[-, -, -]'],
    ['[-, -, -] + partial(tp)', '[-, tp, -]'],
    ['[-, -, -]', '[-, -, -] + partial(tp)'],
  ] as const;
  for (const [a, b] of pairs) {
    const [from, to] = [parseLayout(a, SHAPE, mesh), parseLayout(b, SHAPE, mesh)];
    const cost = resharder.cost(from, to, SHAPE, 32);
    t.true(Math.abs(bound(from, to, SHAPE, 32) - cost) <= 1, `${a} → ${b}: ${bound(from, to, SHAPE, 32)} of ${cost}`);
  }
});

test('a tensor without elements is no obstacle', (t) => {
  const cluster = parseCluster('local', 2);
  const mesh = makeMesh([['tp', 2]]);
  const bound = reshardBound(cluster, mesh, stepPrice(cluster, mesh));
  const shape = [4, 0];
  const [from, to] = [parseLayout('[tp, -]', shape, mesh), parseLayout('[-, -]', shape, mesh)];
  t.is(bound(from, to, shape, 32), 0);
});
