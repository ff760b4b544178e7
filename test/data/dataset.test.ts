/**
 * @file Data files in slices against NumPy's forms as our writer and a whole reader have them, and the sampler against the
 * definition of a permutation.
 */
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import fc from 'fast-check';
import { zipSync } from 'fflate';
import type { DataInput } from '../../src/data/convert.js';
import { openDataset } from '../../src/data/dataset.js';
import { npzMembers } from '../../src/data/npz-members.js';
import { batchesPerEpoch, batchRows, nextPosition, sampleAt } from '../../src/data/sampler.js';
import { AutoparError } from '../../src/ir/error.js';
import type { ErrorCode } from '../../src/ir/error-codes.js';
import { writeNpy } from '../../src/program/arrays/npy.js';
import { writeNpz } from '../../src/program/arrays/npz.js';
import { asBytes } from '../../src/program/typed.js';

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

const written = (name: string, bytes: Uint8Array): string => {
  const file = join(folder, name);
  writeFileSync(file, bytes);
  return file;
};

const longs = (values: readonly number[], shape: readonly number[]) =>
  ({ dtype: 'int64', shape, data: asBytes(BigInt64Array.from(values, BigInt)) }) as const;

const input = (name: string, shape: readonly number[], more: Partial<DataInput> = {}): DataInput => ({
  name,
  dtype: 'int64',
  shape,
  batchAxis: 0,
  ...more,
});

const numbers = (bytes: Uint8Array): readonly number[] =>
  Array.from(new BigInt64Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 8), Number);

const refusal = (files: readonly string[], inputs: readonly DataInput[], labels: string | null = null) => {
  try {
    openDataset({ files, inputs, labels, tokenType: 'uint16' }).close();
  } catch (error) {
    if (error instanceof AutoparError) return { code: error.code, message: error.message };
    throw error;
  }
  return null;
};

test('every epoch reads every sample once, in an order that seed and epoch alone decide', (t) => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 300 }), fc.nat(), fc.nat(50), (samples, seed, epoch) => {
      const order = { samples, seed, inOrder: false };
      const read = Array.from({ length: samples }, (_, index) => sampleAt(order, epoch, index));
      t.deepEqual(
        [...read].sort((a, b) => a - b),
        [...read.keys()],
      );
      t.deepEqual(
        read,
        Array.from({ length: samples }, (_, index) => sampleAt(order, epoch, index)),
      );
    }),
  );
  const orders = [0, 1].map((epoch) =>
    Array.from({ length: 100 }, (_, index) => sampleAt({ samples: 100, seed: 3, inOrder: false }, epoch, index)).join(),
  );
  t.not(orders[0], orders[1]);
});

test('positions walk through as many batches as an epoch has; padding begins behind the last sample', (t) => {
  for (const lastBatch of ['drop', 'pad'] as const)
    for (const samples of [4, 5, 7, 8]) {
      const order = { samples, seed: 0, inOrder: true };
      let position = { epoch: 0, index: 0 };
      const rows: (number | null)[][] = [];
      while (position.epoch === 0) {
        rows.push([...batchRows(order, position, 4)]);
        position = nextPosition(position, samples, 4, lastBatch);
      }
      t.is(rows.length, batchesPerEpoch(samples, 4, lastBatch));
      const read = rows.flat().filter((row) => row !== null);
      t.deepEqual(read, [...Array(lastBatch === 'pad' ? samples : samples - (samples % 4)).keys()]);
      t.is(rows.flat().length - read.length, lastBatch === 'pad' ? (4 - (samples % 4)) % 4 : 0);
    }
});

test('members of an archive are found where they are', (t) => {
  const first = longs([1, 2, 3, 4], [2, 2]);
  const file = written('members.npz', writeNpz({ first, second: longs([5], [1]) }));
  const descriptor = openSync(file, 'r');
  const members = npzMembers(descriptor, statSync(file).size, file);
  closeSync(descriptor);
  t.deepEqual(
    members.map(({ name }) => name),
    ['first', 'second'],
  );
  const [{ start, bytes } = { start: 0, bytes: 0 }] = members;
  t.deepEqual(readFileSync(file).subarray(start, start + bytes), Buffer.from(writeNpy(first)));
});

test('slices of arrays are those of the whole, whatever dimension is the batch', (t) => {
  // [3, samples 4, 2], read for a batch of two
  const values = Array.from({ length: 24 }, (_, index) => index);
  const file = written('axis.npy', writeNpy(longs(values, [3, 4, 2])));
  const dataset = openDataset({
    files: [file],
    inputs: [input('x', [3, 2, 2], { batchAxis: 1 })],
    labels: null,
    tokenType: 'uint16',
  });
  t.is(dataset.samples, 4);
  const rows = [3, 1];
  const whole = [0, 1, 2].flatMap((outer) => rows.flatMap((row) => [0, 1].map((last) => outer * 8 + row * 2 + last)));
  for (let from = 0; from <= 12; from++)
    for (let to = from; to <= 12; to++) {
      const { bytes, bytesRead } = dataset.read('x', rows, from * 8, (to - from) * 8);
      t.deepEqual(numbers(bytes), whole.slice(from, to));
      t.is(bytesRead, (to - from) * 8);
    }
  dataset.close();
});

