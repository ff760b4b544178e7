import test from 'ava';
import { bytesWritten, multipleWritten, timesWritten, timeWritten } from '../../src/search/figures.js';

test('times have a unit of their size, and no exponent', (t) => {
  t.deepEqual([3, 450, 52_300, 1.3e6, 50.7e9, 23_456e9].map(timeWritten), [
    '3.00 ns',
    '450 ns',
    '52.3 µs',
    '1.30 ms',
    '50.7 s',
    '23456 s',
  ]);
});

test('two times are in one unit, with the digits that tell them apart', (t) => {
  t.deepEqual(timesWritten([12_345e6, 2e6], 3), ['12345 ms', '2.00 ms']);
  t.deepEqual(timesWritten([2.0002e6, 2.0001e6], 5), ['2.0002 ms', '2.0001 ms']);
});

test('sizes have a unit of their size', (t) => {
  t.deepEqual([500, 93.1e9, 2.5e6].map(bytesWritten), ['0.500 kB', '93.1 GB', '2.50 MB']);
});

test('multiples have three digits, and none where they hardly differ', (t) => {
  t.deepEqual(
    [1.0182, 12.345, 0.98, 1.004, 0.997].map((ratio) => multipleWritten(ratio, 'as long')),
    ['1.02 times as long', '12.3 times as long', '0.980 times as long', 'as long', 'as long'],
  );
});
