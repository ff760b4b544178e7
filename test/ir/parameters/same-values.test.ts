import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import fc from 'fast-check';
import type { Weight, WeightSource } from '../../../src/ir/graph.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { sameValues } from '../../../src/ir/parameters/same-values.js';

type FloatType = 'float32' | 'float16' | 'bfloat16' | 'float64';

interface Matrix {
  readonly dtype: FloatType;
  readonly shape: readonly [number, number];
  readonly values: readonly number[];
}

function transposed({ dtype, shape: [rows, columns], values }: Matrix): Matrix {
  const turned = Array.from(
    { length: rows * columns },
    (_, at) => values[(at % rows) * columns + Math.floor(at / rows)] ?? 0,
  );
  return { dtype, shape: [columns, rows], values: turned };
}

function weight({ dtype, shape, values }: Matrix, place: (data: Uint8Array) => WeightSource = inline): Weight {
  return { dtype, shape, role: 'parameter', source: place(constant(dtype, values, shape).data) };
}

/** At an odd place of a larger buffer, as the reader gives them. */
function inline(data: Uint8Array): WeightSource {
  const buffer = new Uint8Array(data.length + 3);
  buffer.set(data, 3);
  return { kind: 'inline', data: Buffer.from(buffer.buffer, 3, data.length) };
}

const matrix: fc.Arbitrary<Matrix> = fc
  .record({
    dtype: fc.constantFrom<FloatType>('float32', 'float16', 'bfloat16', 'float64'),
    rows: fc.integer({ min: 1, max: 4 }),
    columns: fc.integer({ min: 1, max: 4 }),
  })
  .chain(({ dtype, rows, columns }) =>
    fc
      .array(fc.constantFrom(0, 1, -0.5), { minLength: rows * columns, maxLength: rows * columns })
      .map((values) => ({ dtype, shape: [rows, columns] as const, values })),
  );

/** The values as the dtype holds them, which is what may be equal. */
function key({ dtype, shape, values }: Matrix): string {
  return `${dtype} ${shape.join()} ${numbersOf(constant(dtype, values, shape)).join()}`;
}

test('pairs are exactly the equal and the transposed, each with the first of its value', (t) => {
  fc.assert(
    fc.property(fc.array(matrix, { minLength: 2, maxLength: 5 }), (made) => {
      const all = made.flatMap((item, index) => (index % 2 === 0 ? [item, transposed(item)] : [item]));
      const { equal, uniform } = sameValues(new Map(all.map((item, index) => [`w${index}`, weight(item)])));
      const expected: { left: string; right: string; transposed: boolean }[] = [];
      const leaders: number[] = [];
      all.forEach((item, index) => {
        const isUniform = item.values.every((value) => value === item.values[0]);
        t.is(uniform.has(`w${index}`), isUniform);
        if (isUniform) return;
        const find = (wanted: Matrix) => leaders.find((at) => key(all[at] as Matrix) === key(wanted));
        const [straight, turned] = [find(item), find(transposed(item))];
        const left = straight ?? turned;
        if (left === undefined) leaders.push(index);
        else expected.push({ left: `w${left}`, right: `w${index}`, transposed: straight === undefined });
      });
      const sorted = (pairs: readonly { right: string }[]) => [...pairs].sort((a, b) => (a.right < b.right ? -1 : 1));
      t.deepEqual(sorted(equal), sorted(expected));
    }),
    { numRuns: 200 },
  );
});

test('weights in data files are compared without being in memory, and those that import turns as they lie', async (t) => {
  const [rows, columns] = [300, 700];
  const values = Array.from({ length: rows * columns }, (_, at) => Math.sin(at));
  const head: Matrix = { dtype: 'float32', shape: [rows, columns], values };
  const table = transposed(head);
  const off: Matrix = { ...table, values: table.values.map((value, at) => (at === 123456 ? value + 1 : value)) };
  const file = join(await mkdtemp(join(tmpdir(), 'autopar-test-')), 'weights.bin');
  const parts = [head, table, off].map(({ dtype, shape, values: own }) => constant(dtype, own, shape).data);
  await writeFile(file, Buffer.concat([Buffer.alloc(5), ...parts]));
  const length = rows * columns * 4;
  const external = (index: number): WeightSource => ({ kind: 'external', file, offset: 5 + index * length, length });
  const weights = new Map<string, Weight>([
    ['head', weight(head, () => external(0))],
    ['table', weight(table, () => external(1))],
    ['off by one', weight(off, () => external(2))],
    [
      'turned by import',
      weight(table, () => ({ ...external(0), transposition: { shape: head.shape, order: [1, 0] } }) as WeightSource),
    ],
    ['absent', weight(head, () => ({ kind: 'absent' }))],
  ]);
  t.deepEqual(sameValues(weights).equal, [
    { left: 'head', right: 'table', transposed: true },
    { left: 'head', right: 'turned by import', transposed: true },
  ]);
});

test('a data file that has become shorter is an error', async (t) => {
  const file = join(await mkdtemp(join(tmpdir(), 'autopar-test-')), 'weights.bin');
  await writeFile(file, Buffer.alloc(10));
  const source: WeightSource = { kind: 'external', file, offset: 0, length: 64 };
  const weights = new Map<string, Weight>([['w', { dtype: 'float32', shape: [4, 4], role: 'parameter', source }]]);
  t.throws(() => sameValues(weights), { code: 'external-data-short' });
});
