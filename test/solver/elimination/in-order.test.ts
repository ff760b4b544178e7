/**
 * @file Sorting of a few things: as the library's, which is stable.
 */
import test from 'ava';
import fc from 'fast-check';
import { inOrder } from '../../../src/solver/elimination/in-order.js';

test('few and many come in the order that the library gives, and what is given stays as it is', (t) => {
  const items = fc.array(fc.record({ key: fc.integer({ min: 0, max: 9 }), name: fc.string() }), { maxLength: 40 });
  fc.assert(
    fc.property(items, (given) => {
      const before = [...given];
      t.deepEqual(
        inOrder(given, ({ key }) => key),
        [...before].sort((a, b) => a.key - b.key),
      );
      t.deepEqual(given, before);
    }),
  );
});
