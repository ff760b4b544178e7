/**
 * @file Gradients that data-parallel ranks add up (MindSpore's `gradients_mean: False`): each rank has the mean loss of its
 * samples, so that their sum is as many times the gradient of the mean over all of them. Where labels do not count, a mean is of
 * all labels of the batch that do, on whichever rank they are.
 */
import { AutoparError } from '../error.js';
import { typeOf } from '../graph.js';
import { constant } from '../ops/constants.js';
import type { WithLoss } from './append-loss.js';
import { LossWriter } from './loss-writer.js';

/**
 * The graph with a tensor that is what gradients are of, times the ranks.
 * @throws AutoparError (usage) `bad-option` where the loss is no mean: the gradients of its whole batch are a sum as they are
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
      `--gradient-reduction sum adds up gradients of means over samples, and the loss '${loss}' is no mean: its ` +
        'gradients are those of a sum',
      { tensor: loss },
      'leave --gradient-reduction out',
    );
  const write = new LossWriter(graph);
  const { dtype, shape } = typeOf(graph, derived);
  const factor = write.cast(write.constant('loss/ranks', constant('float32', [ranks])), dtype);
  const summed = write.node('Mul', [derived, factor], { dtype, shape }, {}, 'loss/summed-over-ranks');
  return { graph: write.graph(), loss: summed };
}
