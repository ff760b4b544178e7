/**
 * @file The guide that plans models shows what its commands print, to the last figure; the one that simulates is in
 * guides.test.ts.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { ROOT } from '../cli/autopar.js';
import { madeAnew } from './guide-outputs.js';

const PAGE = 'docs/splitting-tips.md';

test(`${PAGE} shows what its commands print`, async (t) => {
  t.is(await madeAnew(PAGE), readFileSync(join(ROOT, PAGE), 'utf8'), 'npm run docs:guides writes it anew');
});
