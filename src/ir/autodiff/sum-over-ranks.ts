/**
 * @file Gradients that data-parallel ranks add up (MindSpore's `gradients_mean: False`): each rank has the mean loss of its
 * samples, so that the sum is the gradient of the mean over all samples times the number of ranks. Where labels are ignored, a
 * mean is over all other labels of the batch, on whichever rank they are.
 */
import { AutoparError } from '../error.js';
import { typeOf } from '../graph.js';
import { constant } from '../ops/constants.js';
import type { WithLoss } from './append-loss.js';
import { LossWriter } from './loss-writer.js';

/**
 * The graph with the tensor to differentiate, multiplied by the number of ranks.
 * @throws AutoparError (usage) `bad-option` where the loss is not a mean: the gradients of its whole batch are a sum already
 */
export function summedOverRanks(
  { graph, loss, ratio }: WithLoss,
  ranks: number,
  isMean: () => boolean,
): Pick<WithLoss, 'graph' | 'loss'> {
  const derived = ratio?.numerator ?? loss;
  if (ranks === 1) return { graph, loss: derived };
  if (ratio === null && !isMean())
    throw new AutoparError(
      'bad-option',
      'usage',
      `--gradient-reduction sum needs a loss that is a mean over samples, and the loss '${loss}' is a sum`,
      { tensor: loss },
      'leave --gradient-reduction out',
    );
  const write = new LossWriter(graph);
  const { dtype, shape } = typeOf(graph, derived);
  const factor = write.cast(write.constant('loss/ranks', constant('float32', [ranks])), dtype);
  const summed = write.node('Mul', [derived, factor], { dtype, shape }, {}, 'loss/summed-over-ranks');
  return { graph: write.graph(), loss: summed };
}
