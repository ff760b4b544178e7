/**
 * @file Whole tensors and ranks' shards: extracting a shard by pieces, and assembling the whole again.
 *
 * A dimension is a list of pieces, major to minor; each piece is cut into equal shards over its axes. Fused QKV over tp 2,
 * `[(3 | 4:tp)]`, gives rank 0 the rows q0 q1 k0 k1 v0 v1 and rank 1 the rest: seen as the array [3, 4], a rank holds
 * the box [3, 2]. So every shard is a box of the array whose dimensions are all the pieces, and copying one is a walk
 * over its rows. Where the layout pads the tensor, the padded tensor is the array that is sharded, and the tensor a box of it;
 * where it has another order of positions than the model's, the tensor in that order is sharded.
 */
import { byteLength, type DType } from '../ir/dtype.js';
import { elementCount } from '../ir/graph.js';
import { reordered } from '../ir/sequence-order.js';
import { shardCount, shardIndex, subAxesOf } from './mesh.js';
import type { ProgramAxis, ProgramLayout } from './program.js';
import { reduceElementwise } from './reduce.js';
import { allocate } from './typed.js';

/** Shape of one rank's shard. Throws where the layout does not fit the shape or an axis does not divide its piece. */
export function shardShape(shape: readonly number[], layout: ProgramLayout, axes: readonly ProgramAxis[]): number[] {
  if (layout.dims.length !== shape.length) {
    throw new Error(`a layout of ${layout.dims.length} dimensions does not fit the shape [${shape.join(', ')}]`);
  }
  return layout.dims.map((pieces, dimension) => {
    const whole = pieces.reduce((product, piece) => product * piece.size, 1);
    const parts = layout.extents?.[dimension] ?? [{ size: shape[dimension] ?? 1, valid: shape[dimension] ?? 1 }];
    const padded = parts.reduce((product, part) => product * part.size, 1);
    const valid = parts.reduce((product, part) => product * part.valid, 1);
    if (whole !== padded || valid !== shape[dimension] || parts.some((part) => part.valid > part.size)) {
      throw new Error(`pieces of dimension ${dimension} multiply to ${whole}, but its size is ${shape[dimension]}`);
    }
    return pieces.reduce((product, piece) => {
      const local = piece.size / shardCount(axes, piece.axes);
      if (!Number.isInteger(local)) throw new Error(`axes ${piece.axes.join(', ')} do not divide ${piece.size}`);
      return product * local;
    }, 1);
  });
}

/**
 * One rank's shard of a whole tensor. For a layout that is partial with reduction sum, ranks that are not the first on
 * those axes hold zeros; with max or min, all hold the value.
 * `axes` is the mesh that `rank` counts in (the stage's own, where there are stages). Always a fresh copy.
 */
export function cutShard(
  whole: Uint8Array,
  shape: readonly number[],
  dtype: DType,
  layout: ProgramLayout,
  axes: readonly ProgramAxis[],
  rank: number,
): Uint8Array {
  const elements = elementCount(shardShape(shape, layout, axes));
  const summed = layout.partial.filter((partial) => partial.reduction === 'sum').map((partial) => partial.axis);
  if (shardIndex(axes, summed, rank) !== 0) return new Uint8Array(byteLength(dtype, elements));
  const shard = allocate(byteLength(dtype, elements));
  const given = layout.order ? reordered(whole, { dtype, shape }, layout.order) : whole;
  copyBox(boxOf(layout, axes, rank, dtype), padded(given, shape, dtype, layout), shard, 'cut');
  return shard;
}

/**
 * As `cutShard`, for a layout without padding and partial sums, and a tensor whose parts `read` returns (at most `most` bytes
 * at once): the shard in pieces of at most `most` bytes, each valid until the second piece after it is requested.
 */
export function* cutPieces(
  read: (offset: number, length: number) => Uint8Array,
  shape: readonly number[],
  dtype: DType,
  layout: ProgramLayout,
  axes: readonly ProgramAxis[],
  rank: number,
  most: number,
): Generator<Uint8Array> {
  if (needsUnsharded(layout)) throw new Error('a padded, partial or reordered shard cannot be cut in pieces');
  const bytes = Math.min(most, byteLength(dtype, elementCount(shardShape(shape, layout, axes))));
  let [piece, other]: [Uint8Array, Uint8Array | null] = [allocate(bytes), null];
  const box = boxOf(layout, axes, rank, dtype);
  const row = box.lengths.at(-1) as number;
  let filled = 0;
  for (const offset of rowOffsets(box)) {
    for (let done = 0; done < row; ) {
      const length = Math.min(row - done, piece.length - filled);
      piece.set(read(offset + done, length), filled);
      done += length;
      filled += length;
      if (filled < piece.length) continue;
      yield piece;
      [piece, other] = [other ?? allocate(bytes), piece];
      filled = 0;
    }
  }
  if (filled > 0) yield piece.subarray(0, filled);
}

