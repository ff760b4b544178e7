/**
 * @file The state of a training run besides the tensors of the ranks: all that is needed to continue reading data where it
 * stopped. Dropout masks follow from the seed in the program and from the step number, which is one of the tensors.
 */

import { type LastBatch, nextPosition, type SampleOrder, type SamplerPosition } from '../../data/sampler.js';
import { AutoparError } from '../../ir/error.js';

export interface TrainingState {
  /** Number of completed steps. */
  readonly step: number;
  /** Position of the next step in the data. */
  readonly position: SamplerPosition;
  readonly order: SampleOrder;
  readonly lastBatch: LastBatch;
  /** The loss scale of the next step; 1 without loss scaling. */
  readonly lossScale: number;
}

/** The state before the first step. */
export function firstState(order: SampleOrder, lastBatch: LastBatch, lossScale: number): TrainingState {
  return { step: 0, position: { epoch: 0, index: 0 }, order, lastBatch, lossScale };
}

/** The part of the state that a checkpoint records besides the step. */
export function checkpointRecord({
  position,
  order,
  lastBatch,
  lossScale,
}: TrainingState): Readonly<Record<string, unknown>> {
  return { ...position, ...order, lastBatch, lossScale };
}

/**
 * The state that a checkpoint records.
 * @throws AutoparError `bad-checkpoint` (input) for a record of another form
 */
export function recordedState(step: number, record: Readonly<Record<string, unknown>>, file: string): TrainingState {
  const { epoch, index, samples, seed, inOrder, lastBatch, lossScale } = record;
  const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0;
  const isFit = isCount(epoch) && isCount(index) && isCount(samples) && isCount(seed) && typeof lossScale === 'number';
  if (isFit && typeof inOrder === 'boolean' && (lastBatch === 'drop' || lastBatch === 'pad'))
    return { step, position: { epoch, index }, order: { samples, seed, inOrder }, lastBatch, lossScale };
  throw new AutoparError(
    'bad-checkpoint',
    'input',
    `the checkpoint ${file} does not record the position in the data`,
    { file },
    'resume from one that autopar train wrote',
  );
}

/** The state after a step with a batch of `batch` samples. */
export function stateAfter(state: TrainingState, batch: number, lossScale: number): TrainingState {
  const position = nextPosition(state.position, state.order.samples, batch, state.lastBatch);
  return { ...state, step: state.step + 1, position, lossScale };
}
