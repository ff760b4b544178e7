/**
 * @file Pages whose commands plan models show what these print, to the last figure; the page that simulates is in
 * guides.test.ts.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { PAGES, SIMULATES } from '../../scripts/guides.js';
import { ROOT } from '../cli/autopar.js';
import { madeAnew } from './guide-outputs.js';

const PLANNING = PAGES.filter((page) => page !== SIMULATES);

for (const page of PLANNING) {
  test.serial(`${page} shows what its commands print`, async (t) => {
    t.is(await madeAnew(page), readFileSync(join(ROOT, page), 'utf8'), 'npm run docs:guides writes it anew');
  });
}
