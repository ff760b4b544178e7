/**
 * @file Published sweeps, each model predicted by the runs of the others alone: the choice is better than it is without them.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import test from 'ava';
import { calibratedSeconds } from '../../../bench/published/calibrated.js';
import { readCsv } from '../../../bench/published/csv.js';
import { PublishedPredictor } from '../../../bench/published/predictor.js';
import { type PublishedRun, publishedRun, sweepOf } from '../../../bench/published/run.js';
import { scoreOf } from '../../../src/api/calibration/score.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { missing } from '../../missing.js';

const FOLDER = resolve(process.env['AUTOPAR_SHARED'] ?? '../shared', 'data/published');
const absent = missing(!existsSync(FOLDER), `no published tables in ${FOLDER}: choices among their runs are not tried`);

(absent ? test.skip : test)('the choice in a sweep, by other models’ runs', async (t) => {
  for (const [file, most] of [
    ['vtrain_single.csv', { regret: 0.01, mape: 0.035 }],
    ['alephalpha_layouts.csv', { regret: 0.01, mape: 0.06 }],
  ] as const) {
    const predictor = new PublishedPredictor();
    const runs = readCsv(readFileSync(join(FOLDER, file), 'utf8'))
      .map((row) => publishedRun(row, file))
      .filter((run): run is PublishedRun => typeof run !== 'string' && run.seconds !== null);
    const seconds = await calibratedSeconds(runs, predictor);
    t.is(seconds.size, runs.length);
    const score = (of: (run: PublishedRun) => number) =>
      scoreOf(runs.map((run) => ({ measured: run.seconds ?? 0, predicted: of(run), group: sweepOf(run) })));
    const calibrated = score((run) => seconds.get(run) ?? 0);
    const prices = await Promise.all(runs.map((run) => predictor.price(run, STEP_CONSTANTS)));
    const plain = score((run) => prices[runs.indexOf(run)]?.stepSeconds ?? 0);
    t.true((calibrated.regret ?? 1) < most.regret, `${file}: ${calibrated.regret}, ${plain.regret} without`);
    t.true(calibrated.mape < most.mape, `${file}: ${calibrated.mape}, ${plain.mape} without`);
  }
});
