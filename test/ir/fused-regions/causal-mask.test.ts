import test from 'ava';
import fc from 'fast-check';
import { floats, GraphBuilder } from '../../../models/builder.js';
import { isCausalMask, showsItself } from '../../../src/ir/fused-regions/causal-mask.js';
import { indexGraph } from '../../../src/ir/fused-regions/matching.js';
import type { ConstantTensor } from '../../../src/ir/graph.js';

const truths = (values: readonly boolean[], shape: readonly number[]): ConstantTensor => ({
  dtype: 'bool',
  shape,
  data: Uint8Array.from(values.map(Number)),
});

/** Whether the mask that `make` writes is taken for a causal one. */
function taken(make: (build: GraphBuilder) => string): boolean {
  const build = new GraphBuilder('mask', 1);
  build.output('result', build.operator('Identity', [make(build)]));
  return isCausalMask(indexGraph(build.build()), { tensor: 'result', sense: 'shows' });
}

test('a mask whose values are at hand is causal where each later key is hidden, whatever else is', (t) => {
  fc.assert(
    fc.property(
      fc.integer({ min: 2, max: 4 }),
      fc.array(fc.constantFrom(0, -1e4, -3.4e38, -1), { minLength: 32, maxLength: 32 }),
      (size, drawn) => {
        const values = drawn.slice(0, 2 * size * size);
        const later = values.filter((_, at) => at % size > Math.floor(at / size) % size);
        const causal = later.every((value) => value < -1);
        t.is(
          taken((build) => build.constant('m', floats(values, [2, 1, size, size]))),
          causal,
        );
      },
    ),
    { numRuns: 200, examples: [[3, Array.from({ length: 32 }, () => -1e4)]] },
  );
  const seen = (size: number) => Array.from({ length: size * size }, (_, at) => at % size <= Math.floor(at / size));
  t.true(taken((build) => build.constant('m', truths(seen(4), [4, 4]))));
  t.false(
    taken((build) =>
      build.constant(
        'm',
        truths(
          seen(4).map((value) => !value),
          [4, 4],
        ),
      ),
    ),
  );
});

test('a mask that is computed is causal where it is made of positions, and of what only hides more', (t) => {
  const positions = (build: GraphBuilder, name: string, values: readonly number[], shape: readonly number[]) =>
    build.constant(name, floats(values, shape));
  const below = (
    build: GraphBuilder,
    op: string,
    keys: readonly number[],
    queries: readonly number[],
    turned = false,
  ) => {
    const [across, down] = [
      positions(build, 'keys', keys, [1, 1, 1, 3]),
      positions(build, 'queries', queries, [1, 1, 3, 1]),
    ];
    return build.operator(op, turned ? [down, across] : [across, down]);
  };
  const line = [0, 1, 2];
  t.true(taken((build) => below(build, 'LessOrEqual', line, line)));
  t.true(taken((build) => below(build, 'GreaterOrEqual', line, line, true)));
  t.false(
    taken((build) => below(build, 'GreaterOrEqual', line, line)),
    'hides earlier keys',
  );
  t.false(
    taken((build) => below(build, 'LessOrEqual', line, [1, 2, 3])),
    'sees one ahead',
  );
  t.false(
    taken((build) => below(build, 'LessOrEqual', [2, 1, 0], [2, 1, 0])),
    'positions that fall',
  );

  const masked = (low: number) => (build: GraphBuilder) => {
    const padding = build.input('padding', 'bool', [2, 1, 1, 3]);
    const both = build.operator('And', [padding, below(build, 'LessOrEqual', line, line)]);
    const added = build.operator('Where', [
      both,
      build.constant('none', floats([0])),
      build.constant('low', floats([low])),
    ]);
    return build.operator('Add', [build.input('bias', 'float32', [2, 1, 3, 3]), added]);
  };
  t.true(taken(masked(-3.4e38)));
  t.false(taken(masked(-1)), 'what is left of later scores counts');
  t.false(
    taken((build) => build.input('mask', 'float32', [2, 1, 3, 3])),
    'not known',
  );
  const blocks = [true, false, true, true];
  const reshaped = (shape: readonly number[]) => (build: GraphBuilder) =>
    build.operator('Reshape', [build.constant('m', truths([...blocks, ...blocks, ...blocks, ...blocks], [4, 2, 2]))], {
      shape,
    });
  t.true(taken(reshaped([2, 2, 2, 2])));
  t.false(taken(reshaped([1, 4, 4])), 'other positions');
});

test('every position sees itself among documents that begin anywhere, and not where a mask may hide it', (t) => {
  const shown = (make: (build: GraphBuilder) => string, sense: 'shows' | 'hides' = 'shows') => {
    const build = new GraphBuilder('mask', 1);
    build.output('result', build.operator('Identity', [make(build)]));
    const index = indexGraph(build.build());
    const mask = { tensor: 'result', sense };
    return [isCausalMask(index, mask), showsItself(index, mask)];
  };
  const turned = (build: GraphBuilder, name: string, axis: number) =>
    build.operator('Unsqueeze', [name], { axes: [axis] });
  const documents = (build: GraphBuilder, other?: string) => {
    const ids = build.input('documents', 'int64', [2, 3]);
    const columns = other === undefined ? ids : build.input(other, 'int64', [2, 3]);
    const same = build.operator('Equal', [turned(build, ids, 2), turned(build, columns, 1)]);
    const before = [true, false, false, true, true, false, true, true, true];
    return build.operator('And', [same, build.constant('before', truths(before, [3, 3]))]);
  };
  const chosen = (build: GraphBuilder, condition: string, yes: number, no: number) =>
    build.operator('Where', [condition, build.constant('yes', floats([yes])), build.constant('no', floats([no]))]);
  t.deepEqual(shown(documents), [true, true]);
  t.deepEqual(
    shown((build) => documents(build, 'others')),
    [true, false],
  );
  t.deepEqual(
    shown((build) => chosen(build, documents(build), 0, -3.4e38)),
    [true, true],
  );
  t.deepEqual(
    shown((build) => chosen(build, build.operator('Not', [documents(build)]), -3.4e38, 0)),
    [true, true],
  );
  t.deepEqual(
    shown((build) => build.operator('Not', [documents(build)]), 'hides'),
    [true, true],
  );
  t.deepEqual(shown(documents, 'hides'), [false, false], 'hides what a causal mask shows');
  const strictly = truths([false, false, false, true, false, false, true, true, false], [3, 3]);
  t.deepEqual(
    shown((build) => build.constant('m', strictly)),
    [true, false],
  );
  t.deepEqual(
    shown((build) => build.constant('m', floats([-1, -2, -3], [1, 3]))),
    [false, true],
    'a slope',
  );
});
