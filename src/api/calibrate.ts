/**
 * @file calibrate: fits the times of layers on a cluster to the measured runs, and stores them in a cluster file.
 */
import { readFile, stat } from 'node:fs/promises';
import { type Cluster, parseCluster } from '../cost-model/cluster.js';
import { clusterOfDescription } from '../cost-model/cluster-file.js';
import { type ClusterDescription, MOST_LAYERS } from '../cost-model/cluster-schema.js';
import { descriptionOf } from '../cost-model/describe-named.js';
import { type FittedLayers, fitLayers, measuredLayers } from '../cost-model/measured-layers/fit-layers.js';
import type { LayerFactors, MeasuredLayer } from '../cost-model/measured-layers/layer-factors.js';
import { crossValidatedSeconds } from '../cost-model/measured-layers/left-out.js';
import { placeRuns } from '../cost-model/measured-layers/linear-step.js';
import { STEP_CONSTANTS } from '../cost-model/step/constants.js';
import { priceStepExactly } from '../cost-model/step/step-price.js';
import { AutoparError, badOption, usageError } from '../ir/error.js';
import { interruptible } from '../ir/interruption.js';
import { NEEDED } from './calibration/columns.js';
import { type CsvRow, csvTable } from './calibration/csv.js';
import { Predictor } from './calibration/predictor.js';
import { mergedRuns, runOn, type UsableRun } from './calibration/runs-on.js';
import { type Score, scoreOf } from './calibration/score.js';
import { writeClusterFile } from './calibration/write-cluster.js';
import { clusterSources } from './requests/cluster-sources.js';

export type { Score } from './calibration/score.js';

export interface CalibrateOptions {
  /** Tables of runs (docs/reference/accuracy.md describes their form). */
  readonly files: readonly string[];
  /** As in `--cluster`; figures of earlier runs in it are replaced. */
  readonly cluster: string;
  /** Path of the cluster file to write: YAML, or JSON if its name ends so. By default no file is written. */
  readonly output?: string;
  readonly signal?: AbortSignal;
  readonly onProgress?: (done: number, of: number) => void;
}

export interface Calibration {
  /** The cluster with the fitted layers. */
  readonly cluster: Cluster;
  readonly description: ClusterDescription;
  readonly layers: readonly MeasuredLayer[];
  readonly rows: number;
  /** Rows that were used; every run of one configuration counts. */
  readonly runs: number;
  /** Different configurations among them. */
  readonly configurations: number;
  readonly models: number;
  /** Reasons why rows were not used, with their numbers. */
  readonly skipped: Readonly<Record<string, number>>;
  readonly scores: CalibrationScores;
}

/** Errors of the predictions of the runs, each configuration counted once. */
export interface CalibrationScores {
  /** Without fitted layers. */
  readonly before: Score;
  /** With the layers that the cluster file already had from earlier runs; null if it had none. */
  readonly given: Score | null;
  /** With the new fit, on the same runs that it is fitted to. */
  readonly after: Score;
  /** Runs of each model, predicted from the runs of all other models; null if there is only one model. */
  readonly otherModels: Score | null;
  /** Runs of each layer shape, predicted from the runs of all other shapes; null if there is only one shape. */
  readonly otherShapes: Score | null;
}

/** Fitting more configurations takes minutes. */
const MOST_CONFIGURATIONS = 5000;

const LARGEST_BYTES = 1e8;

/**
 * Fits the layers, and writes a cluster file if one is requested.
 * @throws AutoparError `bad-calibration` (usage) for a cluster that cannot be calibrated, `bad-runs` (input) for a file that is
 * not a table or has no usable run, and the errors of reading a cluster and writing a file
 */
export async function calibrate(options: CalibrateOptions): Promise<Calibration> {
  const { files, output, signal, onProgress } = options;
  if (output !== undefined && !/\.(ya?ml|json)$/i.test(output))
    throw badOption(
      `--output ${output} does not name a cluster file`,
      'end the name in .yaml, .yml or .json: by its ending --cluster recognises a file',
    );
  const { layerFactors: given, ...plain } = await clusterOf(options.cluster);
  const rows: CsvRow[] = [];
  for (const file of files) for (const row of await rowsOf(file)) rows.push(row);
  const predictor = new Predictor();
  const skipped: Record<string, number> = {};
  const usable: UsableRun[] = [];
  for (const [done, row] of rows.entries()) {
    if (done % 50 === 0) {
      await interruptible(signal);
      onProgress?.(done, rows.length);
    }
    const run = await runOn(row, plain, predictor);
    if (typeof run === 'string') skipped[run] = (skipped[run] ?? 0) + 1;
    else usable.push(run);
  }
  if (usable.length === 0) throw nothingUsed(files, rows.length, skipped);
  const runs = mergedRuns(usable);
  await interruptible(signal);
  if (runs.length > MOST_CONFIGURATIONS) throw tooMany(`${runs.length} configurations`, MOST_CONFIGURATIONS);
  const { shapes } = placeRuns(runs);
  if (shapes.length > MOST_LAYERS) throw tooMany(`layers of ${shapes.length} shapes`, MOST_LAYERS);
  const fit = fitLayers(runs);
  const layers = measuredLayers(fit);
  const description: ClusterDescription = { ...descriptionOf(plain), measuredLayers: layers };
  const cluster = clusterOfDescription(description);
  if (output !== undefined) await writeClusterFile(output, description);
  return {
    ...{ cluster, description, layers, rows: rows.length, runs: usable.length, skipped },
    configurations: runs.length,
    models: new Set(runs.map(({ model }) => model)).size,
    scores: scoresOf(runs, fit, given, cluster.layerFactors),
  };
}