/** Whether a shard is more than a box of the tensor. */
function needsUnsharded({ extents, partial, order }: ProgramLayout): boolean {
  return extents !== undefined || partial.length > 0 || order !== undefined;
}

/**
 * As `cutShard`, for a tensor whose parts `read` returns: reads the shard alone, or the whole of a tensor that the layout pads or
 * reorders.
 */
export function readShard(
  read: (offset: number, length: number) => Uint8Array,
  shape: readonly number[],
  dtype: DType,
  layout: ProgramLayout,
  axes: readonly ProgramAxis[],
  rank: number,
): Uint8Array {
  if (needsUnsharded(layout))
    return cutShard(read(0, byteLength(dtype, elementCount(shape))), shape, dtype, layout, axes, rank);
  const [shard] = cutPieces(read, shape, dtype, layout, axes, rank, Number.POSITIVE_INFINITY);
  return shard ?? new Uint8Array();
}

/** The rank that reads a shard for all ranks that hold the same one: the first of them. */
export function readerOfShard(layout: ProgramLayout, axes: readonly ProgramAxis[], rank: number): number {
  const cut = [...cutAxes(layout), ...layout.partial.map((partial) => partial.axis)];
  const index = shardIndex(axes, cut, rank);
  return holders(layout, axes).find((holder) => shardIndex(axes, cut, holder) === index) ?? rank;
}

/** The tensor with zeros where its layout pads it. */
function padded(whole: Uint8Array, shape: readonly number[], dtype: DType, layout: ProgramLayout): Uint8Array {
  const box = paddingBox(shape, dtype, layout);
  if (!box) return whole;
  const result = new Uint8Array(elementCount(box.sizes));
  copyBox(box, result, whole, 'join');
  return result;
}

/** The tensor's box in its padded form; null where it is not padded. */
function paddingBox(shape: readonly number[], dtype: DType, layout: ProgramLayout): ByteBox | null {
  if (!layout.extents) return null;
  const parts = shape.flatMap((size, dimension) => layout.extents?.[dimension] ?? [{ size, valid: size }]);
  const last = parts.length - 1;
  const width = byteLength(dtype, 2) / 2;
  if (byteLength(dtype, 2) !== 2 * byteLength(dtype, 1)) throw new Error(`packed ${dtype} tensors cannot be padded`);
  const scaled = (key: 'size' | 'valid') => parts.map((part, index) => part[key] * (index === last ? width : 1));
  return { sizes: scaled('size'), starts: parts.map(() => 0), lengths: scaled('valid') };
}

/**
 * The whole tensor assembled from the ranks' shards (`shards[rank]`). The first of several ranks with the same shard is used;
 * partial values are combined in ascending order of their index on the partial axes. Only the ranks that `holders` lists are
 * read; the others may be absent.
 */
export function assembleShards(
  shards: readonly (Uint8Array | undefined)[],
  shape: readonly number[],
  dtype: DType,
  layout: ProgramLayout,
  axes: readonly ProgramAxis[],
): Uint8Array {
  const box = paddingBox(shape, dtype, layout);
  const whole = allocate(box ? elementCount(box.sizes) : byteLength(dtype, elementCount(shape)));
  const bytes = byteLength(dtype, elementCount(shardShape(shape, layout, axes)));
  const boxes = new Map<number, { first: number; parts: Uint8Array[] }>();
  const cut = cutAxes(layout);
  for (const rank of holders(layout, axes)) {
    const shard = shards[rank];
    if (shard?.byteLength !== bytes) {
      throw new Error(`rank ${rank} gave ${shard ? `${shard.byteLength} bytes` : 'no shard'} where ${bytes} belong`);
    }
    const held = boxes.get(shardIndex(axes, cut, rank));
    if (held) held.parts.push(shard);
    else boxes.set(shardIndex(axes, cut, rank), { first: rank, parts: [shard] });
  }
  const reduction = layout.partial[0]?.reduction ?? 'sum';
  for (const { first, parts } of boxes.values()) {
    let shard = parts[0] as Uint8Array;
    if (parts.length > 1) {
      shard = allocate(bytes);
      reduceElementwise(dtype, reduction, parts, shard);
    }
    copyBox(boxOf(layout, axes, first, dtype), whole, shard, 'join');
  }
  const result = box ? allocate(byteLength(dtype, elementCount(shape))) : whole;
  if (box) copyBox(box, whole, result, 'cut');
  return layout.order ? reordered(result, { dtype, shape }, layout.order, true) : result;
}

