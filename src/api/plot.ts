/**
 * @file plot: the losses of training runs in one picture, from what each step left in metrics.jsonl.
 */
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { AutoparError } from '../ir/error.js';
import type { LossCurve } from '../pictures/losses.js';
import { svgOf } from '../pictures/picture.js';
import { writeFileAtomic } from '../program/atomic.js';
import { METRICS_FILE, readMetrics } from './training-run/metrics.js';

export interface PlotOptions {
  /** Folders of training runs, or their metrics.jsonl; a name for the legend may stand in front: `tp 2=DIR`. */
  readonly runs: readonly string[];
  /** Where to write it, an SVG file (default: losses.svg). */
  readonly output?: string;
}

export interface Plot {
  readonly file: string;
  readonly runs: readonly {
    readonly name: string;
    readonly metricsFile: string;
    readonly steps: number;
    readonly firstLoss: number;
    readonly lastLoss: number;
  }[];
}

/** In pixels; SVG scales. */
const SIZE = { width: 720, height: 400 };

/** Beyond as many bytes a file of metrics is not read: some five million steps. */
const LARGEST = 2 ** 30;

/**
 * Draws the losses of training runs above one another.
 * @throws AutoparError `missing-argument` without a run, `no-metrics` for a folder that no run has left steps in; cannotWrite
 */
export async function plot({ runs, output = 'losses.svg' }: PlotOptions): Promise<Plot> {
  if (runs.length === 0)
    throw new AutoparError('missing-argument', 'usage', 'plot needs a run', {}, 'name the folder that train was given');
  const read: { readonly file: string; readonly curve: LossCurve }[] = [];
  for (const run of runs) read.push(await readRun(run));
  await writeFileAtomic(output, await svgOf({ kind: 'losses', runs: read.map(({ curve }) => curve) }, SIZE));
  return {
    file: output,
    runs: read.map(({ file, curve: { name, losses } }) => ({
      name,
      metricsFile: file,
      steps: losses.length,
      firstLoss: losses[0]?.[1] ?? Number.NaN,
      lastLoss: losses.at(-1)?.[1] ?? Number.NaN,
    })),
  };
}

async function readRun(run: string): Promise<{ readonly file: string; readonly curve: LossCurve }> {
  const [, named, place = run] = /^([^=/\\]+)=(.+)$/s.exec(run) ?? [];
  const found = await stat(place).catch(() => null);
  const file = found?.isDirectory() ? path.join(place, METRICS_FILE) : place;
  const size = await stat(file).then(
    (own) => (own.isFile() ? own.size : 0),
    () => 0,
  );
  if (size > LARGEST)
    throw new AutoparError('input-too-large', 'input', `it has ${size} bytes, and ${LARGEST} are read at most`, {
      file,
    });
  const steps = size > 0 ? await readMetrics(file) : [];
  if (steps.length === 0)
    throw new AutoparError(
      'no-metrics',
      'input',
      'there are no steps of a training run',
      { file },
      'train leaves them in metrics.jsonl of the folder it is given: autopar train DIR --data F',
    );
  const folder = path.basename(found?.isDirectory() ? path.resolve(place) : path.dirname(path.resolve(place)));
  const curve: LossCurve = {
    name: named ?? folder.replace(/\.autopar$/, ''),
    losses: steps.map(({ step, loss }) => [step, loss]),
    evaluations: steps.flatMap(({ step, evalLoss }) => (evalLoss === undefined ? [] : [[step, evalLoss] as const])),
  };
  return { file, curve };
}
