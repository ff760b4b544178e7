/**
 * @file train: a compiled program trained on data files. What each step does is recorded in metrics.jsonl in the program's folder.
 */

import { TOKEN_TYPES, type TokenType } from '../data/data-file.js';
import type { Dataset } from '../data/dataset.js';
import { batchesPerEpoch, type LastBatch, type SampleOrder } from '../data/sampler.js';
import { AutoparError } from '../ir/error.js';
import { listening } from '../ir/interruption.js';
import type { BackendName } from '../runtime/backend.js';
import { openSession, type RankResources, resourcesOf } from '../runtime/session.js';
import type { PlanTraining } from '../strategy/plan.js';
import { Checkpoints, type Saved } from './checkpoints.js';
import { readRunnable } from './compiled-model.js';
import type { CompiledParts } from './folder.js';
import type { ImportedModel } from './import.js';
import type { Training } from './training-request.js';
import { lossScaleIn, trainSteps } from './training-run/loop.js';
import { MetricsFile, type StepMetrics } from './training-run/metrics.js';
import { firstState, recordOf, stateOf, type TrainingState } from './training-run/state.js';
import { openTrainingData } from './training-run/training-data.js';
import { openCompiled } from './verify.js';

export { TOKEN_TYPES, type TokenType };

export interface TrainOptions extends Omit<RankResources, 'backend'> {
  /** The folder that compile wrote with --train. */
  readonly directory: string;
  /** .npy, .npz, or files of raw tokens: one after the other. */
  readonly data: readonly string[];
  /** The type of raw tokens; uint16 by default. */
  readonly tokenType?: TokenType;
  /** Times that every sample is read; 1 by default. */
  readonly epochs?: number;
  /** Steps to take, in place of epochs. */
  readonly steps?: number;
  /** What becomes of samples that fill no batch; `drop` by default. */
  readonly lastBatch?: LastBatch;
  /** Read samples as they stand in the files. */
  readonly inOrder?: boolean;
  /** Of the order of samples; 0 by default. */
  readonly seed?: number;
  /** The model file; where it was when it was compiled, if left out. */
  readonly model?: string;
  /** Writes a checkpoint after every so many steps; behind the last step one is written in any case. */
  readonly checkpointEvery?: number;
  /** How many checkpoints are kept, the newest; 3 by default. */
  readonly keep?: number;
  /**
   * Goes on from a checkpoint: the newest in the folder, or in another one, or a checkpoint's own folder; whatever plan wrote it.
   * What it says of the order of samples holds.
   */
  readonly resume?: boolean | string;
  readonly threadsPerRank?: number;
  readonly backend?: BackendName;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
  /** Called with what the user should know while the run goes on. */
  readonly onNote?: (text: string) => void;
  /** Called after each step. */
  readonly onStep?: (metrics: StepMetrics) => void;
}

export interface TrainReport {
  readonly state: TrainingState;
  readonly samples: number;
  readonly stepsPerEpoch: number;
  /** Of every step, in order. */
  readonly losses: readonly number[];
  readonly last: StepMetrics;
  /** Wall time of all steps. */
  readonly seconds: number;
  /** Bytes of data files that were read, by rank; one reads for all that hold the same. */
  readonly bytesRead: readonly number[];
  readonly metricsFile: string;
  /** The last one. */
  readonly checkpoint: Saved;
  /** The checkpoint's folder that it went on from; null where it began anew. */
  readonly resumedFrom: string | null;
}

/**
 * Trains a program.
 * @throws AutoparError for everything the user can mend; `not-finite` (checkFailed) where the loss is no number
 */
export async function train(options: TrainOptions): Promise<TrainReport> {
  const { directory, signal } = options;
  const parts = await readRunnable(directory, options.model);
  const { plan, source } = parts;
  const { training } = plan;
  if (!training || !source.training)
    throw new AutoparError(
      'not-trained',
      'usage',
      `the program in ${directory} infers, and trains nothing`,
      { file: directory },
      'compile the model with --train',
    );
  const { imported, planned } = await openCompiled(directory, {
    parts,
    withValues: false,
    ...(options.model === undefined ? {} : { model: options.model }),
    ...(signal ? { signal } : {}),
  });
  const checkpoints = await Checkpoints.open(directory, parts, options.keep);
  try {
    return await listening(signal, () => trainFrom(checkpoints, options, { parts, imported, planned, training }));
  } finally {
    await checkpoints.close();
  }
}

interface Model {
  readonly parts: CompiledParts;
  readonly imported: ImportedModel;
  readonly planned: ImportedModel;
  readonly training: PlanTraining;
}

