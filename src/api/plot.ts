/**
 * @file plot: draws the losses of training runs in one picture, from the records of each step in metrics.jsonl.
 */
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { AutoparError, usageError } from '../ir/error.js';
import type { LossCurve } from '../pictures/losses.js';
import { svgOf } from '../pictures/picture.js';
import { writeFileAtomic } from '../program/atomic.js';
import { METRICS_FILE, readMetrics } from './training-run/metrics.js';

export interface PlotOptions {
  /** Folders of training runs, or their metrics.jsonl; an optional prefix is the name for the legend: `tp 2=DIR`. */
  readonly runs: readonly string[];
  /** The SVG file to write (default: losses.svg). */
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

/** Size in pixels; SVG scales. */
const SIZE = { width: 720, height: 400 };

/** The largest metrics file that is read, in bytes: about five million steps. */
const LARGEST = 2 ** 30;

/**
 * Draws the loss curves of training runs in one plot.
 * @throws AutoparError `missing-argument` without a run, `no-metrics` for a folder without steps of a run; cannotWrite
 */
export async function plot({ runs, output = 'losses.svg' }: PlotOptions): Promise<Plot> {
  if (runs.length === 0)
    throw usageError('missing-argument', 'plot needs a run', 'name the folder that train was given');
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
