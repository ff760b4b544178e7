/**
 * @file `npm run bench:accuracy -- FILES.csv… [--json] [--rows] [--calibrated]`: predicts published training runs and prints the
 * errors, per file and in total, beside a predictor that gives every run the same share of its peak. With --calibrated the runs
 * of all other models of the file calibrate the device for each model's runs (docs/clusters.md).
 */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import type { CsvRow } from '../../src/api/calibration/csv.js';
import { labelScore, type Score, type ScoredRow, scoreOf } from '../../src/api/calibration/score.js';
import { STEP_CONSTANTS } from '../../src/cost-model/step/constants.js';
import { allocatedBytes, stageMemory } from '../../src/cost-model/step/step-memory.js';
import { priceStepExactly } from '../../src/cost-model/step/step-price.js';
import { calibratedSeconds } from './calibrated.js';
import { peakSeconds } from './constant-utilisation.js';
import { PublishedPredictor } from './predictor.js';
import { isTimed, type PublishedRun, publishedRun, sweepOf } from './run.js';
import { tableRows } from './table.js';
import { statesRecompute } from './wording.js';

/** One row that was used. */
interface Outcome {
  readonly run: PublishedRun;
  readonly predictedSeconds: number;
  /** Seconds at the full peak, which the constant share divides. */
  readonly peakSeconds: number;
  readonly needBytes: number;
  readonly allocatedBytes: number;
}

interface FileReport {
  readonly file: string;
  readonly rows: number;
  /** Rows that have a time, all degrees and a catalogued device, and how many of them are used. */
  readonly eligible: number;
  readonly usedOfEligible: number;
  readonly skipped: Readonly<Record<string, number>>;
  /** Assumptions made in place of unknown words, with the number of used rows that each is for. */
  readonly assumed: Readonly<Record<string, number>>;
  readonly time: Score;
  /** |predicted / measured − 1|: the median, the 90th percentile, and the worst run. */
  readonly errors: { readonly median: number; readonly ninetieth: number; readonly worst: number };
  readonly constantUtilisation: Score;
  /** Predictions of whether a run fits: rows that state what is recomputed, in files of runs with a batch. */
  readonly fit: ReturnType<typeof labelScore>;
  /** Mean of |predicted / measured − 1| of peak memory; null without measurements. */
  readonly memoryError: number | null;
  readonly memoryRows: number;
}

const files = process.argv.slice(2).filter((argument) => !argument.startsWith('--'));
const asked = (flag: string) => process.argv.includes(flag);

try {
  if (files.length === 0) throw new Error('no files: npm run bench:accuracy -- FILES.csv…');
  const predictor = new PublishedPredictor();
  // A table of another form does not stop the others from being read; the run fails at its end.
  const tables: TableOutcomes[] = [];
  for (const file of files) {
    try {
      tables.push(await readTable(file, predictor));
    } catch (error) {
      console.error(error instanceof Error ? error.message : error);
      process.exitCode = 1;
    }
  }
  if (tables.length === 0) process.exit(1);
  const all = tables.flatMap(({ outcomes }) => outcomes);
  const share = constantShare(all);
  const reports = tables.map(({ file, rows, eligible, skipped, outcomes }) =>
    reportOf(basename(file), rows, eligible, skipped, outcomes, share),
  );
  const total = reportOf(
    'total',
    tables.reduce((sum, { rows }) => sum + rows, 0),
    tables.reduce((sum, { eligible }) => sum + eligible, 0),
    merged(tables.map(({ skipped }) => skipped)),
    all,
    share,
  );
  if (asked('--json')) {
    const record = { schema: 'autopar-bench-accuracy-v1', constantShare: share, files: reports, total };
    console.log(JSON.stringify(record, null, 2));
  } else {
    if (asked('--rows')) for (const outcome of all) console.log(rowLine(outcome));
    print([...reports, total], share, predictor.models);
  }
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}

function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const reason = code === 'ENOENT' ? 'there is no such file' : code === 'EISDIR' ? 'it is a folder' : message;
    throw new Error(`${file} cannot be read: ${reason}`);
  }
}

function rowsIn(file: string): readonly CsvRow[] {
  const text = textOf(file);
  try {
    return tableRows(text);
  } catch (error) {
    throw new Error(`${file} ${error instanceof Error ? error.message : error}`);
  }
}

