/**
 * @file A dimension as a mixed-radix number. Each position along the dimension is written in digits, major to minor;
 * a digit is either chosen by the rank (it belongs to a sub-axis) or runs inside the shard (it is whole).
 *
 *     (6:dp | 4:tp)  on dp 2, tp 2   is   dp · 3 · tp · 2
 *
 * Two layouts cut a dimension into the same shards exactly when these digits are the same once neighbouring whole
 * digits are multiplied together, so these digits are the "merged form", on which resharding works.
 */
import { type Mesh, type SubAxis, subAxisSize } from './mesh.js';

/** A factor of a dimension's size with the sub-axes that cut it. */
export interface Piece {
  /** Whole (unsharded) size of the piece. The sizes of `axes` multiply to a divisor of it. */
  readonly size: number;
  /** Major to minor. */
  readonly axes: readonly SubAxis[];
}

export interface Digit {
  /** The sub-axis that chooses this digit; null for a digit inside the shard. */
  readonly axis: SubAxis | null;
  readonly size: number;
}

/** The digits of one dimension, major to minor, neighbouring whole digits joined and those of size 1 left out. */
export function digitsOf(pieces: readonly Piece[], mesh: Mesh): readonly Digit[] {
  const digits: Digit[] = [];
  for (const piece of pieces) {
    let rest = piece.size;
    for (const axis of piece.axes) {
      const size = subAxisSize(mesh, axis);
      if (rest % size !== 0) throw new Error(`axis ${axis} of size ${size} does not divide a piece of ${piece.size}`);
      digits.push({ axis, size });
      rest /= size;
    }
    digits.push({ axis: null, size: rest });
  }
  return joinWhole(digits);
}

/** Joins neighbouring whole digits and drops those of size 1. */
export function joinWhole(digits: readonly Digit[]): readonly Digit[] {
  return joinDigits(digits, ({ axis }) => axis === null);
}

/** The same for digits of another form. */
export function joinDigits<D extends { readonly size: number }>(
  digits: readonly D[],
  isWhole: (digit: D) => boolean,
): readonly D[] {
  const result: D[] = [];
  for (const digit of digits) {
    const last = result.at(-1);
    if (!isWhole(digit)) result.push(digit);
    else if (last && isWhole(last)) result[result.length - 1] = { ...digit, size: last.size * digit.size };
    else if (digit.size !== 1) result.push(digit);
  }
  return result;
}

/** The pieces of a dimension in merged form: a run of axes with the whole digit behind it is one piece. */
export function piecesOf(digits: readonly Digit[]): readonly Piece[] {
  const pieces: Piece[] = [];
  let axes: SubAxis[] = [];
  let size = 1;
  for (const digit of joinWhole(digits)) {
    size *= digit.size;
    if (digit.axis !== null) axes.push(digit.axis);
    else {
      pieces.push({ size, axes });
      axes = [];
      size = 1;
    }
  }
  if (axes.length > 0 || pieces.length === 0) pieces.push({ size, axes });
  return pieces;
}

/** Per digit its weight: the number of positions between two neighbouring values of it. */
export function stridesOf(digits: readonly { readonly size: number }[]): readonly number[] {
  const strides = new Array<number>(digits.length);
  let stride = 1;
  for (let index = digits.length - 1; index >= 0; index--) {
    strides[index] = stride;
    stride *= digits[index]?.size ?? 1;
  }
  return strides;
}
