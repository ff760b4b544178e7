/**
 * @file A resharding step in flat terms: the form of a rank's block for the collective that executes the step.
 *
 * A block is the whole digits of all dimensions, major to minor (digits.ts). A step works at one place between them (an
 * all-to-all at two): the block is `outer` rows of `inner` elements there. The terms are those of `Collective`
 * in src/partition/sharded-graph.ts.
 *
 * Gathering dp from dp · 3 · tp · 2 (one dimension of 24 on dp 2, tp 2): the block is 3 · 2 with nothing before dp, so
 * outer 1, inner 6; the result is 2 · 3 · 2, whose tp is still between 6 and 2.
 */
import type { Reduction } from '../ir/factor-rule.js';
import { type Digit, digitsOf, stridesOf } from './digits.js';
import { type Extent, extentsKey, type Layout, layoutKey } from './layout.js';
import { axesSize, type Mesh, type SubAxis, subAxisSize } from './mesh.js';
import type { ReshardOp } from './reshard-op.js';

/** The block before the place is `outer` rows of `inner` elements. */
export interface BlockPlace {
  readonly outer: number;
  readonly inner: number;
}

/** `receivedElements`: elements that the busiest rank receives, with ring algorithms. */
export type ReshardDetail = { readonly receivedElements: number } & (
  | {
      /** The block is [outer, count, inner]; a rank keeps the slice with its index on `axes`. */
      readonly kind: 'slice';
      readonly outer: number;
      readonly count: number;
      readonly inner: number;
      readonly axes: readonly SubAxis[];
    }
  /** `count` blocks of [outer, inner] become [outer, count, inner]. */
  | { readonly kind: 'all-gather'; readonly outer: number; readonly inner: number; readonly count: number }
  /** The block is [outer, count, inner]; a rank keeps the combined slice with its index. */
  | {
      readonly kind: 'reduce-scatter';
      readonly reduction: Reduction;
      readonly outer: number;
      readonly inner: number;
      readonly count: number;
    }
  | { readonly kind: 'all-reduce'; readonly reduction: Reduction }
  /** The block is [split.outer, count, split.inner]; `count` slices, each seen as [concat.outer, concat.inner], become
   * [concat.outer, count, concat.inner]. */
  | { readonly kind: 'all-to-all'; readonly split: BlockPlace; readonly concat: BlockPlace; readonly count: number }
  /** Member k of the group sends its block to member to[k]. */
  | { readonly kind: 'permute'; readonly to: readonly number[] }
  /** Ranks whose index on `axes` is not 0 hold zeros from now on. */
  | { readonly kind: 'to-partial'; readonly axes: readonly SubAxis[] }
  /** The dimensions whose padding changes, none of them sharded: their parts before and after. */
  | { readonly kind: 'repad'; readonly dimensions: readonly Repadded[] }
);

/** A dimension that is padded anew: its parts before and after; null where it is not padded. */
export interface Repadded {
  readonly dimension: number;
  readonly from: readonly Extent[] | null;
  readonly to: readonly Extent[] | null;
}

/** The detail of a step on a tensor of (whole) `shape`. The step must be one that `reshardOps` could have made. */
export function reshardDetail(step: ReshardOp, shape: readonly number[], mesh: Mesh): ReshardDetail {
  if (shape.length !== step.from.dims.length)
    throw new Error(`reshard op of another tensor than [${shape.join(', ')}]`);
  return DETAILS[step.kind](step, mesh);
}