interface TableOutcomes extends Pick<FileReport, 'file' | 'rows' | 'eligible' | 'skipped'> {
  readonly outcomes: readonly Outcome[];
}

async function readTable(file: string, predictor: PublishedPredictor): Promise<TableOutcomes> {
  const rows = rowsIn(file);
  const skipped: Record<string, number> = {};
  const outcomes: Outcome[] = [];
  let eligible = 0;
  for (const row of rows) {
    const run = publishedRun(row, basename(file));
    const reason = typeof run === 'string' ? run : null;
    const lacks = reason !== null && /no time|not stated|catalogue|do not multiply/.test(reason);
    if (isTimed(row) && !lacks) eligible++;
    if (typeof run === 'string') {
      skipped[run] = (skipped[run] ?? 0) + 1;
      continue;
    }
    // A row that no layer can be built from, or that a device cannot run, does not stop the others from being predicted.
    try {
      outcomes.push(await outcomeOf(run, predictor));
    } catch (error) {
      const why = `not predicted: ${error instanceof Error ? error.message : error}`;
      skipped[why] = (skipped[why] ?? 0) + 1;
    }
  }
  return {
    file,
    rows: rows.length,
    eligible,
    skipped,
    outcomes: asked('--calibrated') ? await calibrated(outcomes, predictor) : outcomes,
  };
}

async function calibrated(outcomes: readonly Outcome[], predictor: PublishedPredictor): Promise<readonly Outcome[]> {
  const seconds = await calibratedSeconds(
    outcomes.map(({ run }) => run),
    predictor,
  );
  return outcomes.map((outcome) => ({
    ...outcome,
    predictedSeconds: seconds.get(outcome.run) ?? outcome.predictedSeconds,
  }));
}

async function outcomeOf(run: PublishedRun, predictor: PublishedPredictor): Promise<Outcome> {
  const work = await predictor.work(run);
  const stages = stageMemory(work, run.configuration);
  const predictedSeconds = priceStepExactly(work, run.configuration, run.cluster, STEP_CONSTANTS).stepSeconds;
  if (!Number.isFinite(predictedSeconds)) throw new Error(`the step would take ${predictedSeconds} s`);
  return {
    run,
    predictedSeconds,
    peakSeconds: peakSeconds(work, run),
    needBytes: Math.max(...stages.map(({ total }) => total)),
    allocatedBytes: Math.max(...(run.memoryOfLast ? stages.slice(-1) : stages).map(allocatedBytes)),
  };
}

/** The geometric mean of the share of the peak that the measured runs reach. */
function constantShare(outcomes: readonly Outcome[]): number {
  const logs = outcomes.flatMap(({ run, peakSeconds: least }) => (run.seconds ? [Math.log(least / run.seconds)] : []));
  return Math.exp(logs.reduce((sum, value) => sum + value, 0) / Math.max(1, logs.length));
}

function reportOf(
  file: string,
  rows: number,
  eligible: number,
  skipped: Readonly<Record<string, number>>,
  outcomes: readonly Outcome[],
  share: number,
): FileReport {
  const scored = (predict: (outcome: Outcome) => number): readonly ScoredRow[] =>
    outcomes.flatMap((outcome) => {
      const { seconds } = outcome.run;
      return seconds ? [{ measured: seconds, predicted: predict(outcome), group: sweepOf(outcome.run) }] : [];
    });
  const times = scored(({ predictedSeconds }) => predictedSeconds);
  const errors = outcomes.flatMap(({ run, allocatedBytes: peak }) =>
    run.memoryBytes ? [Math.abs(peak / run.memoryBytes - 1)] : [],
  );
  const labelled = outcomes.filter(({ run }) => statesRecompute(run.row));
  return {
    file,
    rows,
    eligible,
    usedOfEligible: outcomes.filter(({ run }) => isTimed(run.row)).length,
    skipped,
    assumed: countOf(outcomes.flatMap(({ run }) => run.assumed ?? [])),
    time: scoreOf(times),
    errors: spreadOf(times),
    constantUtilisation: scoreOf(scored(({ peakSeconds: least }) => least / share)),
    fit: labelScore(
      labelled.map(({ run, needBytes }) => ({
        fits: run.fits,
        predicted: needBytes <= run.cluster.device.memoryBytes,
      })),
    ),
    memoryError: errors.length === 0 ? null : errors.reduce((sum, error) => sum + error, 0) / errors.length,
    memoryRows: errors.length,
  };
}

