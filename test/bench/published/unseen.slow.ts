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

test('errors on average, over all and in the families that say most of their runs', (t) => {
  const predictor = new PublishedPredictor();
  const folder = join(ROOT, 'bench/published/raw');
  const errors = (file: string) =>
    readCsv(readFileSync(join(folder, file), 'utf8')).flatMap((row) => {
      const run = publishedRun(row, file);
      if (typeof run === 'string' || run.seconds === null) return [];
      return [Math.abs(predictor.price(run, STEP_CONSTANTS).stepSeconds / run.seconds - 1)];
    });
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const files = readdirSync(folder);
  const all = files.flatMap(errors);
  t.is(all.length, 261);
  t.true(mean(all) < 0.115, `${mean(all)}`);
  for (const file of ['dgxc_2502.csv', 'nemo_2403.csv', 'nemo_guide.csv', 'torchtitan_2024.csv', 'gcp_recipes.csv'])
    t.true(mean(errors(file)) < 0.11, `${file}: ${mean(errors(file))}`);
});
