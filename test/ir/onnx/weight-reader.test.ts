import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import fc from 'fast-check';
import { elementCount, type WeightSource } from '../../../src/ir/graph.js';
import { readWeight } from '../../../src/ir/onnx/tensors.js';
import { openWeight, PIECE, room } from '../../../src/ir/onnx/weight-reader.js';

/** A file of bytes behind three others, removed when the test ends. */
function stored(t: ExecutionContext, bytes: Uint8Array): Extract<WeightSource, { kind: 'external' }> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'weights.bin');
  writeFileSync(file, Buffer.concat([Buffer.from('abc'), bytes]));
  return { kind: 'external', file, offset: 3, length: bytes.length };
}

test('a weight of a file is read in parts, forwards and backwards', (t) => {
  const bytes = new Uint8Array(PIECE + 1000).map((_, index) => (index * 7) % 251);
  const reader = openWeight(stored(t, bytes), room());
  if (!reader) return t.fail();
  for (const offset of [0, 10, PIECE - 5, PIECE + 990, 3])
    t.deepEqual([...reader.read(offset, 10)], [...bytes.subarray(offset, offset + 10)]);
  t.true(Buffer.from(bytes.subarray(1000)).equals(reader.read(1000, PIECE)));
  reader.close();
});

test('a turned weight is its transpose, of every rank and width of elements, in memory that was used before', (t) => {
  const whole = room();
  const turns = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 4 }).chain((shape) =>
    fc.record({
      shape: fc.constant(shape),
      order: fc.shuffledSubarray([...shape.keys()], { minLength: shape.length }),
      width: fc.constantFrom(1, 2, 4, 8),
    }),
  );
  fc.assert(
    fc.property(turns, ({ shape, order, width }) => {
      const count = elementCount(shape);
      const source = {
        ...stored(
          t,
          new Uint8Array(count * width).map((_, at) => at),
        ),
        transposition: { shape, order },
      };
      const sizes = order.map((axis) => shape[axis] as number);
      const expected = Array.from({ length: count }, (_, to) => {
        // The digits of an element's place in the transpose, then its place in the file.
        const digits = sizes.map((size, axis) => Math.floor(to / elementCount(sizes.slice(axis + 1))) % size);
        const from = shape.reduce((place, size, axis) => place * size + (digits[order.indexOf(axis)] as number), 0);
        return Array.from({ length: width }, (__, byte) => (from * width + byte) & 255);
      }).flat();
      t.deepEqual([...(readWeight(source) ?? [])], expected);
      const reader = openWeight(source, whole);
      t.deepEqual([...(reader?.read(0, source.length) ?? [])], expected);
    }),
    { numRuns: 60 },
  );
});

test('a turned weight larger than a window of the file', (t) => {
  const [rows, columns] = [1025, PIECE / 1024 / 4];
  const values = new Uint32Array(rows * columns).map((_, index) => index);
  const source = {
    ...stored(t, new Uint8Array(values.buffer)),
    transposition: { shape: [rows, columns], order: [1, 0] },
  };
  const data = readWeight(source);
  const turned = new Uint32Array(data?.buffer as ArrayBuffer, data?.byteOffset, values.length);
  t.is(
    turned.findIndex((value, to) => value !== (to % rows) * columns + Math.floor(to / rows)),
    -1,
  );
});
