import test from 'ava';
import { FLOAT16 } from '../../src/ir/half.js';
import { reduceElementwise } from '../../src/program/reduce.js';
import { asBytes } from '../../src/program/typed.js';

test('sixteen-bit sums are rounded once, not at every addition', (t) => {
  // 2048 + 1 + 1: rounding each sum to float16 would lose both ones.
  const operands = [2048, 1, 1].map((value) => asBytes(Uint16Array.of(FLOAT16.encode(value))));
  const target = new Uint8Array(2);
  reduceElementwise('float16', 'sum', operands, target);
  t.is(FLOAT16.decode(new Uint16Array(target.buffer)[0] as number), 2050);
});

test('integers wrap, bool is or and and', (t) => {
  const bytes = (...values: number[]) => Uint8Array.from(values);
  const reduce = (dtype: 'uint8' | 'bool', reduction: 'sum' | 'min', ...operands: Uint8Array[]) => {
    const target = new Uint8Array(operands[0]?.length ?? 0);
    reduceElementwise(dtype, reduction, operands, target);
    return [...target];
  };
  t.deepEqual(reduce('uint8', 'sum', bytes(200, 1), bytes(100, 2)), [44, 3]);
  t.deepEqual(reduce('bool', 'sum', bytes(1, 1, 0), bytes(1, 0, 0)), [1, 1, 0]);
  t.deepEqual(reduce('bool', 'min', bytes(1, 1, 0), bytes(1, 0, 0)), [1, 0, 0]);
});
