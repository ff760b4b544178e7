/**
 * @file `npm run bench:accuracy -- FILES.csv…`: predicts published runs and prints how far off it is.
 */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { STEP_CONSTANTS } from '../src/cost-model/step/constants.js';
import { readCsv } from './published/csv.js';
import { Predictor } from './published/predictor.js';
import { type PublishedRun, publishedRun } from './published/run.js';
import { type Scored, scoreOf } from './published/score.js';

const files = process.argv.slice(2).filter((argument) => !argument.startsWith('--'));
const detail = process.argv.includes('--rows');
const predictor = new Predictor();
const percent = (value: number | null) => (value === null ? '–' : `${(100 * value).toFixed(1)} %`);

for (const file of files) {
  const rows = readCsv(readFileSync(file, 'utf8'));
  const runs = rows.map((row) => publishedRun(row, basename(file)));
  const used = runs.filter((run): run is PublishedRun => typeof run !== 'string');
  const skipped = new Map<string, number>();
  for (const run of runs) if (typeof run === 'string') skipped.set(run, (skipped.get(run) ?? 0) + 1);
  const scored: Scored[] = [];
  for (const run of used) {
    if (run.seconds === null) continue;
    const price = predictor.price(run, STEP_CONSTANTS);
    scored.push({ measured: run.seconds, predicted: price.stepSeconds, group: sweepOf(run) });
    if (detail) {
      const { tp, pp, dp, sp, ep } = run.configuration.degrees;
      const parts = Object.entries(price.parts).map(
        ([name, value]) => `${name} ${((100 * value) / price.stepSeconds).toFixed(0)}`,
      );
      console.log(
        `${run.row['row_id']} ${run.row['model']} s${run.sizes.sequence} tp${tp} pp${pp} v${run.configuration.virtualStages} dp${dp} sp${sp} ep${ep} mb${run.configuration.microBatch} gb${run.configuration.globalBatch} ${run.configuration.recompute}: ${run.seconds.toFixed(3)} ${price.stepSeconds.toFixed(3)} ${percent(price.stepSeconds / run.seconds - 1)} | ${parts.join(' ')}`,
      );
    }
  }
  const score = scoreOf(scored);
  console.log(
    `${basename(file).padEnd(42)} ${String(rows.length).padStart(4)} rows  ${String(score.rows).padStart(4)} timed  MAPE ${percent(score.mape)}  bias ${percent(score.bias)}  tau ${score.tau?.toFixed(2) ?? '–'}  regret ${percent(score.regret)}  ${[...skipped].map(([why, count]) => `${count} ${why}`).join('; ')}`,
  );
}
console.log(`${predictor.classes} layer classes, ${(performance.now() / 1000).toFixed(1)} s`);

function sweepOf({ row, configuration }: PublishedRun): string {
  return [row['model'], row['gpus'], configuration.globalBatch, row['seq'], row['gpu_type'], row['precision']].join(
    ' ',
  );
}
