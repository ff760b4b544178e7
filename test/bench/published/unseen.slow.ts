/**
 * @file Runs that were gathered after the constants had been fitted are predicted about as well as those that they were fitted
 * to.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { readCsv } from '../../../bench/published/csv.js';
import { PublishedPredictor } from '../../../bench/published/predictor.js';
import { publishedRun } from '../../../bench/published/run.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { ROOT } from '../../cli/autopar.js';

test('errors on average, over all and in the families that say most of their runs', async (t) => {
  const predictor = new PublishedPredictor();
  const folder = join(ROOT, 'bench/published/raw');
  const errors = async (file: string) => {
    const found: number[] = [];
    for (const row of readCsv(readFileSync(join(folder, file), 'utf8'))) {
      const run = publishedRun(row, file);
      if (typeof run === 'string' || run.seconds === null) continue;
      found.push(Math.abs((await predictor.price(run, STEP_CONSTANTS)).stepSeconds / run.seconds - 1));
    }
    return found;
  };
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const byFile = new Map<string, readonly number[]>();
  for (const file of readdirSync(folder)) byFile.set(file, await errors(file));
  const all = [...byFile.values()].flat();
  t.is(all.length, 261);
  t.true(mean(all) < 0.115, `${mean(all)}`);
  for (const file of ['dgxc_2502.csv', 'nemo_2403.csv', 'nemo_guide.csv', 'torchtitan_2024.csv', 'gcp_recipes.csv']) {
    const own = mean(byFile.get(file) ?? []);
    t.true(own < 0.11, `${file}: ${own}`);
  }
});
