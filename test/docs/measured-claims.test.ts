/**
 * @file Claims of docs/reference/performance.md about buckets and halves of micro-batches hold for the figures that it shows, of
 * predictions and of emulated ranks.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { ROOT } from '../cli/autopar.js';

const PAGE = readFileSync(join(ROOT, 'docs/reference/performance.md'), 'utf8');

/** Rows of the table of a section, by cells. */
function rowsOf(section: string): readonly (readonly string[])[] {
  const [, text = ''] = PAGE.split(`\n## ${section}\n`);
  const [own = ''] = text.split('\n## ');
  return [...own.matchAll(/^\| (.*) \|$/gm)]
    .slice(1)
    .map(([, cells = '']) => cells.split('|').map((cell) => cell.trim()))
    .filter(([first = '']) => !/^-+:?$/.test(first));
}

test('buckets that are predicted to leave less than half of the exposed time leave less than half on emulated ranks', (t) => {
  const rows = rowsOf('Buckets of gradients');
  const plain = new Map(
    rows.flatMap(([degrees = '', bucket, , ...times]) => (bucket === 'none' ? [[degrees, times]] : [])),
  );
  let count = 0;
  for (const [degrees = '', bucket = '', , predicted, emulated] of rows) {
    const [whole, ran] = (plain.get(degrees) ?? []).map(Number);
    if (whole === undefined || ran === undefined || Number(predicted) >= whole / 2) continue;
    t.true(Number(emulated) < ran / 2, `${degrees}, ${bucket}`);
    count++;
  }
  t.true(count > 5);
});

test('halves save on emulated ranks what is predicted, within a tenth', (t) => {
  const halves = rowsOf('Micro-batches in halves').filter(([, batches = '']) => batches.endsWith('in halves'));
  t.true(halves.length > 3);
  for (const [degrees, batches, ...figures] of halves) {
    const [predicted = 0, emulated = 0] = figures.slice(-2).map(Number);
    t.true(predicted > 0 && Math.abs(emulated - predicted) <= predicted / 10, `${degrees}, ${batches}`);
  }
});
