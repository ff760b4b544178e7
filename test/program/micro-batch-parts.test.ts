/**
 * @file A whole tensor is its micro-batches' parts, one after the other along a dimension.
 */
import test from 'ava';
import fc from 'fast-check';
import { joinedParts, partShape, partsOf } from '../../src/program/micro-batch-parts.js';

test('parts are slices of the whole, and make it again', (t) => {
  const shape = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 3 });
  fc.assert(
    fc.property(shape, fc.nat(2), fc.integer({ min: 1, max: 4 }), (small, position, count) => {
      const axis = position % small.length;
      const whole = small.map((size, index) => (index === axis ? size * count : size));
      const elements = whole.reduce((product, size) => product * size, 1);
      const data = Uint8Array.from({ length: elements }, (_, index) => index);
      const value = { name: 'x', dtype: 'uint8', shape: whole, stage: 0, tensor: 'x' } as const;
      const cut = { ...value, microBatches: { axis, count } };
      const parts = partsOf(cut, data);
      t.deepEqual(partShape(cut), small);
      t.is(parts.length, count);
      t.deepEqual(joinedParts(cut, parts), data);
      const inner = whole.slice(axis + 1).reduce((product, size) => product * size, 1);
      const length = small[axis] ?? 1;
      for (const [part, bytes] of parts.entries()) {
        const rows = (index: number) => Math.floor(index / inner) % (length * count);
        const expected = data.filter((_, index) => Math.floor(rows(index) / length) === part);
        t.deepEqual(bytes, expected);
      }
    }),
  );
});
