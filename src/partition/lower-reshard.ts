/**
 * @file Reshard ops as nodes. Slices and masks are compute (they use a coordinate); the rest are collectives.
 */
import type { Attributes } from '../ir/graph.js';
import type { Layout } from '../sharding-propagation/layout.js';
import { replicated } from '../sharding-propagation/layout.js';
import type { SubAxis } from '../sharding-propagation/mesh.js';
import { type RepaddedDimension, type ReshardDetail, reshardDetail } from '../sharding-propagation/reshard-detail.js';
import type { ReshardOp } from '../sharding-propagation/resharding.js';
import { type Fragment, type FragmentResult, int64Constant, zeroConstant } from './fragment.js';
import type { Collective } from './sharded-graph.js';

/** Adds the op that reshards `tensor` to `op.to`; returns the new tensor (named `name` where given). */
export function lowerReshardOp(fragment: Fragment, tensor: string, op: ReshardOp, name?: string): string {
  const detail = reshardDetail(op, fragment.get(tensor).shape, fragment.mesh);
  if (detail.kind === 'slice') return lowerSlice(fragment, tensor, op, detail, name);
  if (detail.kind === 'to-partial') return lowerToPartial(fragment, tensor, op, name);
  if (detail.kind === 'repad') return lowerRepad(fragment, tensor, op, detail.dimensions, name);
  return fragment.communicate(collectiveOf(detail), op.axes, tensor, op.to, name);
}

/** A collective as the sharded graph names it, without details that only resharding needs. */
function collectiveOf(detail: Exclude<ReshardDetail, { readonly kind: 'slice' | 'to-partial' | 'repad' }>): Collective {
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

/** Adds all ops in order; returns the last tensor. */
export function lowerReshardOps(fragment: Fragment, tensor: string, ops: readonly ReshardOp[], name?: string): string {
  return ops.reduce(
    (current, op, index) => lowerReshardOp(fragment, current, op, index === ops.length - 1 ? name : undefined),
    tensor,
  );
}

/** The shard seen as [outer, count, inner]; each rank picks the slice with its index. */
function lowerSlice(
  fragment: Fragment,
  tensor: string,
  op: ReshardOp,
  detail: { readonly outer: number; readonly count: number; readonly inner: number },
  name: string | undefined,
): string {
  const { dtype, shape, localShape } = fragment.get(tensor);
  const { outer, count, inner } = detail;
  const rows = viewAs(fragment, tensor, [outer, count, inner], localShape);
  const index = fragment.coordinate(op.axes, 1);
  const [picked] = fragment.add({
    op: 'Gather',
    attributes: { axis: 1 },
    inputs: [rows, index],
    results: [asRows(fragment, tensor, [outer, 1, inner], op.axes)],
    lowering: 'slice',
  });
  return reshapeTo(fragment, picked as string, { dtype, shape }, op.to, name);
}

/** Padding dropped by a slice, then the new padding, of zeros, put behind; parts of a dimension are seen as dimensions. */
function lowerRepad(
  fragment: Fragment,
  tensor: string,
  op: ReshardOp,
  dimensions: readonly RepaddedDimension[],
  name: string | undefined,
): string {
  const { dtype, shape, localShape } = fragment.get(tensor);
  const spread = (side: 'from' | 'to', key: 'size' | 'valid') =>
    localShape.flatMap((size, axis) => {
      const repadded = dimensions.find(({ dimension }) => dimension === axis);
      if (!repadded) return [size];
      return repadded[side]?.map((part) => part[key]) ?? [shape[axis] ?? 1];
    });
  let current = tensor;
  const local = (op: string, attributes: Attributes, made: readonly number[]) => {
    const results = [asRows(fragment, current, made)];
    current = fragment.add({ op, attributes, inputs: [current], results, lowering: 'slice' })[0] as string;
  };
  const [padded, kept] = [spread('from', 'size'), spread('from', 'valid')];
  const cut = padded.flatMap((size, axis) => (size === kept[axis] ? [] : [axis]));
  if (cut.length > 0) {
    current = viewAs(fragment, current, padded, localShape);
    const ends = cut.map((axis) => kept[axis] ?? 0);
    local('Slice', { starts: cut.map(() => 0), ends, axes: cut, steps: cut.map(() => 1) }, kept);
  }
  const [bare, wanted] = [spread('to', 'valid'), spread('to', 'size')];
  if (wanted.some((size, axis) => size !== bare[axis])) {
    current = viewAs(fragment, current, bare, fragment.get(current).localShape);
    local(
      'Pad',
      { mode: 'constant', pads: [...bare.map(() => 0), ...wanted.map((size, axis) => size - (bare[axis] ?? 0))] },
      wanted,
    );
  }
  return reshapeTo(fragment, current, { dtype, shape }, op.to, name);
}

/** The value on the group's first rank, zero on the others. */
function lowerToPartial(fragment: Fragment, tensor: string, op: ReshardOp, name: string | undefined): string {
  const { dtype, shape, varying = [] } = fragment.get(tensor);
  const [first] = fragment.add({
    op: 'Equal',
    inputs: [fragment.coordinate(op.axes, 1), fragment.constant(int64Constant([0]))],
    results: [{ type: { dtype: 'bool', shape: [1] }, layout: replicated([1]), varying: op.axes }],
  });
  // A scalar has no dimension for the condition's one to broadcast against.
  const condition = shape.length > 0 ? (first as string) : viewAs(fragment, first as string, [], [1]);
  const [result] = fragment.add({
    op: 'Where',
    inputs: [condition, tensor, fragment.constant(zeroConstant(dtype))],
    results: [{ ...(name ? { name } : {}), type: { dtype, shape }, layout: op.to, varying }],
    lowering: 'to-partial',
  });
  return result as string;
}

/** The local shard under another local shape; no data moves. */
export function reshaped(fragment: Fragment, tensor: string, shape: readonly number[]): string {
  const [result] = fragment.add({
    op: 'Reshape',
    attributes: { shape: [...shape] },
    inputs: [tensor],
    results: [asRows(fragment, tensor, shape)],
    lowering: 'slice',
  });
  return result as string;
}

/** The same; nothing is added where the shapes are equal. */
function viewAs(fragment: Fragment, tensor: string, shape: readonly number[], from: readonly number[]): string {
  const isSame = shape.length === from.length && shape.every((size, index) => size === from[index]);
  return isSame ? tensor : reshaped(fragment, tensor, shape);
}

/**
 * A result that holds a tensor's shard, or a part of it, as rows: it varies where the shard differs between ranks, and over
 * `more`.
 */
export function asRows(
  fragment: Fragment,
  tensor: string,
  shape: readonly number[],
  more: readonly SubAxis[] = [],
): FragmentResult {
  const { dtype, layout, varying = [] } = fragment.get(tensor);
  const cuts = layout.dims.flatMap((pieces) => pieces.flatMap(({ axes }) => axes));
  return {
    type: { dtype, shape },
    layout: { ...replicated(shape), partial: layout.partial },
    varying: [...new Set([...cuts, ...varying, ...more])],
  };
}

/** A shard given its place in the whole tensor: the local shape that `layout` states. */
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
