/**
 * @file Plans and predictions are those on record (goldens.json): a third of them, of every model, cluster and purpose. Where a
 * change is meant to move one, `npm run goldens` writes the record anew, and the commit says why each difference is right.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { ROOT } from '../cli/autopar.js';
import { thinned } from '../selection.js';
import { CASES, type Golden, goldenOf } from './cases.js';

const RECORD = JSON.parse(readFileSync(join(ROOT, 'test', 'golden', 'goldens.json'), 'utf8')) as Record<string, Golden>;

test('every case is on record, and nothing else', (t) => {
  t.deepEqual(
    Object.keys(RECORD),
    CASES.map(({ name }) => name),
  );
});

for (const { name, words } of thinned(CASES, 3)) {
  test.serial(name, async (t) => {
    t.deepEqual(await goldenOf(words), RECORD[name], 'if this is meant, npm run goldens');
  });
}