async function trainFrom(
  checkpoints: Checkpoints,
  options: TrainOptions,
  { parts, imported, planned, training }: Model,
): Promise<TrainReport> {
  const { directory, signal, resume = false } = options;
  const { program, source } = parts;
  const found = resume === false ? null : await checkpoints.find(resume === true ? undefined : resume);
  if (!found) await checkpoints.checkNone();
  for (const note of found?.notes ?? []) options.onNote?.(note);
  const resumed = found && stateOf(found.checkpoint.step, found.checkpoint.state, found.folder);
  if (resumed) checkOrder(options, resumed);
  const { tokenType = 'uint16' } = options;
  const { lastBatch } = resumed ?? { lastBatch: options.lastBatch ?? 'drop' };
  const dataset = openTrainingData({ files: options.data, tokenType, lastBatch }, program.inputs, imported, training);
  const { seed = 0, inOrder = false } = options;
  const order: SampleOrder = resumed?.order ?? { samples: dataset.samples, seed, inOrder };
  const stepsPerEpoch = batchesPerEpoch(dataset.samples, dataset.batch, lastBatch);
  const steps = options.steps ?? (options.epochs ?? 1) * stepsPerEpoch;
  const { optimizer } = source.training as Training;
  const run = async (): Promise<TrainReport> => {
    const session = await openSession(directory, {
      ...resourcesOf(options),
      ...(options.threadsPerRank === undefined ? {} : { threadsPerRank: options.threadsPerRank }),
      ...(signal ? { signal } : {}),
      onLoaded: (rank, ranks) => options.onProgress?.(`rank ${rank} of ${ranks} is ready`),
    });
    try {
      if (found) await session.restore(found.folder, found.checkpoint.tensors);
      const start = resumed ?? firstState(order, lastBatch, await lossScaleIn(session, training.lossScale));
      let saved: Saved | null = null;
      const save = async (state: TrainingState): Promise<void> => {
        saved = await checkpoints.save(session, { step: state.step, state: recordOf(state) });
      };
      const file = await MetricsFile.open(directory, start.step);
      const losses: number[] = [];
      const bytesRead: number[] = [];
      let [seconds, last] = [0, null as StepMetrics | null];
      const state = await trainSteps({
        ...{ session, planned, dataset, steps, optimizer },
        state: start,
        after: async ({ state: now, metrics, bytesRead: read, result }) => {
          for (const rank of result.ranks.keys()) bytesRead[rank] = (bytesRead[rank] ?? 0) + (read.get(rank) ?? 0);
          losses.push(metrics.loss);
          seconds += metrics.stepSeconds;
          last = metrics;
          await file.add(metrics);
          options.onStep?.(metrics);
          options.onProgress?.(progressText(metrics, steps, seconds / losses.length));
          signal?.throwIfAborted();
          const isDue = options.checkpointEvery !== undefined && now.step % options.checkpointEvery === 0;
          if (isDue || now.step === steps) await orGoesOn(() => save(now), now.step === steps, options);
        },
      });
      if (!last || !saved) throw new Error('no step was taken');
      return {
        state,
        samples: dataset.samples,
        stepsPerEpoch,
        losses,
        last,
        seconds,
        bytesRead,
        metricsFile: file.file,
        checkpoint: saved,
        resumedFrom: found?.folder ?? null,
      };
    } finally {
      await session.close();
    }
  };
  try {
    if (resumed) checkResumed(resumed, dataset, steps);
    return await run();
  } finally {
    dataset.close();
  }
}

/** Saves; where the disk is full the run goes on without, unless it is over. */
async function orGoesOn(save: () => Promise<void>, isLast: boolean, { onNote }: TrainOptions): Promise<void> {
  try {
    await save();
  } catch (error) {
    if (isLast || !(error instanceof AutoparError) || error.exit !== 'cannotWrite') throw error;
    onNote?.(`warning: this checkpoint was not written, and the last one stays: ${error.message}`);
  }
}

/** @throws AutoparError `bad-option` (usage) where an option says another order of samples than the checkpoint */
function checkOrder(options: TrainOptions, { order, lastBatch }: TrainingState): void {
  const said = [
    ['--seed', options.seed, order.seed],
    ['--in-order', options.inOrder, order.inOrder],
    ['--last-batch', options.lastBatch, lastBatch],
  ] as const;
  for (const [option, here, there] of said) {
    if (here === undefined || here === there) continue;
    throw new AutoparError(
      'bad-option',
      'usage',
      `${option} ${here}: the run that is resumed has ${there}, and goes on with the same order of samples`,
      {},
      'leave the option out',
    );
  }
}

/** @throws AutoparError `data-changed` (input), `bad-option` (usage) where no step is left to take */
function checkResumed({ step, order }: TrainingState, { samples }: Dataset, steps: number): void {
  if (samples !== order.samples)
    throw new AutoparError(
      'data-changed',
      'input',
      `the data have ${samples} samples, and ${order.samples} in the run that is resumed`,
      {},
      'resume on the same data; to train weights further on others, export them and compile the result',
    );
  if (step < steps) return;
  throw new AutoparError(
    'bad-option',
    'usage',
    `the run that is resumed has taken ${step} steps, and ${steps} are asked for in all`,
    {},
    'give more --epochs or --steps: those taken before count',
  );
}

function progressText({ step, loss, tokensPerSecond }: StepMetrics, steps: number, meanSeconds: number): string {
  const left = durationText((steps - step) * meanSeconds);
  return `step ${step} of ${steps}, loss ${loss.toPrecision(5)}, ${Math.round(tokensPerSecond)} tokens/s, ${left} left`;
}

/** Hours, minutes and seconds, of which the two largest. */
function durationText(seconds: number): string {
  const whole = Math.round(seconds);
  const parts = [
    [Math.floor(whole / 3600), 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ] as const;
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return '0 s';
  return parts
    .slice(first, first + 2)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(' ');
}
