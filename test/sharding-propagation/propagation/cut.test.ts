/**
 * Cuts and layouts are two ways to write one thing; joining cuts does not depend on their order where they are disjoint.
 */
import test from 'ava';
import fc from 'fast-check';
import { equalLayouts, mergedLayout } from '../../../src/sharding-propagation/layout.js';
import { parseLayout } from '../../../src/sharding-propagation/layout-text.js';
import { makeMesh } from '../../../src/sharding-propagation/mesh.js';
import {
  cutOfPlacement,
  cutsOfLayout,
  joinCuts,
  layoutOfCuts,
  mergeCuts,
  placementOf,
  plainCut,
  sameCut,
  splitCut,
  UNCUT,
} from '../../../src/sharding-propagation/propagation/cut.js';
import { reshardCases, unevenCases } from '../random-layouts.js';

const MESH = makeMesh([
  ['dp', 2],
  ['tp', 4],
]);

for (const [name, cases] of [
  ['even', reshardCases([[2, 4], [4, 3], [1, 8]])], // biome-ignore format: a table
  ['padded', unevenCases([[2, 2], [2, 4], [1, 4]])], // biome-ignore format: a table
] as const) {
  test(`a layout is what its cuts make again: ${name}`, (t) => {
    fc.assert(
      fc.property(cases, ({ mesh, shape, from }) => {
        const { dims, extents } = from;
        const layout = mergedLayout({ dims, partial: [], ...(extents ? { extents } : {}) }, mesh);
        return equalLayouts(layoutOfCuts(shape, cutsOfLayout(layout, mesh), mesh), layout);
      }),
      { numRuns: 300 },
    );
    t.pass();
  });
}

test('a dimension of several factors is taken apart and put together again', (t) => {
  const sizes = [8, 64];
  const cut = joinCuts([plainCut(['dp'], 8, MESH), plainCut(['tp.0', 'tp.1'], 64, MESH)], sizes);
  t.deepEqual(cut, [
    { axes: ['dp'], size: 2, stride: 256 },
    { axes: ['tp.0'], size: 2, stride: 32 },
    { axes: ['tp.1'], size: 2, stride: 16 },
  ]);
  t.deepEqual(splitCut(cut, sizes), [plainCut(['dp'], 8, MESH), plainCut(['tp.0', 'tp.1'], 64, MESH)]);
});

test('what lies across two factors is in neither, nor is what continues it', (t) => {
  const cut = plainCut(['tp.0', 'tp.1'], 12, MESH);
  t.deepEqual(splitCut(cut, [4, 3]), [cut.map((item) => ({ ...item, stride: item.stride / 3 })), UNCUT]);
  t.deepEqual(splitCut(cut, [3, 4]), [UNCUT, UNCUT]);
});

test('disjoint cuts join in either order; what collides does not, nor what continues it', (t) => {
  const anything = () => true;
  const batch = joinCuts([plainCut(['dp'], 8, MESH), UNCUT], [8, 64]);
  const sequence = joinCuts([UNCUT, plainCut(['tp.0', 'tp.1'], 64, MESH)], [8, 64]);
  t.true(sameCut(mergeCuts(batch, sequence, 512, anything), mergeCuts(sequence, batch, 512, anything)));
  const first = plainCut(['dp'], 512, MESH);
  t.is(mergeCuts(first, plainCut(['tp.0', 'tp.1'], 512, MESH), 512, anything), first);
  const longer = mergeCuts(first, plainCut(['dp', 'tp.0'], 512, MESH), 512, anything);
  t.true(sameCut(longer, plainCut(['dp', 'tp.0'], 512, MESH)), 'the longer of two that agree');
  t.is(
    mergeCuts(UNCUT, plainCut(['dp', 'tp.0'], 512, MESH), 512, ({ axes }) => !axes.includes('dp')),
    UNCUT,
  );
});

test('a padded unit takes over from the first of its axes', (t) => {
  const padded = plainCut(['dp', 'tp.0', 'tp.1'], 10, MESH);
  t.deepEqual(padded, [{ axes: ['dp', 'tp.0', 'tp.1'], size: 10, stride: 1 }]);
  t.true(
    sameCut(
      mergeCuts(plainCut(['dp'], 10, MESH), padded, 10, () => true),
      padded,
    ),
  );
  t.is(
    mergeCuts(padded, plainCut(['dp'], 10, MESH), 10, () => true),
    padded,
  );
});

test('a strategy says a cut in pieces where it lies further in', (t) => {
  const [inner = UNCUT] = cutsOfLayout(parseLayout('[(3 | 64:tp)]', [192], MESH), MESH);
  const { axes, sizes } = placementOf('n', inner, 192, MESH);
  t.deepEqual({ axes, sizes }, { axes: { 'n.1': ['tp.0', 'tp.1'] }, sizes: [3, 64] });
  t.true(sameCut(cutOfPlacement('n', 192, axes, { n: sizes ?? [] }, MESH), inner));
  t.deepEqual(placementOf('n', plainCut(['dp'], 10, MESH), 10, MESH), { axes: { n: ['dp'] }, sizes: null });
});
