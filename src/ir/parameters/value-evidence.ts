/**
 * @file Evidence in the values of a constant for its origin. Training starts from random numbers, or from one value throughout;
 * masks and tables that a formula makes are recognised:
 *
 *     a mask             holds infinities, or has two values only
 *     sines, cosines     x[p + 1] + x[p − 1] = c · x[p] along one dimension; or the squares of every row are half as many as
 *                        its elements, as those of sin² + cos² = 1, where rows are a grid of positions
 *     a ramp             x[p + 1] − 2 x[p] + x[p − 1] = 0, but where it turns (distances)
 */
import { byteLength, type DType } from '../dtype.js';
import { elementCount, type TensorType, type WeightSource } from '../graph.js';
import { numbersOf } from '../ops/constants.js';
import { WeightReader } from './weight-reader.js';

export interface ValueEvidence {
  /** Whether all elements are one value, as at the start of training. */
  readonly uniform: boolean;
  /** Why these are not values of a parameter; null where they may be. */
  readonly made: string | null;
}

/** Types whose numbers can be read. */
const READ: ReadonlySet<DType> = new Set(['float32', 'float64', 'float16', 'bfloat16']);
/** Elements that are looked at, from the first on: a table of a hundred positions shows its formula. */
const LOOKED_AT = 1 << 18;
/** Larger numbers are not a parameter's: the largest numbers of a type stand for infinity in masks. */
const HUGE = 1e30;
/** The fewest positions along a dimension that distinguish a formula from chance. */
const FEWEST = 6;
/** Lines along a dimension that are looked at. */
const LINES = 64;

/** Looks at the first elements of a floating-point tensor; null where its values are absent. */
export function valueEvidence({ dtype, shape }: TensorType, source: WeightSource): ValueEvidence | null {
  if (!READ.has(dtype)) return null;
  const [rows = 1, ...inner] = shape;
  const row = Math.max(1, elementCount(inner));
  const kept = shape.length === 0 ? [] : [Math.min(rows, Math.max(1, Math.floor(LOOKED_AT / row))), ...inner];
  const reader = new WeightReader();
  try {
    const data = reader.read(source, 0, byteLength(dtype, elementCount(kept)));
    if (!data) return null;
    const values = numbersOf({ dtype, shape: kept, data: Uint8Array.from(data) });
    return { uniform: values.every((value) => value === values[0]), made: madeBy(values, kept) };
  } finally {
    reader.close();
  }
}

function madeBy(values: readonly number[], shape: readonly number[]): string | null {
  if (values.some((value) => !Number.isFinite(value) || Math.abs(value) > HUGE)) return 'a mask: it holds infinities';
  if (values.length > 2 && new Set(values).size === 2) return 'a mask: it has two values only';
  if (shape.filter((size) => size > 1).length < 2) return null;
  if (arePairs(values, shape.at(-1) ?? 1)) return 'a table of sines and cosines';
  for (const [axis, size] of shape.entries()) {
    if (size < FEWEST) continue;
    const lines = linesAlong(values, shape, axis);
    if (lines.every(isStill)) continue;
    if (lines.every(isWave)) return 'a table of sines and cosines';
    if (lines.every(isRamp)) return 'a table of distances';
  }
  return null;
}

/** Some lines along a dimension. */
function linesAlong(values: readonly number[], shape: readonly number[], axis: number): readonly (readonly number[])[] {
  const size = shape[axis] ?? 1;
  const stride = elementCount(shape.slice(axis + 1));
  const count = values.length / size;
  const step = Math.max(1, Math.floor(count / LINES));
  return Array.from({ length: Math.min(LINES, count) }, (_, index) => {
    const line = index * step;
    const start = Math.floor(line / stride) * stride * size + (line % stride);
    return Array.from({ length: size }, (_, place) => values[start + place * stride] ?? 0);
  });
}

function isStill(line: readonly number[]): boolean {
  return line.every((value) => value === line[0]);
}

/** Whether every row is of pairs of a sine and a cosine; a row of zeros is that of a class token. */
function arePairs(values: readonly number[], width: number): boolean {
  if (width < FEWEST || width % 2 !== 0 || values.some((value) => Math.abs(value) > 1)) return false;
  const rows = Array.from({ length: Math.floor(values.length / width) }, (_, row) =>
    values.slice(row * width, (row + 1) * width).reduce((sum, value) => sum + value * value, 0),
  );
  const isPaired = (sum: number) => Math.abs(2 * sum - width) <= ROUNDING * width;
  return rows.some(isPaired) && rows.every((sum) => sum === 0 || isPaired(sum));
}

/** Tolerance for rounding to float32 in a difference that is zero, relative to the largest value. */
const ROUNDING = 1e-3;

function isWave(line: readonly number[]): boolean {
  const inner = line.slice(1, -1);
  const around = inner.map((_, index) => (line[index] ?? 0) + (line[index + 2] ?? 0));
  const square = inner.reduce((sum, value) => sum + value * value, 0);
  const largest = largestOf(line);
  if (square === 0) return largest === 0;
  const factor = inner.reduce((sum, value, index) => sum + value * (around[index] ?? 0), 0) / square;
  return (
    Math.abs(factor) <= 2.001 &&
    inner.every((value, index) => Math.abs((around[index] ?? 0) - factor * value) <= ROUNDING * largest)
  );
}

/** Straight but for at most one turn, which two positions show. */
function isRamp(line: readonly number[]): boolean {
  const largest = largestOf(line);
  const turns = line.filter((value, index) => {
    const [before, after] = [line[index - 1], line[index + 1]];
    return before !== undefined && after !== undefined && Math.abs(before - 2 * value + after) > ROUNDING * largest;
  });
  return turns.length <= 1;
}

function largestOf(line: readonly number[]): number {
  return line.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
}
