/**
 * @file `npm run bench:accuracy -- FILES.csv…`: predicts published runs and prints how far off it is.
 */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { STEP_CONSTANTS } from '../src/cost-model/step/constants.js';
import { allocatedBytes, stageMemory } from '../src/cost-model/step/step-memory.js';
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
  const labels = { oomOom: 0, oomOk: 0, okOom: 0, okOk: 0 };
  const memoryErrors: number[] = [];
  for (const run of used) {
    const stages = stageMemory(predictor.work(run), run.configuration);
    const need = Math.max(...stages.map(({ total }) => total));
    const fits = need <= run.cluster.device.memoryBytes;
    labels[run.fits ? (fits ? 'okOk' : 'okOom') : fits ? 'oomOk' : 'oomOom']++;
    const peak = Math.max(...stages.map(allocatedBytes));
    if (run.memoryBytes !== null) memoryErrors.push(peak / run.memoryBytes - 1);
    if (process.argv.includes('--memory')) {
      const { tp, pp, dp, sp } = run.configuration.degrees;
      const fullest = stages.reduce((best, stage) => (stage.total > best.total ? stage : best));
      console.log(`${run.row['row_id']} ${run.row['model']} s${run.sizes.sequence} tp${tp} pp${pp} dp${dp} cp${sp} mb${run.configuration.microBatch} ${run.configuration.recompute} ${run.row['attn']} sp${run.configuration.tpSequence} z${run.configuration.zero}: ${run.fits ? 'ok' : 'oom'} ${(need / 1e9).toFixed(1)} of ${run.cluster.device.memoryBytes / 1e9} measured ${((run.memoryBytes ?? 0) / 1e9).toFixed(1)} allocated ${(peak / 1e9).toFixed(1)} | p ${(fullest.parameters / 1e9).toFixed(1)} g ${(fullest.gradients / 1e9).toFixed(1)} o ${(fullest.optimizer / 1e9).toFixed(1)} a ${(fullest.activations / 1e9).toFixed(1)} t ${(fullest.temporaries / 1e9).toFixed(1)} stage ${fullest.stage}`);
    }
  }
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
  const right = labels.okOk + labels.oomOom;
  const all = right + labels.okOom + labels.oomOk;
  if (all > 0) console.log(`   fit labels: ${percent(right / all)} of ${all} right ${JSON.stringify(labels)}; memory error ${percent(memoryErrors.length ? memoryErrors.reduce((sum, e) => sum + Math.abs(e), 0) / memoryErrors.length : null)} bias ${percent(memoryErrors.length ? memoryErrors.reduce((sum, e) => sum + e, 0) / memoryErrors.length : null)} of ${memoryErrors.length}`);
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
