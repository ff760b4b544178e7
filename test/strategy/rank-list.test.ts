/**
 * @file The rank list for a transform, against counting: which elements a rank wants and which ranks hold them.
 */
import test from 'ava';
import fc from 'fast-check';
import { AutoparError } from '../../src/ir/error.js';
import type { MindSporeStrategy, ParameterLayout, TensorMap } from '../../src/strategy/mindspore/document.js';
import { rankListForTransform } from '../../src/strategy/mindspore/rank-list.js';

function layout(deviceMatrix: readonly number[], tensorMap: TensorMap, shards = [0, 0]): ParameterLayout {
  const [optimizerShardStep = 0, optimizerShardSize = 0] = shards;
  return {
    deviceMatrix,
    tensorMap,
    splitShape: [],
    indicesOffset: [],
    field: 0,
    optimizerShardStep,
    optimizerShardSize,
  };
}

function sharded(parameters: Readonly<Record<string, ParameterLayout>>) {
  const document: MindSporeStrategy = {
    currentStage: 1,
    operators: new Map(),
    parameters: new Map(Object.entries(parameters)),
    outputs: new Map(),
    operandLayouts: new Map(),
    resultLayouts: new Map(),
  };
  return { document, file: 'x.ckpt' };
}

const ROWS = sharded({ w: layout([2, 2], [[0], [-1]]) });
const QUARTERS = sharded({ w: layout([4], [[0], [-1]]) });

test('a rank needs the ranks that hold its elements, of equals the nearest', (t) => {
  t.deepEqual(rankListForTransform(ROWS, QUARTERS, 0), [0]);
  t.deepEqual(rankListForTransform(ROWS, QUARTERS, 1), [0]);
  t.deepEqual(rankListForTransform(ROWS, QUARTERS, 2), [3]);
  t.deepEqual(rankListForTransform(ROWS, QUARTERS, 3), [3]);
  t.deepEqual(rankListForTransform(QUARTERS, ROWS, 0), [0, 1]);
  t.deepEqual(rankListForTransform(QUARTERS, ROWS, 3), [2, 3]);
  t.deepEqual(rankListForTransform(QUARTERS, null, 0), [0, 1, 2, 3]);
  t.deepEqual(rankListForTransform(null, QUARTERS, 3), [0]);
});

test('a pipeline takes from the stage that has the parameter', (t) => {
  const [first, second] = [layout([2], [[0], [-1]]), layout([2], [[-1], [0]])];
  const stages = sharded({ '0-a': first, '1-b': second });
  const one = sharded({ a: layout([4], [[0], [-1]]), b: layout([4], [[0], [-1]]) });
  t.deepEqual(rankListForTransform(stages, one, 0), [0, 2, 3]);
  t.deepEqual(rankListForTransform(one, stages, 0), [0, 1]);
  t.deepEqual(rankListForTransform(one, stages, 2), [0, 1, 2, 3]);
});

test('optimizer shards cut dimension 0 once more', (t) => {
  const split = sharded({ w: layout([2, 2], [[-1], [0]], [2, 2]) });
  // Ranks 0 and 2 share columns 0, half of the rows each.
  t.deepEqual(rankListForTransform(split, sharded({ w: layout([2, 2], [[-1], [0]]) }), 0), [0, 2]);
  const odd = sharded({ w: layout([2, 2], [[-1], [0]], [4, 2]) });
  t.is(t.throws(() => rankListForTransform(odd, null, 0), { instanceOf: AutoparError })?.code, 'strategy-mismatch');
});

test('errors say what does not fit', (t) => {
  const refuse = (run: () => unknown) => t.throws(run, { instanceOf: AutoparError });
  t.is(refuse(() => rankListForTransform(ROWS, QUARTERS, 4))?.code, 'bad-option');
  t.is(refuse(() => rankListForTransform(ROWS, sharded({ v: layout([4], [[0]]) }), 0))?.code, 'strategy-mismatch');
  t.is(refuse(() => rankListForTransform(sharded({}), null, 0))?.code, 'strategy-mismatch');
});

