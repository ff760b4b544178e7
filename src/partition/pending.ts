/**
 * @file A pending reduction as resharding steps: one all-reduce per kind of reduction, or one reduce-scatter.
 */
import type { Reduction } from '../ir/factor-rule.js';
import type { Layout } from '../sharding-propagation/layout.js';
import type { ReshardOp } from '../sharding-propagation/resharding.js';

const REDUCTIONS: readonly Reduction[] = ['sum', 'max', 'min'];

/** Steps from a result's layout before to its layout after the pending reduction of its strategy. */
export function pendingReshardOps(from: Layout, to: Layout): readonly ReshardOp[] {
  const gone = from.partial.filter((partial) => !to.partial.some((left) => left.axis === partial.axis));
  const scattered = JSON.stringify(from.dims) !== JSON.stringify(to.dims);
  if (scattered) return [{ kind: 'reduce-scatter', axes: gone.map((partial) => partial.axis), from, to }];
  const steps: ReshardOp[] = [];
  let current = from;
  for (const reduction of REDUCTIONS) {
    const axes = gone.filter((partial) => partial.reduction === reduction).map((partial) => partial.axis);
    if (axes.length === 0) continue;
    const next = { ...current, partial: current.partial.filter((partial) => !axes.includes(partial.axis)) };
    steps.push({ kind: 'all-reduce', axes, from: current, to: next });
    current = next;
  }
  return steps;
}
