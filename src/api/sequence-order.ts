/**
 * @file In which order a step has its sequence: over a ring whose attention is causal in zig-zag order, so that every rank has the same
 * work, else in the model's.
 */
import { AutoparError } from '../ir/error.js';
import type { Graph } from '../ir/graph.js';
import { inZigzag } from '../ir/passes/order-sequence.js';
import type { SpOrder } from '../sharding-propagation/roles.js';
import type { Request } from '../strategy/request.js';

export interface PlannedOrder {
  readonly graph: Graph;
  readonly order: SpOrder;
  readonly notes: readonly string[];
}

/**
 * The graph of a step over `sp` ranks in the order that is asked for, or that the method wants.
 * @throws AutoparError (usage) `bad-option` for an order without a ring, `degree-does-not-fit` for one that the model cannot have
 */
export function orderedGraph(graph: Graph, sp: number, { spMethod, spOrder }: Request): PlannedOrder {
  const plain = { graph, order: 'contiguous', notes: [] } as const;
  if (spOrder !== undefined && (sp === 1 || spMethod !== 'ring'))
    throw new AutoparError(
      'bad-option',
      'usage',
      `--sp-order ${spOrder} says in which order a ring has its positions, and ${sp === 1 ? 'sp is 1' : `--sp-method is ${spMethod ?? 'auto'}`}`,
      {},
      sp === 1 ? 'leave it out, or add --sp 2 --sp-method ring' : 'leave it out, or add --sp-method ring',
    );
  if (spMethod !== 'ring' || sp === 1 || spOrder === 'contiguous') return plain;
  const found = inZigzag(graph, sp);
  if (found.graph) return { graph: found.graph, order: 'zigzag', notes: [] };
  if (spOrder === 'zigzag')
    throw new AutoparError(
      'degree-does-not-fit',
      'usage',
      `--sp-order zigzag: ${found.reason}`,
      found.node === undefined ? {} : { node: found.node },
      'leave out --sp-order, or take another --sp',
    );
  const isUneven = found.node !== undefined;
  return { ...plain, notes: isUneven ? [`positions stay in the model's order: ${found.reason}`] : [] };
}
