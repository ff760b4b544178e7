import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test from 'ava';
import fc from 'fast-check';
import { bytesText, countText, numberText, portionText, secondsText, shareText } from '../../src/cli/quantity.js';
import { tableLines } from '../../src/cli/table.js';
import { beforeFile, byteSize, choiceAmong, integerParser, nameAndValue, nonNegative } from '../../src/cli/values.js';
import { nearest } from '../../src/ir/nearest.js';

test('sizes in decimal and binary units', (t) => {
  const parse = (text: string) => byteSize(text, '--memory');
  t.is(parse('80GB'), 80e9);
  t.is(parse('16GiB'), 16 * 2 ** 30);
  t.is(parse('1.5 tb'), 1.5e12);
  t.is(parse('2e10'), 2e10);
  t.is(parse('512'), 512);
  for (const text of ['', 'GB', '-1GB', '1XB', '0', 'NaN']) t.throws(() => parse(text), { message: /--memory/ }, text);
});

test('whole numbers are read back, everything else is refused', (t) => {
  const parse = (text: string) => integerParser(1)(text, '--dp');
  fc.assert(fc.property(fc.integer({ min: 1 }), (value) => parse(String(value)) === value));
  for (const text of ['0', '-1', '1.0', '1e3', '', ' ', 'x', '0x10', '99999999999999999999'])
    t.throws(() => parse(text));
  t.is(integerParser(0)('0', '--seed'), 0);
});

test('tolerances are numbers that are not negative', (t) => {
  const parse = (text: string) => nonNegative(text, '--rtol');
  t.is(parse('1e-3'), 1e-3);
  for (const text of ['-1', 'x', '', 'Infinity']) t.throws(() => parse(text));
});

test('choices and repeated names', (t) => {
  t.is(choiceAmong(['roles', 'free'])('free', '--axes'), 'free');
  const parse = (text: string, before: unknown) => nameAndValue(integerParser(1), 'batch=8')(text, '--dim', before);
  t.deepEqual(parse('seq=4', parse('batch=2', undefined)), { batch: 2, seq: 4 });
  t.deepEqual(parse('a=b=3', undefined), { 'a=b': 3 });
  t.throws(() => parse('batch=0', undefined), { message: '--dim batch=0: expected a positive whole number' });
  t.throws(() => parse('batch', undefined), { message: '--dim batch: expected NAME=VALUE, as in --dim batch=8' });
});

test('a file may have = in its name, and so may what it is for', (t) => {
  const parse = (text: string) => nameAndValue(String, 'mask=mask.npy', beforeFile)(text, '--const', undefined);
  const folder = mkdtempSync(path.join(tmpdir(), 'autopar=values-'));
  const file = path.join(folder, 'lr=1.npy');
  writeFileSync(file, '');
  t.deepEqual(parse(`mask=${file}`), { mask: file });
  t.deepEqual(parse(`a=b=${file}`), { 'a=b': file });
  // Where there is none, the error is about all that follows the name.
  t.deepEqual(parse(`mask=${file}.absent`), { mask: `${file}.absent` });
  t.throws(() => parse('mask='), { message: /expected NAME=VALUE/ });
  t.throws(() => parse(`=${file}`), { message: /expected NAME=VALUE/ });
  rmSync(folder, { recursive: true });
});

test('quantities carry three digits and a unit', (t) => {
  t.is(secondsText(0.00193), '1.93 ms');
  t.is(secondsText(12.345), '12.3 s');
  t.is(secondsText(4.56e-7), '456 ns');
  t.is(secondsText(0), '0 s');
  t.is(bytesText(0), '0 B');
  t.is(bytesText(999), '999 B');
  t.is(bytesText(1_234_567), '1.23 MB');
  t.is(bytesText(8e10), '80 GB');
  t.is(shareText(0.5), '50 %');
  t.is(countText(1, 'rank'), '1 rank');
  t.is(countText(3, 'rank'), '3 ranks');
});

test('tables line up and shorten long cells in the middle', (t) => {
  const lines = tableLines(
    [{ title: 'name' }, { title: 'time', right: true }],
    [
      ['a', '1 s'],
      ['longer', '10 s'],
    ],
  );
  t.deepEqual(lines, ['  name    time', '  a        1 s', '  longer  10 s']);
  const [, row = ''] = tableLines([{ title: '' }], [['x'.repeat(30) + 'y'.repeat(30)]], 20);
  t.is(row.trim().length, 20);
  t.regex(row, /x…y/);
});

test('the nearest name, or none', (t) => {
  t.is(nearest('complie', ['compile', 'run']), 'compile');
  t.is(nearest('zebra', ['compile', 'run']), undefined);
  t.is(nearest('x', []), undefined);
});

test('small shares of a whole, and large numbers, have no more digits than they need', (t) => {
  t.deepEqual([0, 5.12e-7, 0.00123, 0.5].map(portionText), ['0 %', '< 0.1 %', '0.123 %', '50 %']);
  t.deepEqual([121_131.4, 12.345, 0.01234].map(numberText), ['121,000', '12.3', '0.0123']);
});
