/**
 * @file Resharding by the routes of the plan. The cheapest route depends on sizes and links; a rehearsal takes the plan's
 * route, step by step, even if another one is cheaper at its own sizes.
 */
import type { Layout } from '../../sharding-propagation/layout.js';
import { layoutKey, sameShards } from '../../sharding-propagation/layout.js';
import type { ReshardOp } from '../../sharding-propagation/reshard-op.js';
import type { Resharder } from '../../sharding-propagation/resharding.js';
import { mappedLayout, NoReducedForm, type SizePairs } from './mapped-layouts.js';
import type { ReducedMesh } from './reduced-mesh.js';

/** A request to a resharder, with the steps that it returned. */
export interface RequestedRoute {
  readonly shape: readonly number[];
  readonly elementBits: number;
  readonly from: Layout;
  readonly to: Layout;
  readonly ops: readonly ReshardOp[];
}

/** A resharder that records the routes it was asked for. */
export function recording(resharder: Resharder): Resharder & { readonly requested: () => readonly RequestedRoute[] } {
  const requested = new Map<string, RequestedRoute>();
  return {
    cost: resharder.cost,
    ops: (from, to, shape, elementBits) => {
      const ops = resharder.ops(from, to, shape, elementBits);
      requested.set(routeKey(from, to, shape), { shape, elementBits, from, to, ops });
      return ops;
    },
    requested: () => [...requested.values()],
  };
}

/**
 * The resharder of a rehearsal: the routes of the plan where it has them, else the cheapest.
 * @param shapesOf for each shape in the plan's model, as text: the shapes of its tensors in the rehearsal
 */
export function sameRoutes(
  requested: readonly RequestedRoute[],
  shapesOf: ReadonlyMap<string, ReadonlyMap<string, readonly number[]>>,
  mesh: ReducedMesh,
  pairs: SizePairs,
  otherwise: Resharder,
): Resharder {
  const routes = new Map<string, readonly ReshardOp[]>();
  for (const route of requested)
    for (const shape of (shapesOf.get(route.shape.join()) ?? new Map<string, readonly number[]>()).values())
      addRoute(routes, route, shape, mesh, pairs);
  return {
    cost: otherwise.cost,
    ops: (from, to, shape, elementBits) =>
      routes.get(routeKey(from, to, shape)) ?? otherwise.ops(from, to, shape, elementBits),
  };
}

function addRoute(
  routes: Map<string, readonly ReshardOp[]>,
  { from, to, ops }: RequestedRoute,
  shape: readonly number[],
  mesh: ReducedMesh,
  pairs: SizePairs,
): void {
  try {
    const map = (layout: Layout) => mappedLayout(layout, shape, mesh, pairs);
    const mapped = ops.map((step) => {
      const axes = mesh.axes(step.axes);
      const isLost = axes.length === 0 && step.axes.length > 0;
      return { isLost, step: { ...step, axes, from: map(step.from), to: map(step.to) } };
    });
    const left = withoutLost(mapped).filter((step) => !sameShards(step.from, step.to, mesh.mesh));
    const key = routeKey(map(from), map(to), shape);
    if (!routes.has(key)) routes.set(key, left);
  } catch (error) {
    if (!(error instanceof NoReducedForm)) throw error;
  }
}

/**
 * Removes steps over lost axes. The step before a removed one ends in the layout after it, which no longer depends on these
 * axes. (The pieces of `(2 | 4:sp)`, to which `dp` is added as `(dp, sp)`, are one piece without `dp`.)
 */
function withoutLost(ops: readonly { readonly isLost: boolean; readonly step: ReshardOp }[]): readonly ReshardOp[] {
  const kept: ReshardOp[] = [];
  let behind: Layout | undefined;
  for (const { isLost, step } of [...ops].reverse()) {
    const own = behind ? { ...step, to: behind } : step;
    if (!isLost) kept.unshift(own);
    behind = isLost ? own.to : undefined;
  }
  return kept;
}

function routeKey(from: Layout, to: Layout, shape: readonly number[]): string {
  return `${shape.join()} ${layoutKey(from)} > ${layoutKey(to)}`;
}
