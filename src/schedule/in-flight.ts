/** @file The number of micro-batches whose activations the stages of a schedule hold at once. */
import type { Schedule } from './schedule.js';

/**
 * The most (chunk, micro-batch) pairs whose activations each stage holds at once: from a forward to the last phase that
 * reads them. With v chunks each is 1/v of a stage's activations. It does not depend on how long actions take.
 * @param keptForWeights share that is still held between input gradient and weight gradient (zero-bubble)
 */
export function inFlight({ actions, training }: Schedule, keptForWeights = 1): readonly number[] {
  const change = {
    forward: training ? 1 : 0,
    backward: -1,
    'input-gradient': keptForWeights - 1,
    'weight-gradient': -keptForWeights,
  };
  return actions.map((list) => {
    let held = 0;
    let most = training || list.length === 0 ? 0 : 1;
    for (const { phase } of list) {
      held += change[phase];
      most = Math.max(most, held);
    }
    return most;
  });
}
