/**
 * @file In which order ranks share out the sequence of a step: over a ring whose attention is causal in zig-zag order, so that
 * every rank has the same work, else in the model's.
 */
import { sequenceDimensions } from '../../ir/dimension-roles.js';
import { AutoparError } from '../../ir/error.js';
import { type Graph, typeOf } from '../../ir/graph.js';
import { inZigzag } from '../../ir/passes/order-sequence.js';
import type { PlanSequence } from '../../strategy/plan.js';
import type { PlanRequest } from '../../strategy/request.js';

export interface PlannedOrder {
  readonly graph: Graph;
  /** What the plan says of it; null where no rank shares a sequence. */
  readonly sequence: PlanSequence | null;
  readonly notes: readonly string[];
}

/**
 * The graph of a step over `sp` ranks in the order that is asked for, or that the method wants.
 * @throws AutoparError (usage) `bad-option` for an order without a ring, `degree-does-not-fit` for one that the model cannot have
 */
export function orderedGraph(graph: Graph, sp: number, { spMethod = 'auto', spOrder }: PlanRequest): PlannedOrder {
  if (spOrder !== undefined && (sp === 1 || spMethod !== 'ring'))
    throw new AutoparError(
      'bad-option',
      'usage',
      `--sp-order ${spOrder} says in which order a ring has its positions, and ` +
        `${sp === 1 ? 'sp is 1' : `--sp-method is ${spMethod}`}`,
      {},
      sp === 1 ? 'leave it out, or add --sp 2 --sp-method ring' : 'leave it out, or add --sp-method ring',
    );
  if (sp === 1) return { graph, sequence: null, notes: [] };
  const sizes = sequenceDimensions(graph).map(({ input, axis }) => typeOf(graph, input).shape[axis] ?? 1);
  const sequence = { method: spMethod, order: 'contiguous', positions: Math.max(0, ...sizes) } as const;
  if (spMethod !== 'ring' || spOrder === 'contiguous') return { graph, sequence, notes: [] };
  const found = inZigzag(graph, sp);
  if (found.graph) return { graph: found.graph, sequence: { ...sequence, order: 'zigzag' }, notes: [] };
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
