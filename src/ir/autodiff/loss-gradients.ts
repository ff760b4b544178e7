/**
 * @file A training graph without its updates: forward, loss and gradients, for prices that count an optimizer by its bytes.
 */
import type { Graph } from '../graph.js';
import { appendLoss, type LossOptions } from './append-loss.js';
import { differentiate } from './differentiate.js';
import { withoutUnread } from './without-unread.js';

/**
 * There is no state for another step: the step counter of random numbers is dropped too.
 * @throws AutoparError (input) the errors of loss and differentiation
 */
export function withLossGradients(forward: Graph, options: LossOptions): Graph {
  const { graph: scored, loss } = appendLoss(forward, options);
  const trained = [...scored.weights].flatMap(([name, { role }]) => (role === 'parameter' ? [name] : []));
  const { graph, gradients } = differentiate(scored, loss, trained);
  return withoutUnread({ ...graph, outputs: [loss, ...gradients.values()], state: [] });
}
