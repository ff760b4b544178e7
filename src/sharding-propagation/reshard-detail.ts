/**
 * @file A reshard op in flat terms: the form of a rank's shard for the collective that executes the op.
 *
 * A shard is the whole digits of all dimensions, major to minor (digits.ts). An op works at one place between them (an
 * all-to-all at two): the shard is `outer` rows of `inner` elements there. The terms are those of `Collective`
 * in src/partition/sharded-graph.ts.
 *
 * Gathering dp from dp · 3 · tp · 2 (one dimension of 24 on dp 2, tp 2): the shard is 3 · 2 with nothing before dp, so
 * outer 1, inner 6; the result is 2 · 3 · 2, whose tp is still between 6 and 2.
 */
import type { Reduction } from '../ir/factor-rule.js';
import { appendTo } from '../ir/group-by.js';
import { type Digit, digitsOf, stridesOf } from './digits.js';
import { type Extent, extentsKey, type Layout, layoutKey } from './layout.js';
import { axesSize, type Mesh, type SubAxis, subAxisSize } from './mesh.js';
import type { ReshardOp } from './reshard-op.js';

/** The shard before the place is `outer` rows of `inner` elements. */
export interface ShardPlace {
  readonly outer: number;
  readonly inner: number;
}

/** `receivedElements`: elements that the busiest rank receives, with ring algorithms. */
export type ReshardDetail = { readonly receivedElements: number } & (
  | {
      /** The shard is [outer, count, inner]; a rank keeps the slice with its index on `axes`. */
      readonly kind: 'slice';
      readonly outer: number;
      readonly count: number;
      readonly inner: number;
      readonly axes: readonly SubAxis[];
    }
  /** `count` shards of [outer, inner] become [outer, count, inner]. */
  | { readonly kind: 'all-gather'; readonly outer: number; readonly inner: number; readonly count: number }
  /** The shard is [outer, count, inner]; a rank keeps the combined slice with its index. */
  | {
      readonly kind: 'reduce-scatter';
      readonly reduction: Reduction;
      readonly outer: number;
      readonly inner: number;
      readonly count: number;
    }
  | { readonly kind: 'all-reduce'; readonly reduction: Reduction }
  /** The shard is [split.outer, count, split.inner]; `count` slices, each seen as [concat.outer, concat.inner], become
   * [concat.outer, count, concat.inner]. */
  | { readonly kind: 'all-to-all'; readonly split: ShardPlace; readonly concat: ShardPlace; readonly count: number }
  /** Member k of the group sends its shard to member to[k]. */
  | { readonly kind: 'permute'; readonly to: readonly number[] }
  /** Ranks whose index on `axes` is not 0 hold zeros from now on. */
  | { readonly kind: 'to-partial'; readonly axes: readonly SubAxis[] }
  /** The dimensions whose padding changes, none of them sharded: their parts before and after. */
  | { readonly kind: 'repad'; readonly dimensions: readonly RepaddedDimension[] }
);

/** A dimension that is padded anew: its parts before and after; null where it is not padded. */
export interface RepaddedDimension {
  readonly dimension: number;
  readonly from: readonly Extent[] | null;
  readonly to: readonly Extent[] | null;
}

/** The detail of an op on a tensor of (whole) `shape`. The op must be one that a resharder could have made. */
export function reshardDetail(op: ReshardOp, shape: readonly number[], mesh: Mesh): ReshardDetail {
  if (shape.length !== op.from.dims.length) throw new Error(`reshard op of another tensor than [${shape.join(', ')}]`);
  return DETAILS[op.kind](op, mesh);
}

const DETAILS: Readonly<Record<ReshardOp['kind'], (op: ReshardOp, mesh: Mesh) => ReshardDetail>> = {
  slice: (op, mesh) => {
    const { outer, inner } = placeOf(op.axes, op.to, mesh);
    return { kind: 'slice', outer, count: axesSize(mesh, op.axes), inner, axes: op.axes, receivedElements: 0 };
  },
  'all-gather': (op, mesh) => {
    const { outer, inner } = placeOf(op.axes, op.from, mesh);
    const count = axesSize(mesh, op.axes);
    return { kind: 'all-gather', outer, inner, count, receivedElements: (count - 1) * outer * inner };
  },
  'reduce-scatter': (op, mesh) => {
    const { outer, inner } = placeOf(op.axes, op.to, mesh);
    const count = axesSize(mesh, op.axes);
    const reduction = reductionOf(op);
    return { kind: 'reduce-scatter', reduction, outer, inner, count, receivedElements: (count - 1) * outer * inner };
  },
  'all-reduce': (op, mesh) => {
    const count = axesSize(mesh, op.axes);
    const receivedElements = Math.ceil((2 * (count - 1) * shardElements(op.from, mesh)) / count);
    return { kind: 'all-reduce', reduction: reductionOf(op), receivedElements };
  },
  'all-to-all': (op, mesh) => {
    const count = axesSize(mesh, op.axes);
    const before = placeOf(op.axes, op.from, mesh);
    const after = placeOf(op.axes, op.to, mesh);
    // The place that comes later in the shard has the other's `count` before it, which the slice lacks.
    const gathersFirst =
      before.dimension === after.dimension ? before.stride > after.stride : before.dimension < after.dimension;
    const split = gathersFirst
      ? { outer: after.outer / count, inner: after.inner }
      : { outer: after.outer, inner: after.inner / count };
    const concat = gathersFirst
      ? { outer: before.outer, inner: before.inner / count }
      : { outer: before.outer / count, inner: before.inner };
    return { kind: 'all-to-all', split, concat, count, receivedElements: (count - 1) * concat.outer * concat.inner };
  },
  permute: (op, mesh) => {
    const to = destinations(op, mesh);
    const moves = to.some((member, index) => member !== index);
    return { kind: 'permute', to, receivedElements: moves ? shardElements(op.from, mesh) : 0 };
  },
  'to-partial': (op) => ({ kind: 'to-partial', axes: op.axes, receivedElements: 0 }),
  repad: (op) => {
    const dimensions = op.from.dims.flatMap((_, dimension): readonly RepaddedDimension[] => {
      const [from, to] = [op.from.extents?.[dimension] ?? null, op.to.extents?.[dimension] ?? null];
      return extentsKey(from) === extentsKey(to) ? [] : [{ dimension, from, to }];
    });
    return { kind: 'repad', dimensions, receivedElements: 0 };
  },
};

