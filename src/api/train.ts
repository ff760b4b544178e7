/**
 * @file train: a compiled program trained on data files. What each step does is recorded in metrics.jsonl in the program's folder.
 */
import { TOKEN_TYPES, type TokenType } from '../data/data-file.js';
import { batchesPerEpoch, type LastBatch, type SampleOrder } from '../data/sampler.js';
import { AutoparError } from '../ir/error.js';
import { listening } from '../ir/interruption.js';
import type { BackendName } from '../runtime/backend.js';
import { openSession, type RankResources, resourcesOf } from '../runtime/session.js';
import { readRunnable } from './compiled-model.js';
import { lossScaleIn, trainSteps } from './training-run/loop.js';
import { MetricsFile, type StepMetrics } from './training-run/metrics.js';
import { firstState, type TrainingState } from './training-run/state.js';
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
  readonly threadsPerRank?: number;
  readonly backend?: BackendName;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
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
}

/**
 * Trains a program.
 * @throws AutoparError for everything the user can mend; `not-finite` (checkFailed) where the loss is no number
 */
export async function train(options: TrainOptions): Promise<TrainReport> {
  const { directory, signal } = options;
  const parts = await readRunnable(directory, options.model);
  const { program, plan, source } = parts;
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
  const { lastBatch = 'drop', tokenType = 'uint16', seed = 0, inOrder = false } = options;
  const dataset = openTrainingData({ files: options.data, tokenType, lastBatch }, program.inputs, imported, training);
  const order: SampleOrder = { samples: dataset.samples, seed, inOrder };
  const stepsPerEpoch = batchesPerEpoch(dataset.samples, dataset.batch, lastBatch);
  const steps = options.steps ?? (options.epochs ?? 1) * stepsPerEpoch;
  const { optimizer } = source.training;
  const run = async (): Promise<TrainReport> => {
    const session = await openSession(directory, {
      ...resourcesOf(options),
      ...(options.threadsPerRank === undefined ? {} : { threadsPerRank: options.threadsPerRank }),
      ...(signal ? { signal } : {}),
      onLoaded: (rank, ranks) => options.onProgress?.(`rank ${rank} of ${ranks} is ready`),
    });
    try {
      const start = firstState(order, lastBatch, await lossScaleIn(session, training.lossScale));
      const file = await MetricsFile.open(directory, start.step);
      const losses: number[] = [];
      const bytesRead: number[] = [];
      let [seconds, last] = [0, null as StepMetrics | null];
      const state = await trainSteps({
        ...{ session, planned, dataset, steps, optimizer },
        state: start,
        after: async ({ metrics, bytesRead: read, result }) => {
          for (const rank of result.ranks.keys()) bytesRead[rank] = (bytesRead[rank] ?? 0) + (read.get(rank) ?? 0);
          losses.push(metrics.loss);
          seconds += metrics.stepSeconds;
          last = metrics;
          await file.add(metrics);
          options.onStep?.(metrics);
          options.onProgress?.(progressText(metrics, steps, seconds / losses.length));
          signal?.throwIfAborted();
        },
      });
      if (!last) throw new Error('no step was taken');
      return {
        state,
        samples: dataset.samples,
        stepsPerEpoch,
        losses,
        last,
        seconds,
        bytesRead,
        metricsFile: file.file,
      };
    } finally {
      await session.close();
    }
  };
  try {
    return await listening(signal, run);
  } finally {
    dataset.close();
  }
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
