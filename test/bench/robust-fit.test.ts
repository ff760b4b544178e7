/**
 * @file The fit of constants, on data whose constants are known.
 */
import test from 'ava';
import { robustFit } from '../../bench/published/robust-fit.js';

test('constants are found again, though one sample in eight is three times what they say', (t) => {
  const [slope, offset] = [3, 5];
  const xs = Array.from({ length: 48 }, (_, index) => 1 + index);
  const measured = xs.map((x, index) => (slope * x + offset) * (index % 8 === 3 ? 3 : 1));
  const residuals = ([a = 0, b = 0]: readonly number[]) =>
    Float64Array.from(xs, (x, index) => Math.log((a * x + b) / (measured[index] ?? 1)));
  const unknown = { expected: 1, most: Number.POSITIVE_INFINITY };
  const weights = xs.map(() => 1 / xs.length);
  const { values } = robustFit([unknown, unknown], residuals, weights, 1e-6, 50);
  t.true(Math.abs((values[0] ?? 0) / slope - 1) < 0.02, `${values}`);
  t.true(Math.abs((values[1] ?? 0) / offset - 1) < 0.1, `${values}`);
});

test('no value goes above its most, and a stiff one stays where it is expected', (t) => {
  const residuals = ([a = 0, b = 0]: readonly number[]) => Float64Array.of(Math.log(a / 2), Math.log(b / 2));
  const { values } = robustFit(
    [
      { expected: 0.5, most: 0.99 },
      { expected: 1, most: Number.POSITIVE_INFINITY },
    ],
    residuals,
    [0.5, 0.5],
    0,
    50,
  );
  t.is(values[0], 0.99);
  t.true(Math.abs((values[1] ?? 0) - 2) < 0.01);
  const stiff = robustFit(
    [{ expected: 1, most: Number.POSITIVE_INFINITY }],
    ([a = 0]) => Float64Array.of(Math.log(a / 2)),
    [1],
    1e3,
    50,
  );
  t.true(Math.abs((stiff.values[0] ?? 0) - 1) < 0.01);
});
