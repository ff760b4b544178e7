/**
 * @file How ranks share out the sequence of a step: by which method where that is left open, and in which order. Over a ring
 * whose attention is causal it is in zig-zag order, so that every rank has the same work, else in the model's.
 */
import { sequenceDimensions } from '../ir/dimension-roles.js';
import { AutoparError } from '../ir/error.js';
import { type Graph, typeOf } from '../ir/graph.js';
import { entryOf } from '../ir/ops/index.js';
import { inZigzag } from '../ir/passes/order-sequence.js';
import { bytesWritten, timeWritten } from '../search/figures.js';
import { NothingFits } from '../search/plan.js';
import { SP_METHODS, type SpMethod } from '../sharding-propagation/roles.js';
import type { Plan, PlanSequence } from '../strategy/plan.js';
import type { Request } from '../strategy/request.js';

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
export function orderedGraph(graph: Graph, sp: number, { spMethod = 'auto', spOrder }: Request): PlannedOrder {
  if (spOrder !== undefined && (sp === 1 || spMethod !== 'ring'))
    throw new AutoparError(
      'bad-option',
      'usage',
      `--sp-order ${spOrder} says in which order a ring has its positions, and ${sp === 1 ? 'sp is 1' : `--sp-method is ${spMethod}`}`,
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

/** Whether there is anything that methods differ in: attention, recognised or not. */
export function hasAttention({ nodes }: Graph): boolean {
  return nodes.some(({ op, domain }) => op === 'Softmax' || entryOf(op, domain)?.family === 'attention');
}

/** What `auto` chooses from. */
const METHODS = SP_METHODS.filter((method) => method !== 'auto');

/**
 * The fastest of the plans by each method; the plan says why.
 * @param planned makes the plan of a method, with a share of the time that there is
 * @throws AutoparError of the first method, or of one that has a plan and does not fit, where none has a plan that fits
 */
export async function bestMethod<Planned extends { readonly plan: Plan }>(
  planned: (method: SpMethod, share: number) => Promise<Planned>,
): Promise<Planned> {
  const tried: { readonly method: SpMethod; readonly found: Planned | AutoparError }[] = [];
  for (const method of METHODS) tried.push({ method, found: await planned(method, 1 / METHODS.length).catch(refusal) });
  const [best, ...others] = tried
    .flatMap(({ method, found }) => (found instanceof AutoparError ? [] : [{ method, found }]))
    .sort((a, b) => secondsOf(a.found) - secondsOf(b.found));
  if (!best) {
    const errors = tried.flatMap(({ found }) => (found instanceof AutoparError ? [found] : []));
    throw (
      errors
        .flatMap((error) => (error instanceof NothingFits ? [error] : []))
        .sort((a, b) => a.figures.leastBytes - b.figures.leastBytes)[0] ?? errors[0]
    );
  }
  const refused = tried.flatMap(({ method, found }) =>
    found instanceof AutoparError ? [`${method}: ${found.message}`] : [],
  );
  const why = [
    `${best.method} takes ${figuresOf(best.found)}`,
    ...others.map(({ method, found }) => `${method} ${figuresOf(found)}`),
    ...refused,
  ].join('; ');
  const { sequence } = best.found.plan;
  return sequence ? { ...best.found, plan: { ...best.found.plan, sequence: { ...sequence, why } } } : best.found;
}

function refusal(error: unknown): AutoparError {
  const isOfMethod = error instanceof AutoparError && (error.exit === 'noPlan' || error.code === 'degree-does-not-fit');
  if (!isOfMethod) throw error;
  return error;
}

function secondsOf({ plan }: { readonly plan: Plan }): number {
  return plan.predicted.stepSeconds;
}

function figuresOf({ plan: { predicted } }: { readonly plan: Plan }): string {
  return `${timeWritten(predicted.stepSeconds * 1e9)} and ${bytesWritten(Math.max(...predicted.peakBytes))} of memory per rank`;
}