function scoresOf(
  runs: readonly UsableRun[],
  fit: FittedLayers,
  given: LayerFactors | undefined,
  learned: LayerFactors | undefined,
): CalibrationScores {
  const score = (predicted: readonly number[]): Score =>
    scoreOf(
      runs.map(({ seconds, sweep }, index) => ({
        measured: seconds,
        predicted: predicted[index] as number,
        group: sweep,
      })),
    );
  const scoreWithout = (groupOf: (index: number) => string): Score | null => {
    const predicted = crossValidatedSeconds(fit, (_, index) => groupOf(index));
    return predicted && score(predicted);
  };
  const scoreWith = (layerFactors: LayerFactors): Score =>
    score(
      runs.map(
        ({ work, configuration, cluster }) =>
          priceStepExactly(work, configuration, { ...cluster, layerFactors }, STEP_CONSTANTS).stepSeconds,
      ),
    );
  const before = score(runs.map(({ predictedSeconds }) => predictedSeconds));
  return {
    before,
    given: given ? scoreWith(given) : null,
    after: learned ? scoreWith(learned) : before,
    otherModels: scoreWithout((index) => (runs[index] as UsableRun).model),
    otherShapes: scoreWithout((index) => [...(fit.runs[index]?.layers ?? [])].join(' ')),
  };
}

async function clusterOf(text: string): Promise<Cluster> {
  const cluster = parseCluster(text, undefined, await clusterSources(text));
  if (cluster.local)
    throw refused(
      `cluster ${text} consists of ranks of this machine`,
      'autopar profile measures them; calibrate is for devices of the catalogue and for cluster files',
    );
  if (cluster.kinds)
    throw refused(
      `the nodes of ${text} differ`,
      'a run measures all kinds of nodes at once: calibrate a cluster file for each kind',
    );
  return cluster;
}

async function rowsOf(file: string): Promise<readonly CsvRow[]> {
  try {
    const { size } = await stat(file);
    if (size > LARGEST_BYTES) throw new Error(`has ${Math.round(size / 1e6)} MB; autopar reads at most 100 MB`);
    const { columns, rows } = tableOf(await readFile(file, 'utf8'));
    const lacking = [...NEEDED, 'seconds'].filter((column) => !columns.includes(column));
    if (lacking.length > 0)
      throw new Error(`is not a table of training runs: it lacks the columns ${lacking.join(', ')}`);
    return rows;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT')
      throw new AutoparError('file-missing', 'input', 'there is no such file', { file }, 'check the path');
    const what = code === 'EISDIR' ? 'is a folder' : code === undefined ? message : `cannot be read: ${message}`;
    throw new AutoparError('bad-runs', 'input', `the file ${what}`, { file }, 'docs/clusters.md lists the columns');
  }
}

function tableOf(text: string): ReturnType<typeof csvTable> {
  try {
    return csvTable(text);
  } catch (error) {
    throw new Error(`cannot be read: ${error instanceof Error ? error.message : error}`);
  }
}

function nothingUsed(files: readonly string[], rows: number, skipped: Readonly<Record<string, number>>): AutoparError {
  const reasons = Object.entries(skipped).sort(([, a], [, b]) => b - a);
  const [first] = reasons;
  const why = first
    ? `; ${first[1]} of ${rows}: ${first[0]}${reasons.length > 1 ? ` (and ${reasons.length - 1} other reasons)` : ''}`
    : ': the table has no rows';
  const [file] = files;
  const where = files.length === 1 && file !== undefined ? { file } : {};
  return new AutoparError(
    'bad-runs',
    'input',
    `no run can be used${why}`,
    where,
    'docs/clusters.md lists the requirements',
  );
}

function tooMany(what: string, most: number): AutoparError {
  return new AutoparError(
    'bad-runs',
    'input',
    `the runs have ${what}; autopar fits at most ${most} together`,
    {},
    'leave out runs of models and batches that you do not plan',
  );
}

function refused(message: string, hint: string): AutoparError {
  return usageError('bad-calibration', message, hint);
}