test('a stream of tokens is cut into samples whose labels are one place later; files follow each other', (t) => {
  const tokens = (from: number, count: number) => Uint16Array.from({ length: count }, (_, index) => from + index);
  const files = [
    written('a.bin', asBytes(tokens(0, 9))),
    written('b.bin', asBytes(tokens(100, 5))),
    written('c.npy', writeNpy({ dtype: 'int32', shape: [5], data: asBytes(Int32Array.of(7, 8, 9, 10, 11)) })),
  ];
  const inputs = [input('ids', [2, 4]), input('labels', [2, 4], { padding: -100 })];
  const dataset = openDataset({ files, inputs, labels: 'labels', tokenType: 'uint16' });
  t.is(dataset.samples, 4);
  const read = (name: string, rows: readonly (number | null)[]) => numbers(dataset.read(name, rows, 0, 64).bytes);
  t.deepEqual(read('ids', [1, 2]), [4, 5, 6, 7, 100, 101, 102, 103]);
  t.deepEqual(read('labels', [1, 2]), [5, 6, 7, 8, 101, 102, 103, 104]);
  t.deepEqual(read('ids', [3, null]), [7, 8, 9, 10, 0, 0, 0, 0]);
  t.deepEqual(read('labels', [3, null]), [8, 9, 10, 11, -100, -100, -100, -100]);
  dataset.close();
});

test('tokens of 16 bits may be small, and zero in every second place of a part', (t) => {
  const tokens = Uint16Array.from({ length: 200 }, (_, token) =>
    token % 2 === 1 && token < 100 ? 0 : 1 + (token % 7),
  );
  const inputs = [input('ids', [2, 4]), input('labels', [2, 4], { padding: -100 })];
  for (const data of [tokens, new Uint16Array(200)])
    t.is(refusal([written('small.bin', asBytes(data))], inputs, 'labels'), null);
});

test('what is no data for the inputs is refused with both sides', (t) => {
  const ids = longs([1, 2, 3, 4], [2, 2]);
  const inputs = [input('ids', [1, 2]), input('labels', [1, 2])];
  const npz = (name: string, arrays: Parameters<typeof writeNpz>[0]) => written(name, writeNpz(arrays));
  const cases: readonly (readonly [file: string, code: ErrorCode, says: RegExp])[] = [
    [join(folder, 'absent.npz'), 'missing-data', /does not exist/],
    [folder, 'missing-data', /is a folder/],
    [npz('lacks.npz', { ids }), 'missing-input', /no array for input labels int64 \[1, 2\]/],
    [npz('more.npz', { ids, labels: ids, other: ids }), 'unknown-input', /array other.*ids, labels/],
    [npz('uneven.npz', { ids, labels: longs([1, 2], [1, 2]) }), 'wrong-data', /2 samples of ids and 1 of labels/],
    [npz('shape.npz', { ids: longs([1, 2], [2, 1]), labels: ids }), 'wrong-data', /\[2, 1\].*\[samples, 2\]/],
    [
      npz('type.npz', { ids: { dtype: 'float32', shape: [2, 2], data: new Uint8Array(16) }, labels: ids }),
      'wrong-data',
      /float32.*ids is int64/,
    ],
    [npz('empty.npz', { ids: longs([], [0, 2]), labels: longs([], [0, 2]) }), 'data-too-short', /no sample/],
    [written('one.bin', new Uint8Array(4)), 'data-too-short', /2 tokens.*needs 3/],
    [written('odd.bin', new Uint8Array(5)), 'bad-array', /5 bytes/],
    [written('wide.bin', asBytes(Uint32Array.from({ length: 100 }, (_, token) => token))), 'bad-array', /uint32/],
    [written('cut.npz', writeNpz({ ids, labels: ids }).slice(0, 300)), 'bad-array', /not a readable/],
    [written('not.npz', new Uint8Array(100)), 'bad-array', /not a readable/],
    [written('cut.npy', writeNpy(ids).slice(0, -1)), 'bad-array', /is truncated/],
    [written('packed.npz', zipSync({ 'ids.npy': [writeNpy(ids), { level: 9 }] })), 'compressed-data', /ids\.npy/],
  ];
  for (const [file, code, says] of cases) {
    const found = refusal([file], inputs, 'labels');
    t.is(found?.code, code, file);
    t.regex(found?.message ?? '', says);
  }
});

test('numbers that are no class, or no row of a table, are refused where they are read', (t) => {
  const file = written(
    'range.npz',
    writeNpz({ ids: longs([1, 2, 9, 4], [2, 2]), labels: longs([-100, 2, 3, 5], [2, 2]) }),
  );
  const below = (count: number, isLabel: boolean) => ({
    range: { from: 0, below: count, ignored: isLabel ? -100 : null, isLabel },
  });
  const inputs = [input('ids', [2, 2], below(9, false)), input('labels', [2, 2], below(5, true))];
  const dataset = openDataset({ files: [file], inputs, labels: 'labels', tokenType: 'uint16' });
  t.teardown(dataset.close);
  t.notThrows(() => dataset.read('labels', [0], 0, 16));
  const ids = t.throws<AutoparError>(() => dataset.read('ids', [0, 1], 0, 32), { instanceOf: AutoparError });
  t.is(ids?.code, 'token-out-of-range');
  t.regex(ids?.message ?? '', /ids of sample 1, element 0, is 9.*9 rows/);
  const labels = t.throws<AutoparError>(() => dataset.read('labels', [0, 1], 0, 32), { instanceOf: AutoparError });
  t.is(labels?.code, 'label-out-of-range');
  t.regex(labels?.message ?? '', /labels of sample 1, element 1, is 5.*5 classes/);
});
