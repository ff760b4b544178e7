/**
 * @file The training loop: runs steps of a session on batches of a dataset, from one state to another.
 */
import type { Dataset } from '../../data/dataset.js';
import { learningRateAt, type OptimizerOptions } from '../../ir/autodiff/optimizer-options.js';
import { tokensOf } from '../../ir/dimension-roles.js';
import { eachStep, scalarIn } from '../../runtime/run-program.js';
import type { Session, StepResult } from '../../runtime/session.js';
import type { ImportedModel } from '../models/import.js';
import { numberReader } from '../verification/numbers.js';
import type { StepMetrics } from './metrics.js';
import { gradientNorm, gradientOptions, gradientPlaces, notFiniteError, usualNames } from './observed.js';
import { stateAfter, type TrainingState } from './state.js';
import { feedBatch } from './training-data.js';

export interface TrainingLoop {
  readonly session: Session;
  /** The model as it was planned. */
  readonly planned: ImportedModel;
  readonly dataset: Dataset;
  /** The initial state. */
  readonly state: TrainingState;
  /** Total number of steps at the end, including those before `state`. */
  readonly steps: number;
  readonly optimizer: OptimizerOptions;
  /** Whether the last step is traced. */
  readonly trace: boolean;
  /** Called after each step; it ends the loop by throwing. */
  readonly after: (taken: TakenStep) => Promise<void>;
}

/** A completed step: its state can be read and written on the ranks until the next step begins. */
export interface TakenStep {
  /** State after the step. */
  readonly state: TrainingState;
  readonly metrics: StepMetrics;
  /** Bytes by the rank that read them for all ranks that hold the same data. */
  readonly bytesRead: ReadonlyMap<number, number>;
  readonly result: StepResult;
}

/** Scalars of the optimizer whose values the step number alone does not determine. */
const STEP = 'optimizer/step';
const LOSS_SCALE = 'optimizer/loss-scale';

/** The initial loss scale of a program, or 1. */
export async function lossScaleIn(session: Session, fixed: number | 'dynamic' | undefined): Promise<number> {
  if (typeof fixed === 'number') return fixed;
  return (await readNumbers(session))?.lossScale ?? 1;
}

/** The step count and loss scale; null if the loss scale is constant, so that every step is applied. */
async function readNumbers(session: Session): Promise<{ readonly applied: number; readonly lossScale: number } | null> {
  const kept = new Set((session.program.state ?? []).map(({ to }) => to));
  if (!kept.has(STEP) || !kept.has(LOSS_SCALE)) return null;
  const { [STEP]: step, [LOSS_SCALE]: scale } = await session.read([STEP, LOSS_SCALE]);
  if (!step || !scale) return null;
  return { applied: numberReader(step)(0), lossScale: numberReader(scale)(0) };
}

/**
 * Runs steps until `steps` are completed. The next batch is read while the ranks compute.
 * @returns the final state
 * @throws AutoparError `not-finite` (checkFailed) for a loss, gradients or an update that are not finite; the errors of reading
 *   data and of ranks
 */
export async function trainSteps(loop: TrainingLoop): Promise<TrainingState> {
  const { session, planned, dataset, optimizer } = loop;
  const { program } = session;
  const loss = planned.step?.loss ?? '';
  const places = gradientPlaces(program, planned);
  const asked = { ...gradientOptions(places), outputs: [loss], check: true };
  const samples = planned.step?.lossScaleSamples ?? 1;
  const { lossScale, precision } = planned.training ?? {};
  const isScaled = lossScale !== undefined || precision === 'fp16';
  const tokens = tokensOf(planned.graph);
  const first = await readNumbers(session);
  const next = new Set((program.state ?? []).map(({ from }) => from));
  let { state } = loop;
  let applied = first?.applied ?? state.step;
  let usual: ReadonlySet<string> | null = null;
  /** Batches that are read and not yet used, earliest first; `reading` is the position of the next batch. */
  const read: ReturnType<typeof feedBatch>[] = [];
  let reading = state;
  await eachStep(session, {
    first: state.step,
    last: loop.steps,
    feed: () => {
      const batch = feedBatch(session, dataset, state.order, reading.position);
      reading = stateAfter(reading, dataset.batch, 1);
      read.push(batch);
      return batch.feeds;
    },
    options: (step) => ({ ...asked, trace: loop.trace === true && step === loop.steps - 1 }),
    after: async (_, result) => {
      const { bytesRead } = read.shift() as ReturnType<typeof feedBatch>;
      const step = state.step + 1;
      const value = result.outputs[loss];
      const mean = value ? scalarIn(value) : Number.NaN;
      const refuse = (what: string) => notFiniteError(what, step, result, usual, program, planned.graph);
      if (!Number.isFinite(mean)) throw refuse('loss');
      const scale = isScaled ? state.lossScale / samples : 1;
      const norm = places ? gradientNorm(places, result, scale) : null;
      // With dynamic loss scaling, a step whose gradients overflow is skipped, and the scale decreases.
      if (norm !== null && !Number.isFinite(norm) && !first) throw refuse('gradient');
      const spoiled = result.notFinite.filter(({ tensor }) => next.has(tensor));
      if (spoiled.length > 0)
        throw notFiniteError('update', step, { ...result, notFinite: spoiled }, null, program, planned.graph);
      usual ??= usualNames(result);
      const metrics: StepMetrics = {
        step,
        epoch: state.position.epoch + 1,
        loss: mean,
        gradientNorm: norm !== null && Number.isFinite(norm) ? norm : null,
        learningRate: learningRateAt(optimizer, applied + 1),
        lossScale: state.lossScale,
        stepSeconds: result.seconds,
        samplesPerSecond: dataset.batch / result.seconds,
        tokensPerSecond: tokens === null ? null : (dataset.batch * tokens) / result.seconds,
      };
      const now = first ? await readNumbers(session) : null;
      applied = now?.applied ?? applied + 1;
      state = stateAfter(state, dataset.batch, now?.lossScale ?? state.lossScale);
      await loop.after({ state, metrics, bytesRead, result });
    },
  });
  return state;
}
