/**
 * @file train: trains a compiled program on data files. Each step is recorded in metrics.jsonl in the program's
 * folder.
 */
import type { TokenType } from '../data/data-file.js';
import { batchesPerEpoch, type SampleOrder } from '../data/sampler.js';
import { AutoparError } from '../ir/error.js';
import { listening } from '../ir/interruption.js';
import { withoutUndefined } from '../ir/without-undefined.js';
import { checkPlace } from '../program/atomic.js';
import { programFolder } from '../program/reader.js';
import {
  type RankResources,
  resourcesOf,
  type SessionOptions,
  startSession,
  type UnshardedTensors,
} from '../runtime/session.js';
import type { PlanTraining } from '../strategy/plan.js';
import type { Saved } from './execution/checkpoints.js';
import { readRunnable } from './models/compiled-model.js';
import type { ImportedModel } from './models/import.js';
import type { CompiledParts } from './output/folder.js';
import { writeSpans } from './reports/timeline.js';
import type { Training } from './requests/training-request.js';
import {
  type Checkpointing,
  checkResumed,
  openCheckpointing,
  type TrainingRunOptions,
  WITHOUT_CHECKPOINTS,
} from './training-run/checkpointing.js';
import { openEvaluator } from './training-run/evaluate.js';
import { openForward } from './training-run/forward-program.js';
import { following, stopped } from './training-run/interruption.js';
import { lossScaleIn, trainSteps } from './training-run/loop.js';
import { MetricsFile, type StepMetrics } from './training-run/metrics.js';
import { progressText } from './training-run/progress.js';
import { firstState, type TrainingState } from './training-run/state.js';
import { openTrainingData } from './training-run/training-data.js';
import { openCompiled } from './verify.js';

export type { TokenType };

export interface TrainOptions extends RankResources, TrainingRunOptions {
  /** .npy, .npz, or files of raw tokens, concatenated in this order. */
  readonly data: readonly string[];
  /** The type of raw tokens; uint16 by default. */
  readonly tokenType?: TokenType;
  /** Number of times that every sample is read; 1 by default. */
  readonly epochs?: number;
  /** Number of steps, instead of epochs. */
  readonly steps?: number;
  /** Files of evaluation samples: their mean loss is computed, and they are not trained on. */
  readonly evalData?: readonly string[];
  /** Steps between evaluations; by default there is one evaluation at the end. */
  readonly evalEvery?: number;
  /** The model file; by default the path from which it was compiled. */
  readonly model?: string;
  readonly threadsPerRank?: number;
  /** A file for the timeline of the ranks in the last step, for Perfetto and chrome://tracing. */
  readonly trace?: string;
  /** Ends the run after the step that is under way, with a checkpoint if the run writes any; before the first step at once. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
  /** Called after each step. */
  readonly onStep?: (metrics: StepMetrics) => void;
}

/** The data files to evaluate, as in `train`. */
export type EvaluateOptions = Pick<TrainOptions, 'data' | 'tokenType'>;

export interface TrainReport {
  readonly state: TrainingState;
  readonly samples: number;
  readonly stepsPerEpoch: number;
  /** Loss of every step, in order. */
  readonly losses: readonly number[];
  readonly last: StepMetrics;
  /** Mean losses of the evaluation data, with the step before each evaluation. */
  readonly evaluations: readonly { readonly step: number; readonly loss: number }[];
  /** Wall-clock time of all steps. */
  readonly seconds: number;
  /** Bytes read from data files, by rank; one rank reads for all ranks that hold the same data. */
  readonly bytesRead: readonly number[];
  readonly metricsFile: string;
  /** The last checkpoint that was written; null if none was. */
  readonly checkpoint: Saved | null;
  /** The folder of the checkpoint that the run resumed from; null for a new run. */
  readonly resumedFrom: string | null;
}

/** A run, and the state of the ranks at its end: unsharded weights and optimizer state, by name. */
export interface TrainedRun {
  readonly report: TrainReport;
  readonly kept: UnshardedTensors;
}

/**
 * Trains a program.
 * @throws AutoparError for everything the user can fix; `not-finite` (checkFailed) if the loss is not finite
 */
export async function train(options: TrainOptions): Promise<TrainReport> {
  return (await trainFrom(options, {}, false)).report;
}

/**
 * Trains from given initial values instead of the program's own.
 * @param initial values of weights and of other state, by name
 * @param keeps whether all state is read at the end; checkpoints are then written only if requested
 */
export async function trainFrom(options: TrainOptions, initial: UnshardedTensors, keeps: boolean): Promise<TrainedRun> {
  const { directory, signal } = options;
  const parts = await readRunnable(directory, options.model);
  const { plan, source } = parts;
  const { training } = plan;
  if (!training || !source.training)
    throw new AutoparError(
      'not-trained',
      'usage',
      `the program in ${directory} is for inference`,
      { file: directory },
      'compile the model with --train',
    );
  if (options.trace !== undefined) await checkPlace(options.trace);
  const { imported, planned } = await openCompiled(directory, {
    parts,
    withValues: false,
    ...withoutUndefined({ model: options.model, signal }),
  });
  const writes = !keeps || options.checkpointEvery !== undefined || options.resume !== undefined;
  const checkpoints = writes ? await openCheckpointing(parts, options) : WITHOUT_CHECKPOINTS;
  try {
    const model = { parts, imported, planned, training: source.training, plan: training };
    return await listening(signal, () => trainModel(options, initial, keeps, checkpoints, model));
  } finally {
    await checkpoints.close();
  }
}

