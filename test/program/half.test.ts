import test from 'ava';
import { BFLOAT16, FLOAT16, type HalfFormat } from '../../src/program/half.js';
import { reduceElementwise } from '../../src/program/reduce.js';
import { asBytes } from '../../src/program/typed.js';

const FORMATS: readonly { name: string; format: HalfFormat; exponentBits: number; bias: number }[] = [
  { name: 'float16', format: FLOAT16, exponentBits: 5, bias: 15 },
  { name: 'bfloat16', format: BFLOAT16, exponentBits: 8, bias: 127 },
];

for (const { name, format, exponentBits, bias } of FORMATS) {
  const fractionBits = 15 - exponentBits;

  test(`${name}: all patterns mean what the standard says, and are written back`, (t) => {
    let wrong = 0;
    for (let bits = 0; bits < 65536; bits++) {
      const sign = bits & 0x8000 ? -1 : 1;
      const exponent = (bits >> fractionBits) & (2 ** exponentBits - 1);
      const fraction = (bits & (2 ** fractionBits - 1)) / 2 ** fractionBits;
      const special = fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
      const normal = sign * 2 ** (exponent - bias) * (1 + fraction);
      const small = sign * 2 ** (1 - bias) * fraction;
      const value = exponent === 2 ** exponentBits - 1 ? special : exponent === 0 ? small : normal;
      if (!Object.is(format.decode(bits), value)) wrong++;
      const back = format.encode(value);
      if (Number.isNaN(value) ? !Number.isNaN(format.decode(back)) : back !== bits) wrong++;
    }
    t.is(wrong, 0);
  });

  test(`${name}: between two neighbours the nearer is taken, in the middle the even one`, (t) => {
    let wrong = 0;
    for (let bits = 0; bits < 0x7fff; bits++) {
      const [low, high] = [format.decode(bits), format.decode(bits + 1)];
      if (!Number.isFinite(high) || Number.isNaN(low)) continue;
      const middle = Math.fround((low + high) / 2);
      if (format.encode(middle) !== (bits % 2 === 0 ? bits : bits + 1)) wrong++;
      const step = (high - low) / 4;
      if (Math.fround(low + step) === low + step && format.encode(low + step) !== bits) wrong++;
      if (Math.fround(high - step) === high - step && format.encode(high - step) !== bits + 1) wrong++;
    }
    t.is(wrong, 0);
  });
}

test('float16 overflows to infinity where the standard says', (t) => {
  t.is(FLOAT16.encode(65519), 0x7bff);
  t.is(FLOAT16.encode(65520), 0x7c00);
  t.is(FLOAT16.encode(-1e30), 0xfc00);
});

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
