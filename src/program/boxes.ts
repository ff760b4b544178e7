/**
 * @file Boxes of a whole tensor: the parts of it that form a rank's shard, whatever the layout, and copies of the overlap of two
 * boxes. Boxes are in the tensor's own coordinates, so that any layout can read what another one has sharded.
 */
import { byteLength, type DType } from '../ir/dtype.js';
import { elementCount } from '../ir/graph.js';
import { orderedPlaces } from '../ir/sequence-order.js';
import { shardCount, shardIndex } from './mesh.js';
import type { ProgramAxis, ProgramLayout } from './program.js';
import { byteBox, copyBox } from './shards.js';

/** A part of a tensor: per dimension where it begins, and how much of it there is. */
export interface Box {
  readonly offset: readonly number[];
  readonly size: readonly number[];
}

/** A box of the whole tensor, and where it begins in a rank's shard. */
export interface PlacedBox extends Box {
  readonly inShard: readonly number[];
}

/**
 * The boxes that a rank's shard consists of, in the order of its elements: one, unless a dimension is sharded inside its pieces
 * (a rank has three of fused queries, keys and values) or has another order than the model's. None of them contains padding.
 * `axes` is the mesh that `rank` counts in.
 */
export function boxesOf(
  shape: readonly number[],
  layout: ProgramLayout,
  axes: readonly ProgramAxis[],
  rank: number,
): readonly PlacedBox[] {
  const runs = shape.map((size, dimension) => runsOf(size, dimension, layout, axes, rank));
  let boxes: readonly PlacedBox[] = [{ offset: [], size: [], inShard: [] }];
  for (const own of runs)
    boxes = boxes.flatMap(({ offset, size, inShard }) =>
      own.map((run) => ({
        offset: [...offset, run.whole],
        size: [...size, run.length],
        inShard: [...inShard, run.local],
      })),
    );
  return boxes.filter(({ size }) => elementCount(size) > 0);
}

/** Neighbours along a dimension: where they begin in the shard and in the whole tensor. */
interface BoxRun {
  readonly local: number;
  readonly whole: number;
  readonly length: number;
}

function runsOf(
  size: number,
  dimension: number,
  layout: ProgramLayout,
  axes: readonly ProgramAxis[],
  rank: number,
): readonly BoxRun[] {
  const pieces = layout.dims[dimension] ?? [];
  const cuts = (pieces.length > 0 ? pieces : [{ size, axes: [] }]).map((piece) => {
    const length = piece.size / shardCount(axes, piece.axes);
    return { size: piece.size, start: shardIndex(axes, piece.axes, rank) * length, length };
  });
  const [first, ...inner] = cuts;
  const parts = layout.extents?.[dimension];
  const order = layout.order?.[dimension];
  const places = order ? orderedPlaces(size, order) : null;
  if (first && !parts && !places && inner.every((cut) => cut.length === cut.size)) {
    const below = elementCount(inner.map((cut) => cut.size));
    return [{ local: 0, whole: first.start * below, length: first.length * below }];
  }
  const runs: { local: number; whole: number; length: number }[] = [];
  const length = elementCount(cuts.map((cut) => cut.length));
  for (let local = 0; local < length; local++) {
    const padded = positionOf(local, cuts);
    const ordered = parts ? validPosition(padded, parts) : padded;
    if (ordered === null) continue;
    const whole = places?.[ordered] ?? ordered;
    const last = runs.at(-1);
    if (last && last.local + last.length === local && last.whole + last.length === whole) last.length++;
    else runs.push({ local, whole, length: 1 });
  }
  return runs;
}

/** The position in the tensor of the element `local` of a shard along a dimension. */
function positionOf(
  local: number,
  cuts: readonly { readonly size: number; readonly start: number; readonly length: number }[],
): number {
  let [rest, position, stride] = [local, 0, 1];
  for (const { size, start, length } of cuts.toReversed()) {
    position += (start + (rest % length)) * stride;
    rest = Math.floor(rest / length);
    stride *= size;
  }
  return position;
}

/** Where an element of the padded dimension is in the tensor; null for padding. */
function validPosition(
  padded: number,
  parts: readonly { readonly size: number; readonly valid: number }[],
): number | null {
  let [rest, position, stride] = [padded, 0, 1];
  for (const { size, valid } of parts.toReversed()) {
    const digit = rest % size;
    if (digit >= valid) return null;
    position += digit * stride;
    rest = Math.floor(rest / size);
    stride *= valid;
  }
  return position;
}

/** The overlap of two boxes, or null if none. */
export function sharedBox(one: Box, other: Box): Box | null {
  const offset = one.offset.map((from, axis) => Math.max(from, other.offset[axis] ?? 0));
  const size = offset.map((from, axis) => Math.min(endOf(one, axis), endOf(other, axis)) - from);
  return size.every((length) => length > 0) ? { offset, size } : null;
}

function endOf({ offset, size }: Box, axis: number): number {
  return (offset[axis] ?? 0) + (size[axis] ?? 0);
}

/** The bytes of the box at `start` of `size` in a row-major array of `shape`; the array itself where the box is all of it. */
export function cutBox(
  array: Uint8Array,
  shape: readonly number[],
  start: readonly number[],
  size: readonly number[],
  dtype: DType,
): Uint8Array {
  if (elementCount(size) === elementCount(shape)) return array;
  const bytes = new Uint8Array(byteLength(dtype, elementCount(size)));
  copyBox(byteBox(shape, start, size, dtype), array, bytes, 'cut');
  return bytes;
}

/** Puts such bytes back to their place. */
export function placeBox(
  bytes: Uint8Array,
  array: Uint8Array,
  shape: readonly number[],
  start: readonly number[],
  size: readonly number[],
  dtype: DType,
): void {
  copyBox(byteBox(shape, start, size, dtype), array, bytes, 'join');
}