/** The ranks whose shards make up the whole: those that are first on every axis that is neither sharded over nor partial. */
export function holders(layout: ProgramLayout, axes: readonly ProgramAxis[]): readonly number[] {
  const needed = new Set([...cutAxes(layout), ...layout.partial.map((partial) => partial.axis)]);
  let ranks = [0];
  for (const { name, size, stride } of subAxesOf(axes)) {
    if (!needed.has(name)) continue;
    ranks = ranks.flatMap((rank) => Array.from({ length: size }, (_, index) => rank + index * stride));
  }
  return ranks;
}

function cutAxes(layout: ProgramLayout): readonly string[] {
  return layout.dims.flatMap((pieces) => pieces.flatMap((piece) => piece.axes));
}

/** A box inside an array of `sizes`, in bytes along the last dimension. */
export interface ByteBox {
  readonly sizes: readonly number[];
  readonly starts: readonly number[];
  readonly lengths: readonly number[];
}

/** A rank's box over the pieces. */
function boxOf(layout: ProgramLayout, axes: readonly ProgramAxis[], rank: number, dtype: DType): ByteBox {
  const pieces = layout.dims.flat();
  const sizes = pieces.map((piece) => piece.size);
  const lengths = pieces.map((piece) => piece.size / shardCount(axes, piece.axes));
  const starts = pieces.map((piece, index) => shardIndex(axes, piece.axes, rank) * (lengths[index] as number));
  return byteBox(sizes, starts, lengths, dtype);
}

/** A box of an array; trailing dimensions that are whole are folded into the row, so that rows are long. */
export function byteBox(
  sizes: readonly number[],
  starts: readonly number[],
  lengths: readonly number[],
  dtype: DType,
): ByteBox {
  const lastCut = lengths.findLastIndex((length, index) => length !== sizes[index]);
  const tail = byteLength(dtype, elementCount(sizes.slice(lastCut + 1)));
  if (lastCut < 0) return { sizes: [tail], starts: [0], lengths: [tail] };
  if (byteLength(dtype, 2) !== 2 * byteLength(dtype, 1)) throw new Error(`packed ${dtype} tensors cannot be cut`);
  const scaleLast = (list: readonly number[]) =>
    list.slice(0, lastCut + 1).map((value, index) => (index === lastCut ? value * tail : value));
  return { sizes: scaleLast(sizes), starts: scaleLast(starts), lengths: scaleLast(lengths) };
}

/** Copies a box out of its array into `packed`, which holds nothing else, or back. */
export function copyBox(box: ByteBox, whole: Uint8Array, packed: Uint8Array, direction: 'cut' | 'join'): void {
  const row = box.lengths.at(-1) as number;
  let position = 0;
  for (const offset of rowOffsets(box)) {
    if (direction === 'cut') packed.set(whole.subarray(offset, offset + row), position);
    else whole.set(packed.subarray(position, position + row), offset);
    position += row;
  }
}

/** Where the rows of a box begin in the array, in ascending order. */
function* rowOffsets(box: ByteBox): Generator<number> {
  const last = box.sizes.length - 1;
  const rows = elementCount(box.lengths.slice(0, last));
  if (box.lengths[last] === 0) return;
  const strides = new Array<number>(last + 1).fill(1);
  for (let index = last - 1; index >= 0; index--) {
    strides[index] = (strides[index + 1] as number) * (box.sizes[index + 1] as number);
  }
  const counter = new Array<number>(last).fill(0);
  let offset = box.starts.reduce((sum, start, index) => sum + start * (strides[index] as number), 0);
  for (let index = 0; index < rows; index++) {
    yield offset;
    for (let dimension = last - 1; dimension >= 0; dimension--) {
      const count = (counter[dimension] as number) + 1;
      offset += strides[dimension] as number;
      if (count < (box.lengths[dimension] as number)) {
        counter[dimension] = count;
        break;
      }
      offset -= count * (strides[dimension] as number);
      counter[dimension] = 0;
    }
  }
}