/** A place with its position in the whole tensor: its dimension, and the stride of the last of its digits. */
interface LocatedPlace extends ShardPlace {
  readonly dimension: number;
  readonly stride: number;
}

/** The place of the digits of `axes` in a rank's shard, if they were whole: elements before (outer) and behind (inner). */
function placeOf(axes: readonly SubAxis[], layout: Layout, mesh: Mesh): LocatedPlace {
  const dims = layout.dims.map((pieces) => digitsOf(pieces, mesh));
  const dimension = dims.findIndex((digits) => digits.some((digit) => digit.axis === axes[0]));
  const digits = dims[dimension] ?? [];
  const positions = axes.map((axis) => digits.findIndex((digit) => digit.axis === axis));
  const first = positions[0] ?? -1;
  const last = positions.at(-1) ?? -1;
  const ordered = positions.every((position, index) => position > (positions[index - 1] ?? -1));
  if (!ordered || digits.slice(first, last).some((digit) => digit.axis === null)) {
    throw new Error(`axes ${axes.join(',')} do not cut one place of ${layoutKey(layout)} in this order`);
  }
  return {
    outer: unshardedSize([...dims.slice(0, dimension).flat(), ...digits.slice(0, first)]),
    inner: unshardedSize([...digits.slice(last), ...dims.slice(dimension + 1).flat()]),
    dimension,
    stride: stridesOf(digits)[last] ?? 1,
  };
}

function unshardedSize(digits: readonly Digit[]): number {
  return digits.reduce((product, digit) => (digit.axis === null ? product * digit.size : product), 1);
}

function shardElements(layout: Layout, mesh: Mesh): number {
  return unshardedSize(layout.dims.flatMap((pieces) => digitsOf(pieces, mesh)));
}

function reductionOf(op: ReshardOp): Reduction {
  const entry = op.from.partial.find(({ axis }) => op.axes.includes(axis));
  if (!entry) throw new Error(`nothing is partial over ${op.axes.join(',')}`);
  return entry.reduction;
}

/**
 * The receiver of the shard of each member of a permute's group. Ranks that hold the same shard divide the ranks that want
 * it; one that already holds what it wants keeps it.
 */
function destinations(op: ReshardOp, mesh: Mesh): readonly number[] {
  const held = shardsOf(op.axes, op.from, mesh);
  const wanted = shardsOf(op.axes, op.to, mesh);
  const to = held.map((shard, member) => (shard === wanted[member] ? member : -1));
  const open = new Map<number, number[]>();
  for (const [member, shard] of wanted.entries()) {
    if (held[member] === shard) continue;
    appendTo(open, shard, member);
  }
  for (const [member, shard] of held.entries()) {
    if (to[member] !== -1) continue;
    const target = open.get(shard)?.shift();
    if (target === undefined) throw new Error('a permute must not change the number of ranks that hold a shard');
    to[member] = target;
  }
  return to;
}

/** By member of a group on `axes`: the shard that it holds, as far as the axes choose it. */
function shardsOf(axes: readonly SubAxis[], layout: Layout, mesh: Mesh): readonly number[] {
  const digits = layout.dims.flatMap((pieces) => digitsOf(pieces, mesh));
  const strides = stridesOf(digits);
  return axes.reduce<readonly number[]>(
    (shards, axis) => {
      const stride = strides[digits.findIndex((digit) => digit.axis === axis)] ?? 0;
      const size = subAxisSize(mesh, axis);
      return shards.flatMap((shard) => Array.from({ length: size }, (_, coordinate) => shard + coordinate * stride));
    },
    [0],
  );
}
