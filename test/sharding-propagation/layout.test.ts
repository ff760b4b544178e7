import test from 'ava';
import fc from 'fast-check';
import { AutoparError } from '../../src/ir/error.js';
import {
  equalLayouts,
  isReplicated,
  type Layout,
  localShape,
  normalise,
  replicated,
  sameShards,
} from '../../src/sharding-propagation/layout.js';
import {
  layoutText,
  parseLayout,
  rankNames,
  shownAxes,
  shownStrategy,
} from '../../src/sharding-propagation/layout-text.js';
import { axesSize, type Mesh, makeMesh } from '../../src/sharding-propagation/mesh.js';
import { reshardCases } from './random-layouts.js';
import { cutAll } from './simulate.js';

const MESH = makeMesh([
  ['dp', 2],
  ['tp', 4],
]);

const SIZES = [
  [1, 2],
  [2, 2],
  [2, 4],
  [4, 6],
] as const;

function shardsOf(layout: Layout, shape: readonly number[], mesh: Mesh): readonly (readonly number[])[] {
  const whole = Array.from({ length: shape.reduce((product, size) => product * size, 1) }, (_, index) => index);
  return cutAll(whole, shape, { dims: layout.dims, partial: [] }, mesh);
}

test('merged form: two layouts of any pieces are the same exactly when all ranks hold the same', (t) => {
  fc.assert(
    fc.property(reshardCases(SIZES), ({ mesh, shape, from, to }) => {
      const cutFrom = normalise(from.dims, [], mesh);
      const cutTo = normalise(to.dims, [], mesh);
      const same = JSON.stringify(shardsOf(from, shape, mesh)) === JSON.stringify(shardsOf(to, shape, mesh));
      t.is(sameShards(cutFrom, cutTo, mesh), same);
      t.is(equalLayouts(cutFrom, cutTo), same);
    }),
    { numRuns: 400 },
  );
});

test('merging changes no shard, however finely the pieces are written', (t) => {
  fc.assert(
    fc.property(reshardCases(SIZES), ({ mesh, shape, from }) => {
      const fine = from.dims.map((pieces) =>
        pieces.flatMap(({ size, axes }) => {
          const cut = axes.map((axis) => ({ size: axesSize(mesh, [axis]), axes: [axis] }));
          return [...cut, { size: 1, axes: [] }, { size: size / axesSize(mesh, axes), axes: [] }];
        }),
      );
      const layout = { dims: fine, partial: from.partial };
      for (const merged of [normalise(fine, from.partial), normalise(fine, from.partial, mesh)]) {
        t.deepEqual(shardsOf(merged, shape, mesh), shardsOf(layout, shape, mesh));
        t.true(sameShards(merged, from, mesh));
      }
      t.true(equalLayouts(normalise(fine, from.partial, mesh), from));
    }),
    { numRuns: 200 },
  );
});

test('local shape is the size of what a rank holds; text comes back as it went', (t) => {
  fc.assert(
    fc.property(reshardCases(SIZES), ({ mesh, shape, from }) => {
      const local = localShape(shape, from, mesh);
      t.is(
        shardsOf(from, shape, mesh)[0]?.length,
        local.reduce((product, size) => product * size, 1),
      );
      t.deepEqual(parseLayout(layoutText(from, mesh), shape, mesh), from);
    }),
    { numRuns: 200 },
  );
});

test('text as documentation writes it', (t) => {
  const cases: readonly (readonly [text: string, shape: readonly number[], local: readonly number[]])[] = [
    ['[]', [], []],
    ['[-, -]', [4, 6], [4, 6]],
    ['[dp, tp, -]', [4, 8, 3], [2, 2, 3]],
    ['[(dp,tp), -]', [16, 3], [2, 3]],
    ['[(tp.1,dp), -]', [16, 3], [4, 3]],
    ['[(3 | 64:tp), -]', [192, 5], [48, 5]],
    ['[(4:dp | 12:tp)]', [48], [6]],
    ['[(3 | 8:(dp,tp.0))]', [24], [6]],
    ['[dp, -] + partial(tp)', [4, 4], [2, 4]],
    ['[-, tp]', [4, 10], [4, 3]],
    ['[(6:tp | 64), -]', [384, 2], [128, 2]],
    ['[(3 | 10:tp), dp]', [30, 5], [9, 3]],
    ['[(10~12)]', [10], [12]],
    ['[-] + partial(dp) + partial(tp.1, max)', [4], [4]],
  ];
  for (const [text, shape, local] of cases) {
    const layout = parseLayout(text, shape, MESH);
    t.is(layoutText(layout, MESH), text);
    t.deepEqual(localShape(shape, layout, MESH), local);
  }
  t.deepEqual(parseLayout('[-]+partial(dp,tp)', [4], MESH), parseLayout('[-] + partial(tp) + partial(dp)', [4], MESH));
  t.true(isReplicated(replicated([2, 3])));
  t.true(equalLayouts(replicated([2, 1]), parseLayout('[-, -]', [2, 1], MESH)));
});

