/**
 * @file A dimension in zig-zag order: of 2n pieces rank r has r and 2n − 1 − r, one after the other, so that all ranks have the
 * same work in causal attention. Shards stay consecutive ranges; which positions they hold is data.
 *
 *     8 positions, 2 ranks     0 1 6 7 | 2 3 4 5
 */
import { byteLength } from './dtype.js';
import { type DimensionOrder, elementCount, type TensorOrder, type TensorType } from './graph.js';

/** By place of a dimension in zig-zag order: the position in the model's order; with `back`, the inverse. */
export function orderedPlaces(
  dimension: number,
  { size, minor, pieces }: DimensionOrder,
  back = false,
): readonly number[] {
  const piece = size / pieces;
  const within = Array.from({ length: size }, (_, at) => {
    const [number, offset] = [Math.floor(at / piece), at % piece];
    const original = number % 2 === 0 ? number / 2 : pieces - 1 - (number - 1) / 2;
    return original * piece + offset;
  });
  const places = new Array<number>(dimension);
  for (let at = 0; at < dimension; at++) {
    const [major, digit, rest] = [Math.floor(at / (size * minor)), Math.floor(at / minor) % size, at % minor];
    const found = (major * size + (within[digit] as number)) * minor + rest;
    if (back) places[found] = at;
    else places[at] = found;
  }
  return places;
}

/** The bytes of a whole tensor in zig-zag order, from those in the model's order; with `back`, the inverse. A new copy. */
export function reordered(
  data: Uint8Array,
  { dtype, shape }: TensorType,
  order: TensorOrder,
  back = false,
): Uint8Array {
  let whole = data;
  for (const [axis, own] of order.entries()) {
    if (!own) continue;
    const row = byteLength(dtype, elementCount(shape.slice(axis + 1)));
    const size = shape[axis] ?? 1;
    const result = new Uint8Array(whole.byteLength);
    const places = orderedPlaces(size, own, back);
    for (let first = 0; first < whole.byteLength; first += size * row)
      for (const [at, from] of places.entries())
        result.set(whole.subarray(first + from * row, first + (from + 1) * row), first + at * row);
    whole = result;
  }
  return whole;
}