const setText = (set: ReadonlySet<number> | undefined): string => [...(set ?? [])].join();

test('many parameters on very many devices', (t) => {
  const names = Array.from({ length: 20_000 }, (_, index) => `w${index}`);
  const every = (of: (index: number) => ParameterLayout) =>
    sharded(Object.fromEntries(names.map((name, index) => [name, of(index)])));
  // 20,000 parameters of 20 layouts, each on 2^20 devices.
  const twos = new Array<number>(20).fill(2);
  const from = every((index) => layout(twos, [[index % 20], [-1]]));
  t.deepEqual(
    rankListForTransform(
      from,
      every(() => layout([2 ** 20], [[0], [-1]])),
      0,
    ),
    [0],
  );
  t.is(
    rankListForTransform(
      every(() => layout([2 ** 20], [[0], [-1]])),
      null,
      0,
    ).length,
    2 ** 20,
  );
});

/** Device matrix of 8 devices with a map of two dimensions over distinct axes. */
const anyLayout = fc.constantFrom([8], [2, 4], [4, 2], [2, 2, 2]).chain((matrix) =>
  fc.shuffledSubarray(matrix.map((_, axis) => axis)).chain((axes) =>
    fc.nat(axes.length).map((cut) => {
      const dims = [axes.slice(0, cut), axes.slice(cut)];
      return layout(
        matrix,
        dims.map((used) => (used.length === 0 ? [-1] : used)),
      );
    }),
  ),
);

test('the ranks that are listed hold all that is needed, and none is listed for nothing', (t) => {
  const side = 8;
  const elements = ({ deviceMatrix, tensorMap }: ParameterLayout, rank: number): ReadonlySet<number> => {
    const held = new Set<number>();
    for (let row = 0; row < side; row++) {
      for (let column = 0; column < side; column++) {
        const inside = [row, column].every((position, dimension) => {
          let parts = 1;
          let index = 0;
          for (const axis of tensorMap[dimension] ?? []) {
            if (axis === -1) continue;
            const stride = deviceMatrix.slice(deviceMatrix.length - axis).reduce((a, b) => a * b, 1);
            const size = deviceMatrix[deviceMatrix.length - 1 - axis] ?? 1;
            parts *= size;
            index = index * size + (Math.floor(rank / stride) % size);
          }
          return Math.floor(position / (side / parts)) === index;
        });
        if (inside) held.add(row * side + column);
      }
    }
    return held;
  };
  fc.assert(
    fc.property(anyLayout, anyLayout, fc.nat(7), (from, to, rank) => {
      const listed = rankListForTransform(sharded({ w: from }), sharded({ w: to }), rank);
      const wanted = elements(to, rank);
      const held = listed.map((holder) => elements(from, holder));
      for (const element of wanted) t.true(held.some((set) => set.has(element)));
      for (const set of held) t.true([...set].some((element) => wanted.has(element)));
      t.is(new Set(held.map((set) => [...set].join())).size, listed.length);
      // Among ranks that hold the same, the one that shares the longest run of coordinates; the first of several.
      const coordinates = (of: number) =>
        from.deviceMatrix.map((size, axis) => {
          const stride = from.deviceMatrix.slice(axis + 1).reduce((a, b) => a * b, 1);
          return Math.floor(of / stride) % size;
        });
      const shared = (of: number) => {
        const differs = coordinates(of).findIndex((coordinate, axis) => coordinate !== coordinates(rank)[axis]);
        return differs < 0 ? from.deviceMatrix.length : differs;
      };
      listed.forEach((holder, index) => {
        const same = [0, 1, 2, 3, 4, 5, 6, 7].filter(
          (other) => setText(elements(from, other)) === setText(held[index]),
        );
        const most = Math.max(...same.map(shared));
        t.is(
          same.find((other) => shared(other) === most),
          holder,
        );
      });
    }),
    { numRuns: 200 },
  );
});