interface TrainedModel {
  readonly parts: CompiledParts;
  readonly imported: ImportedModel;
  readonly planned: ImportedModel;
  readonly training: Training;
  readonly plan: PlanTraining;
}

async function trainModel(
  options: TrainOptions,
  initial: UnshardedTensors,
  keeps: boolean,
  checkpoints: Checkpointing,
  { parts, imported, planned, training: asked, plan: training }: TrainedModel,
): Promise<TrainedRun> {
  const { directory, signal, onProgress = () => undefined } = options;
  const { program } = parts;
  const { resumed } = checkpoints;
  const { tokenType = 'uint16', seed = 0, inOrder = false, evalData } = options;
  const { lastBatch } = resumed ?? { lastBatch: options.lastBatch ?? 'drop' };
  const dataset = openTrainingData({ files: options.data, tokenType, lastBatch }, program.inputs, imported, training);
  const order: SampleOrder = resumed?.order ?? { samples: dataset.samples, seed, inOrder };
  const stepsPerEpoch = batchesPerEpoch(dataset.samples, dataset.batch, lastBatch);
  const steps = options.steps ?? (options.epochs ?? 1) * stepsPerEpoch;
  const { optimizer } = asked;
  const running: SessionOptions = {
    ...resourcesOf(options),
    ...withoutUndefined({ threadsPerRank: options.threadsPerRank, signal }),
  };
  const ends: (() => Promise<void> | void)[] = [dataset.close];
  const run = async (): Promise<TrainedRun> => {
    const loading = following(signal);
    ends.push(loading.release);
    const session = await startSession(program, await programFolder(directory), {
      ...running,
      signal: loading.signal,
      onLoaded: (rank, ranks) => onProgress(`rank ${rank} of ${ranks} is ready`),
    });
    ends.push(() => session.close());
    const state = (program.state ?? []).map(({ to }) => to);
    const evaluation = evalData && (await openEvaluation(evalData));
    await session.write(initial);
    await checkpoints.restore(session);
    const start = resumed ?? firstState(order, lastBatch, await lossScaleIn(session, training.lossScale));
    const file = await MetricsFile.open(directory, start.step);
    const losses: number[] = [];
    const evaluations: { step: number; loss: number }[] = [];
    const bytesRead: number[] = [];
    let [seconds, last] = [0, null as StepMetrics | null];
    loading.release();
    signal?.throwIfAborted();
    const announce = () => {
      if (checkpoints.stop) options.onNote?.('interrupted: a checkpoint is written after the step that is under way');
    };
    signal?.addEventListener('abort', announce);
    ends.push(() => signal?.removeEventListener('abort', announce));
    const end = await trainSteps({
      ...{ session, planned, dataset, steps, optimizer },
      state: start,
      trace: options.trace !== undefined,
      after: async ({ state: now, metrics: taken, bytesRead: read, result }) => {
        for (const rank of result.ranks.keys()) bytesRead[rank] = (bytesRead[rank] ?? 0) + (read.get(rank) ?? 0);
        losses.push(taken.loss);
        seconds += taken.stepSeconds;
        const { step } = taken;
        onProgress(progressText(taken, steps, seconds / losses.length));
        const isDue = evaluation && (step === steps || step % (options.evalEvery ?? steps) === 0);
        // An error in the evaluation data must not prevent the checkpoint: it is thrown afterwards.
        let fault: unknown = null;
        const evalLoss = isDue
          ? await evaluation(await session.read(state)).catch((error: unknown) => {
              fault = error;
            })
          : undefined;
        if (evalLoss !== undefined) evaluations.push({ step, loss: evalLoss });
        last = evalLoss === undefined ? taken : { ...taken, evalLoss };
        const unwritten = await file.add(last);
        if (unwritten) options.onNote?.(`warning: metrics cannot be written yet: ${unwritten.message}`);
        options.onStep?.(last);
        if (signal?.aborted && (step !== steps || fault)) throw await stopped(checkpoints, session, now, steps, signal);
        await checkpoints.after(session, now, steps);
        if (fault) throw fault;
        if (step === steps && options.trace !== undefined) await writeSpans(options.trace, program, result.spans);
      },
    });
    if (!last) throw new Error('no step ran');
    file.end();
    const { samples } = dataset;
    const report = { state: end, samples, stepsPerEpoch, losses, last, evaluations, seconds, bytesRead };
    const places = { metricsFile: file.file, checkpoint: checkpoints.last(), resumedFrom: checkpoints.from };
    return { report: { ...report, ...places }, kept: keeps ? await session.read(state) : {} };
  };
  /** Opens evaluation data; the result computes the mean loss for a given state. */
  const openEvaluation = async (files: readonly string[]): Promise<(state: UnshardedTensors) => Promise<number>> => {
    onProgress('planning the evaluation');
    const { microBatches = 1 } = asked;
    const forward = await openForward({
      ...{ directory, parts, training: asked, gives: 'loss' },
      model: options.model,
      batch: microBatches === 1 ? null : dataset.batch / microBatches,
      session: running,
    });
    ends.push(forward.close);
    const evaluator = openEvaluator(forward, { files, tokenType }, training);
    ends.push(evaluator.close);
    return async (state) => {
      await forward.write(state);
      return (await evaluator.evaluate()).loss;
    };
  };
  try {
    if (resumed) checkResumed(resumed, dataset, steps);
    return await run();
  } finally {
    for (const close of ends.reverse()) await close();
  }
}
