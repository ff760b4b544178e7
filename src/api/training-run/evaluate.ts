/**
 * @file The mean loss of evaluation data: sums over all labels that are not ignored, in all batches.
 */
import type { Dataset } from '../../data/dataset.js';
import { batchesPerEpoch, type LastBatch } from '../../data/sampler.js';
import { eachStep, scalarIn } from '../../runtime/run-program.js';
import type { PlanTraining } from '../../strategy/plan.js';
import type { ForwardProgram } from './forward-program.js';
import { type DataOptions, feedBatch, openTrainingData } from './training-data.js';

export interface Evaluation {
  readonly loss: number;
  readonly samples: number;
}

/** Evaluation data of a forward program, opened once. An incomplete batch is padded if the loss can ignore labels. */
export interface Evaluator {
  /** Evaluates with the weights that were written last. */
  readonly evaluate: () => Promise<Evaluation>;
  readonly close: () => void;
}

/** @throws AutoparError as `openTrainingData` */
export function openEvaluator(
  { session, imported, loss }: ForwardProgram,
  options: Omit<DataOptions, 'lastBatch'>,
  training: PlanTraining,
): Evaluator {
  const lastBatch: LastBatch = (training.loss.labels?.ignoreIndex ?? null) === null ? 'drop' : 'pad';
  const dataset: Dataset = openTrainingData({ ...options, lastBatch }, session.program.inputs, imported, training);
  const { samples, batch } = dataset;
  const steps = batchesPerEpoch(samples, batch, lastBatch);
  const order = { samples, seed: 0, inOrder: true };
  const { numerator = '', denominator = null } = loss ?? {};
  return {
    evaluate: async () => {
      let [sum, count] = [0, 0];
      await eachStep(session, {
        first: 0,
        last: steps,
        feed: (step) => feedBatch(session, dataset, order, { epoch: 0, index: step * batch }).feeds,
        options: () => ({}),
        after: (_, { outputs }) => {
          const [over, under] = [outputs[numerator], denominator === null ? null : outputs[denominator]];
          sum += over ? scalarIn(over) : Number.NaN;
          count += under ? scalarIn(under) : 1;
        },
      });
      return { loss: sum / count, samples: lastBatch === 'pad' ? samples : steps * batch };
    },
    close: dataset.close,
  };
}
