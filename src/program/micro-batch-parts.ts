/**
 * @file A whole tensor and its parts in micro-batches: the blocks of a mesh that has one axis, laid out in time.
 */
import { assembleBlocks, cutBlock } from './blocks.js';
import type { ProgramAxis, ProgramLayout, ProgramValue } from './program.js';

/** The bytes of each micro-batch's part, in order; the whole where there is one. */
export function partsOf(value: ProgramValue, whole: Uint8Array): readonly Uint8Array[] {
  const { microBatches, shape, dtype } = value;
  if (!microBatches) return [whole];
  const { layout, axes } = inTime(value);
  return Array.from({ length: microBatches.count }, (_, part) => cutBlock(whole, shape, dtype, layout, axes, part));
}

/** The whole of which these are the parts. */
export function wholeOf(value: ProgramValue, parts: readonly Uint8Array[]): Uint8Array {
  const { layout, axes } = inTime(value);
  return value.microBatches
    ? assembleBlocks(parts, value.shape, value.dtype, layout, axes)
    : (parts[0] ?? new Uint8Array(0));
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
