import test from 'ava';
import { BFLOAT16, FLOAT16, type HalfFormat } from '../../src/ir/half.js';

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
