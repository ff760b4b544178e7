/**
 * @file Where a training run is, beside the tensors that the ranks keep: all that is needed to read on where it stopped. Masks of
 * Dropout follow from the seed in the program and from the step's number, which is among the tensors.
 */
import { type LastBatch, nextPosition, type SampleOrder, type SamplerPosition } from '../../data/sampler.js';

export interface TrainingState {
  /** Steps taken so far. */
  readonly step: number;
  /** What the next step reads. */
  readonly position: SamplerPosition;
  readonly order: SampleOrder;
  readonly lastBatch: LastBatch;
  /** What the loss is multiplied by in the next step, where gradients are scaled; 1 where they are not. */
  readonly lossScale: number;
}

/** Before the first step. */
export function firstState(order: SampleOrder, lastBatch: LastBatch, lossScale: number): TrainingState {
  return { step: 0, position: { epoch: 0, index: 0 }, order, lastBatch, lossScale };
}

/** Behind a step of so many samples. */
export function stateAfter(state: TrainingState, batch: number, lossScale: number): TrainingState {
  const position = nextPosition(state.position, state.order.samples, batch, state.lastBatch);
  return { ...state, step: state.step + 1, position, lossScale };
}
