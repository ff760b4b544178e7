/**
 * @file A whole tensor and its parts in micro-batches: the shards over a mesh of one axis, laid out in time.
 */
import { byteLength } from '../ir/dtype.js';
import { elementCount } from '../ir/graph.js';
import type { ProgramAxis, ProgramLayout, ProgramValue } from './program.js';
import { assembleShards, cutShard } from './shards.js';
import { allocate } from './typed.js';

/** The bytes of each micro-batch's part, in order; the whole where there is one. */
export function partsOf(value: ProgramValue, whole: Uint8Array): readonly Uint8Array[] {
  const { microBatches, shape, dtype } = value;
  if (!microBatches) return [whole];
  const { layout, axes } = inTime(value);
  return Array.from({ length: microBatches.count }, (_, part) => cutShard(whole, shape, dtype, layout, axes, part));
}

/** The whole of which these are the parts. */
export function joinedParts(value: ProgramValue, parts: readonly Uint8Array[]): Uint8Array {
  const { layout, axes } = inTime(value);
  return value.microBatches
    ? assembleShards(parts, value.shape, value.dtype, layout, axes)
    : (parts[0] ?? new Uint8Array(0));
}

/**
 * Reads bytes of one part, given a reader of the whole: bytes that are contiguous in a part need not be contiguous in the whole.
 */
export function readerOfPart(
  value: ProgramValue,
  part: number,
  read: (offset: number, length: number) => Uint8Array,
): (offset: number, length: number) => Uint8Array {
  const { microBatches, shape, dtype } = value;
  if (!microBatches) return read;
  const { axis, count } = microBatches;
  const row = byteLength(dtype, elementCount(shape.slice(axis)));
  const own = row / count;
  return (offset, length) => {
    const at = (position: number) => Math.floor(position / own) * row + part * own + (position % own);
    if ((offset % own) + length <= own) return read(at(offset), length);
    const result = allocate(length);
    for (let done = 0; done < length; ) {
      const some = Math.min(length - done, own - ((offset + done) % own));
      result.set(read(at(offset + done), some), done);
      done += some;
    }
    return result;
  };
}

/** The shape of one part. */
export function partShape({ shape, microBatches }: Pick<ProgramValue, 'shape' | 'microBatches'>): readonly number[] {
  if (!microBatches) return shape;
  return shape.map((size, axis) => (axis === microBatches.axis ? size / microBatches.count : size));
}

const AXIS = 'mb';

function inTime({ shape, microBatches }: ProgramValue): {
  readonly layout: ProgramLayout;
  readonly axes: readonly ProgramAxis[];
} {
  const size = microBatches?.count ?? 1;
  const dims = shape.map((length, axis) => [{ size: length, axes: axis === microBatches?.axis ? [AXIS] : [] }]);
  return { layout: { dims, partial: [] }, axes: [{ axis: AXIS, size, subAxes: [{ name: AXIS, size }] }] };
}
