/**
 * @file A training graph without its updates: forward, loss and gradients, for prices that count an optimizer by its bytes.
 */
import type { Graph } from '../graph.js';
import { appendLoss, type LossOptions } from './append-loss.js';
import { differentiate } from './differentiate.js';
import { withoutUnread } from './without-unread.js';

/**
 * Nothing is kept for another step: what counts steps for random numbers goes too.
 * @throws AutoparError (input) what loss and differentiation refuse
 */
export function withLossGradients(forward: Graph, options: LossOptions): Graph {
  const { graph: scored, loss } = appendLoss(forward, options);
  const trained = [...scored.weights].flatMap(([name, { role }]) => (role === 'parameter' ? [name] : []));
  const { graph, gradients } = differentiate(scored, loss, trained);
  return withoutUnread({ ...graph, outputs: [loss, ...gradients.values()], state: [] });
}