test('text for people has ranks of an axis in place of sub-axes', (t) => {
  const cases: readonly (readonly [text: string, shape: readonly number[], shown: string])[] = [
    ['[(tp.1,dp), -] + partial(tp.0)', [16, 3], '[(tp 2 of 4,dp), -] + partial(tp 2 of 4)'],
    ['[(3 | 8:(dp,tp.0))]', [24], '[(3 | 8:(dp,tp 2 of 4))]'],
    ['[(dp,tp), -]', [16, 3], '[(dp,tp), -]'],
  ];
  for (const [text, shape, shown] of cases) {
    t.is(layoutText(parseLayout(text, shape, MESH), MESH, rankNames), shown);
    t.is(shownAxes(text, MESH), shown);
  }
  t.is(shownAxes('all-gather(tp.0), [(tp.0,dp), tp]', MESH), 'all-gather(tp 2 of 4), [(tp 2 of 4,dp), tp]');
});

test('bad text is refused with the reason', (t) => {
  const cases: readonly (readonly [text: string, reason: RegExp])[] = [
    ['dp, -', /expected '\[', found 'dp'/],
    ['[dp, -', /expected '\]', found the end/],
    ['[dp]', /it has 1 dimensions, the tensor \[8, 6\] has 2/],
    ['[xp, -]', /the mesh \(dp=2, tp=4\) has no axis 'xp'/],
    ['[tp.2, -]', /no axis 'tp.2'/],
    ['[-, (6~7:tp)]', /tp cuts into 4 parts, which does not divide 7 \(dimension 1\)/],
    ['[-, (dp,tp)]', /cuts the 6 elements of dimension 1 into 8 parts/],
    ['[-, (6~5:dp)]', /6 elements are not padded to 5/],
    ['[dp, dp]', /axis dp is used twice/],
    ['[tp, tp.1]', /axis tp.1 is used twice|does not divide/],
    ['[dp, -] + partial(dp)', /axis dp is used twice/],
    ['[(3 | 2:dp), -]', /pieces of dimension 0 multiply to 6, the dimension is 8/],
    ['[(0 | 2:dp), -]', /a piece begins with its size/],
    ['[-, -] + partial(tp) x', /'x' was not expected/],
    ['[-, -] + partial(tp', /expected ',', found the end/],
  ];
  for (const [text, reason] of cases) {
    const error = t.throws(() => parseLayout(text, [8, 6], MESH), { instanceOf: AutoparError });
    t.is(error?.code, 'bad-layout');
    t.regex(error?.message ?? '', reason);
  }
});

test('factors in pieces are written like layouts: plainly where the shards are those of the whole factor', (t) => {
  const shown = (k: readonly number[], ...axes: readonly (readonly string[])[]) =>
    shownStrategy(
      { axes: { m: [], ...Object.fromEntries(axes.map((own, index) => [`k.${index}`, own])) }, pieces: { k } },
      MESH,
    );
  t.is(shown([2, 64], ['dp'], ['tp.0', 'tp.1']), 'k: dp,tp');
  t.is(shown([2, 64], ['dp'], []), 'k: dp');
  t.is(shown([4, 64], ['dp'], ['tp.0', 'tp.1']), 'k: (4:dp | 64:tp)');
  t.is(shown([3, 64], [], ['tp.0']), 'k: (3 | 64:tp 2 of 4)');
  t.is(shown([3, 64], ['dp'], ['tp.0', 'tp.1']), 'k: (3:dp | 64:tp)', 'padded');
});