const DETAILS: Readonly<Record<ReshardOp['kind'], (step: ReshardOp, mesh: Mesh) => ReshardDetail>> = {
  slice: (step, mesh) => {
    const { outer, inner } = placeOf(step.axes, step.to, mesh);
    return { kind: 'slice', outer, count: axesSize(mesh, step.axes), inner, axes: step.axes, receivedElements: 0 };
  },
  'all-gather': (step, mesh) => {
    const { outer, inner } = placeOf(step.axes, step.from, mesh);
    const count = axesSize(mesh, step.axes);
    return { kind: 'all-gather', outer, inner, count, receivedElements: (count - 1) * outer * inner };
  },
  'reduce-scatter': (step, mesh) => {
    const { outer, inner } = placeOf(step.axes, step.to, mesh);
    const count = axesSize(mesh, step.axes);
    const reduction = reductionOf(step);
    return { kind: 'reduce-scatter', reduction, outer, inner, count, receivedElements: (count - 1) * outer * inner };
  },
  'all-reduce': (step, mesh) => {
    const count = axesSize(mesh, step.axes);
    const receivedElements = Math.ceil((2 * (count - 1) * shardElements(step.from, mesh)) / count);
    return { kind: 'all-reduce', reduction: reductionOf(step), receivedElements };
  },
  'all-to-all': (step, mesh) => {
    const count = axesSize(mesh, step.axes);
    const before = placeOf(step.axes, step.from, mesh);
    const after = placeOf(step.axes, step.to, mesh);
    // The place that comes later in the block has the other's `count` before it, which the slice lacks.
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
  permute: (step, mesh) => {
    const to = destinations(step, mesh);
    const moves = to.some((member, index) => member !== index);
    return { kind: 'permute', to, receivedElements: moves ? shardElements(step.from, mesh) : 0 };
  },
  'to-partial': (step) => ({ kind: 'to-partial', axes: step.axes, receivedElements: 0 }),
  repad: (step) => {
    const dimensions = step.from.dims.flatMap((_, dimension): readonly Repadded[] => {
      const [from, to] = [step.from.extents?.[dimension] ?? null, step.to.extents?.[dimension] ?? null];
      return extentsKey(from) === extentsKey(to) ? [] : [{ dimension, from, to }];
    });
    return { kind: 'repad', dimensions, receivedElements: 0 };
  },
};

/** A place with its position in the whole tensor: its dimension, and the stride of the last of its digits. */
interface Located extends BlockPlace {
  readonly dimension: number;
  readonly stride: number;
}

/** The place of the digits of `axes` in a rank's block, if they were whole: elements before (outer) and behind (inner). */
function placeOf(axes: readonly SubAxis[], layout: Layout, mesh: Mesh): Located {
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

function reductionOf(step: ReshardOp): Reduction {
  const entry = step.from.partial.find(({ axis }) => step.axes.includes(axis));
  if (!entry) throw new Error(`nothing is partial over ${step.axes.join(',')}`);
  return entry.reduction;
}

/**
 * The receiver of the block of each member of a permute's group. Ranks that hold the same block divide the ranks that want
 * it; one that already holds what it wants keeps it.
 */
function destinations(step: ReshardOp, mesh: Mesh): readonly number[] {
  const held = blocksOf(step.axes, step.from, mesh);
  const wanted = blocksOf(step.axes, step.to, mesh);
  const to = held.map((block, member) => (block === wanted[member] ? member : -1));
  const open = new Map<number, number[]>();
  for (const [member, block] of wanted.entries()) {
    if (held[member] === block) continue;
    const waiting = open.get(block);
    if (waiting) waiting.push(member);
    else open.set(block, [member]);
  }
  for (const [member, block] of held.entries()) {
    if (to[member] !== -1) continue;
    const target = open.get(block)?.shift();
    if (target === undefined) throw new Error('a permute must not change the number of ranks that hold a shard');
    to[member] = target;
  }
  return to;
}

/** By member of a group on `axes`: the block that it holds, as far as the axes choose it. */
function blocksOf(axes: readonly SubAxis[], layout: Layout, mesh: Mesh): readonly number[] {
  const digits = layout.dims.flatMap((pieces) => digitsOf(pieces, mesh));
  const strides = stridesOf(digits);
  return axes.reduce<readonly number[]>(
    (blocks, axis) => {
      const stride = strides[digits.findIndex((digit) => digit.axis === axis)] ?? 0;
      const size = subAxisSize(mesh, axis);
      return blocks.flatMap((block) => Array.from({ length: size }, (_, coordinate) => block + coordinate * stride));
    },
    [0],
  );
}