function spreadOf(rows: readonly ScoredRow[]): FileReport['errors'] {
  const errors = rows.map(({ measured, predicted }) => Math.abs(predicted / measured - 1)).sort((a, b) => a - b);
  const at = (share: number) => errors[Math.max(0, Math.ceil(share * errors.length) - 1)] ?? 0;
  return { median: at(0.5), ninetieth: at(0.9), worst: at(1) };
}

function countOf(texts: readonly string[]): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const text of texts) counts[text] = (counts[text] ?? 0) + 1;
  return counts;
}

function merged(tables: readonly Readonly<Record<string, number>>[]): Readonly<Record<string, number>> {
  const sums: Record<string, number> = {};
  for (const table of tables)
    for (const [reason, count] of Object.entries(table)) sums[reason] = (sums[reason] ?? 0) + count;
  return sums;
}

function print(reports: readonly FileReport[], share: number, models: number): void {
  const percent = (value: number | null) => (value === null ? '–' : `${(100 * value).toFixed(1)} %`);
  const cells = reports.map((report) => [
    report.file.replace(/\.csv$/, ''),
    `${report.rows}`,
    `${report.time.rows}`,
    ...(report.time.rows === 0
      ? ['–', '–', '–', '–', '–', '–']
      : [
          percent(report.time.mape),
          ...[report.errors.median, report.errors.ninetieth, report.errors.worst].map(percent),
          percent(report.time.bias),
          percent(report.constantUtilisation.mape),
        ]),
    report.time.tau?.toFixed(2) ?? '–',
    percent(report.time.regret),
    report.fit.rows === 0 ? '–' : percent(report.fit.accuracy),
    percent(report.fit.f1),
    percent(report.memoryError),
  ]);
  const head = [
    'file',
    'rows',
    'timed',
    'MAPE',
    'median',
    '90 %',
    'worst',
    'bias',
    'constant',
    'tau',
    'regret',
    'fits',
    'F1',
    'memory',
  ];
  const widths = head.map((name, column) => Math.max(name.length, ...cells.map((row) => row[column]?.length ?? 0)));
  for (const row of [head, ...cells]) {
    console.log(
      row
        .map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
        .join('  '),
    );
  }
  const total = reports.at(-1);
  for (const { file, time } of reports.slice(0, -1)) {
    if (!time.worst) continue;
    console.log(
      `${file.replace(/\.csv$/, '')}: of ${time.sweeps} ${time.sweeps === 1 ? 'sweep' : 'sweeps'} the choice is ` +
        `${percent(time.regret)} slower than the best on average, ${percent(time.worst.regret)} at worst ` +
        `(${time.worst.sweep})`,
    );
  }
  for (const [reason, count] of Object.entries(total?.skipped ?? {})) console.log(`skipped ${count}: ${reason}`);
  for (const [what, count] of Object.entries(total?.assumed ?? {})) console.log(`assumed in ${count}: ${what}`);
  console.log(
    `used ${total?.usedOfEligible} of ${total?.eligible} rows with a time, degrees and a catalogued ` +
      `device${total?.time.rows ? `; constant: every run at ${percent(share)} of its 16-bit peak` : ''}; ` +
      `${models} models were read`,
  );
}

function rowLine({ run, predictedSeconds }: Outcome): string {
  const { tp, pp, dp, sp, ep } = run.configuration.degrees;
  const { microBatch, globalBatch, virtualStages, recompute, precision } = run.configuration;
  const what =
    `${run.row['model']} s${run.sizes.sequence} tp${tp} pp${pp}x${virtualStages} dp${dp} sp${sp} ` +
    `ep${ep} mb${microBatch} gb${globalBatch} ${recompute} ${precision}`;
  const measured =
    run.seconds === null
      ? 'no time'
      : `${run.seconds.toFixed(3)} s, off by ${(100 * (predictedSeconds / run.seconds - 1)).toFixed(1)} %`;
  return `${run.row['row_id'] ?? run.file} ${what}: predicted ${predictedSeconds.toFixed(3)} s, measured ${measured}`;
}
