/**
 * @file Redistribution steps as nodes. Slices and masks are compute (they use a coordinate); the rest are collectives.
 */
import type { Layout } from '../sharding-propagation/layout.js';
import { replicated } from '../sharding-propagation/layout.js';
import type { RedistributionStep } from '../sharding-propagation/redistribution.js';
import { type StepDetail, stepDetail } from '../sharding-propagation/step-detail.js';
import { type Fragment, int64Constant, zeroConstant } from './fragment.js';
import type { Collective } from './sharded-graph.js';

/** Adds the step that turns `tensor` into `step.to`; returns the new tensor (named `name` where given). */
export function lowerStep(fragment: Fragment, tensor: string, step: RedistributionStep, name?: string): string {
  const detail = stepDetail(step, fragment.get(tensor).shape, fragment.mesh);
  if (detail.kind === 'slice') return lowerSlice(fragment, tensor, step, detail, name);
  if (detail.kind === 'to-partial') return lowerToPartial(fragment, tensor, step, name);
  return fragment.communicate(collectiveOf(detail), step.axes, tensor, step.to, name);
}

/** A collective as the sharded graph names it, without what only redistribution needs to know. */
function collectiveOf(detail: Exclude<StepDetail, { readonly kind: 'slice' | 'to-partial' }>): Collective {
  switch (detail.kind) {
    case 'all-reduce':
      return { kind: detail.kind, reduction: detail.reduction };
    case 'all-gather':
      return { kind: detail.kind, outer: detail.outer, inner: detail.inner };
    case 'reduce-scatter':
      return { kind: detail.kind, reduction: detail.reduction, outer: detail.outer, inner: detail.inner };
    case 'all-to-all':
      return { kind: detail.kind, split: detail.split, concat: detail.concat };
    case 'permute':
      return { kind: detail.kind, to: detail.to };
  }
}

/** Adds all steps in order; returns the last tensor. */
export function lowerSteps(
  fragment: Fragment,
  tensor: string,
  steps: readonly RedistributionStep[],
  name?: string,
): string {
  return steps.reduce(
    (current, step, index) => lowerStep(fragment, current, step, index === steps.length - 1 ? name : undefined),
    tensor,
  );
}

/** The local block seen as [outer, count, inner]; each rank picks the slice with its index. */
function lowerSlice(
  fragment: Fragment,
  tensor: string,
  step: RedistributionStep,
  detail: { readonly outer: number; readonly count: number; readonly inner: number },
  name: string | undefined,
): string {
  const { dtype, shape, localShape } = fragment.get(tensor);
  const { outer, count, inner } = detail;
  const rows = viewAs(fragment, tensor, [outer, count, inner], localShape);
  const index = fragment.coordinate(step.axes, 1);
  const [picked] = fragment.add({
    op: 'Gather',
    attributes: { axis: 1 },
    inputs: [rows, index],
    results: [{ type: { dtype, shape: [outer, 1, inner] }, layout: replicated([outer, 1, inner]), varying: step.axes }],
    lowering: 'slice',
  });
  return reshapeTo(fragment, picked as string, { dtype, shape }, step.to, name);
}

/** The value on the group's first rank, zero on the others. */
function lowerToPartial(
  fragment: Fragment,
  tensor: string,
  step: RedistributionStep,
  name: string | undefined,
): string {
  const { dtype, shape } = fragment.get(tensor);
  const [first] = fragment.add({
    op: 'Equal',
    inputs: [fragment.coordinate(step.axes, 1), fragment.constant(int64Constant([0]))],
    results: [{ type: { dtype: 'bool', shape: [1] }, layout: replicated([1]), varying: step.axes }],
  });
  // A scalar has no dimension for the condition's one to broadcast against.
  const condition = shape.length > 0 ? (first as string) : viewAs(fragment, first as string, [], [1]);
  const [result] = fragment.add({
    op: 'Where',
    inputs: [condition, tensor, fragment.constant(zeroConstant(dtype))],
    results: [{ ...(name ? { name } : {}), type: { dtype, shape }, layout: step.to }],
    lowering: 'to-partial',
  });
  return result as string;
}

/** The local block under another local shape (no data moves); nothing is added where the shapes are equal. */
function viewAs(fragment: Fragment, tensor: string, shape: readonly number[], from: readonly number[]): string {
  if (shape.length === from.length && shape.every((size, index) => size === from[index])) return tensor;
  const { dtype, varying } = fragment.get(tensor);
  const [result] = fragment.add({
    op: 'Reshape',
    attributes: { shape: [...shape] },
    inputs: [tensor],
    results: [{ type: { dtype, shape }, layout: replicated(shape), varying: varying ?? [] }],
    lowering: 'slice',
  });
  return result as string;
}

/** A block given its place in the whole tensor: the local shape that `layout` says. */
function reshapeTo(
  fragment: Fragment,
  tensor: string,
  type: { readonly dtype: Parameters<Fragment['tensor']>[0]['dtype']; readonly shape: readonly number[] },
  layout: Layout,
  name: string | undefined,
): string {
  const target = fragment.tensor(type, layout, name);
  const local = fragment.get(target).localShape;
  const [result] = fragment.add({
    op: 'Reshape',
    attributes: { shape: [...local] },
    inputs: [tensor],
    results: [{ name: target, type, layout }],
    lowering: 'slice',
  });
  return result as string;
}
