/**
 * @file The order in which the sequence of a step is sharded over ranks: zig-zag order for causal ring attention, so that every
 * rank has the same work, else the model's order.
 */
import { sequenceDimensions } from '../../ir/dimension-roles.js';
import { AutoparError, badOption } from '../../ir/error.js';
import { type Graph, typeOf } from '../../ir/graph.js';
import { inZigzag } from '../../ir/passes/order-sequence.js';
import type { PlanSequence } from '../../strategy/plan.js';
import type { PlanRequest } from '../../strategy/request.js';

export interface PlannedOrder {
  readonly graph: Graph;
  /** The plan's record of the order; null if no sequence is sharded. */
  readonly sequence: Pick<PlanSequence, 'order' | 'positions'> | null;
  readonly notes: readonly string[];
}

/** @throws AutoparError (usage) `bad-option` for an order without a ring */
export function refuseIdleOrder(sp: number, { spMethod = 'auto', spOrder }: PlanRequest): void {
  if (spOrder === undefined || (sp > 1 && spMethod === 'ring')) return;
  throw badOption(
    `--sp-order ${spOrder} sets the position order of a ring, and ` +
      `${sp === 1 ? 'sp is 1' : `--sp-method is ${spMethod}`}`,
    sp === 1 ? 'leave it out, or add --sp 2 --sp-method ring' : 'leave it out, or add --sp-method ring',
  );
}

/**
 * The graph of a step over `sp` ranks in the requested order; by default in zig-zag order for a ring, if the model allows it.
 * @throws AutoparError (usage) `degree-does-not-fit` for an order that the model cannot have
 */
export function orderedGraph(graph: Graph, sp: number, { spMethod, spOrder }: PlanRequest): PlannedOrder {
  if (sp === 1) return { graph, sequence: null, notes: [] };
  const sizes = sequenceDimensions(graph).map(({ input, axis }) => typeOf(graph, input).shape[axis] ?? 1);
  const positions = Math.max(0, ...sizes);
  const sequence = { order: 'contiguous', positions } as const;
  const order = spOrder ?? (spMethod === 'ring' ? 'zigzag' : 'contiguous');
  if (order === 'contiguous') return { graph, sequence, notes: [] };
  const found = inZigzag(graph, sp);
  if (found.graph) return { graph: found.graph, sequence: { order, positions }, notes: [] };
  if (spOrder === 'zigzag')
    throw new AutoparError(
      'degree-does-not-fit',
      'usage',
      `--sp-order zigzag: ${found.reason}`,
      found.node === undefined ? {} : { node: found.node },
      'leave out --sp-order, or take another --sp',
    );
  const isUneven = found.node !== undefined;
  return { graph, sequence, notes: isUneven ? [`positions stay in the model's order: ${found.reason}`] : [] };
}
