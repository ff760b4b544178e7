/**
 * @file Comparing two tensors element by element: worst absolute and relative error, and where.
 */
import { byteLength, type DType, isFloating } from '../../ir/dtype.js';
import type { ConstantTensor } from '../../ir/graph.js';
import { numberReader, unravelIndex } from './numbers.js';

/** |actual − expected| ≤ absolute + relative · |expected|. */
export interface Tolerance {
  readonly relative: number;
  readonly absolute: number;
}

export interface Comparison {
  readonly name: string;
  readonly dtype: ConstantTensor['dtype'];
  readonly shape: readonly number[];
  readonly worstAbsolute: number;
  /** Relative to the expected value; elements whose expected value is 0 count absolutely only. */
  readonly worstRelative: number;
  /** Largest absolute value that is expected; infinities and NaN aside. */
  readonly largest: number;
  readonly tolerance: Tolerance;
  /**
   * Which part of the tolerance every element is within: `exact` where all are equal, `relative` or `absolute` where that part
   * alone suffices, `both` where it takes their sum; null where the comparison failed.
   */
  readonly passedBy: PassedBy | null;
  /** Position of the element that is worst in terms of the tolerance. */
  readonly where: readonly number[];
  /** Elements outside of the tolerance, ties not counted. */
  readonly outside: number;
  /** Integer results that differ because equal values were ordered otherwise. */
  readonly ties: number;
  readonly passed: boolean;
}

export type PassedBy = 'exact' | 'relative' | 'absolute' | 'both';

/** Elements that are allowed to differ: index → whether it is a tie. */
export type TieTest = (index: number) => boolean;

/**
 * Tolerance where the user gives none: 5e-2 for results computed in bf16 or 8-bit floats, whose rounding is coarser than that of
 * fp16 (2e-2); 1e-3 and 1e-4 in other floats; exact for integers. `computedIn` are the dtypes of the model's tensors: a
 * float32 result of half-precision products is not more exact than these.
 */
export function defaultTolerance(dtype: DType, computedIn: ReadonlySet<DType> = new Set()): Tolerance {
  if (!isFloating(dtype)) return { relative: 0, absolute: 0 };
  const narrow = [dtype, ...computedIn].filter((used) => isFloating(used) && byteLength(used, 1) <= 2);
  if (narrow.length === 0) return { relative: 1e-3, absolute: 1e-4 };
  const both = narrow.some((used) => used !== 'float16') ? 5e-2 : 2e-2;
  return { relative: both, absolute: both };
}

/** NaN equals NaN in the same place only; infinities must be equal. */
export function compareTensors(
  name: string,
  actual: ConstantTensor,
  expected: ConstantTensor,
  tolerance: Tolerance,
  isTie: TieTest = () => false,
): Comparison {
  const sameShape =
    actual.shape.length === expected.shape.length && actual.shape.every((size, axis) => size === expected.shape[axis]);
  const base = { name, dtype: expected.dtype, shape: expected.shape, tolerance };
  if (!sameShape || actual.dtype !== expected.dtype) {
    const worst = { worstAbsolute: Infinity, worstRelative: Infinity, largest: 0, where: [] };
    return { ...base, ...worst, outside: 1, ties: 0, passed: false, passedBy: null };
  }
  const [read, want] = [numberReader(actual), numberReader(expected)];
  const count = expected.shape.reduce((product, size) => product * size, 1);
  let [worstAbsolute, worstRelative, worstExcess, where, outside, ties, largest] = [0, 0, -1, 0, 0, 0, 0];
  let isRelative = true;
  for (let index = 0; index < count; index++) {
    const [a, b] = [read(index), want(index)];
    if (Number.isFinite(b)) largest = Math.max(largest, Math.abs(b));
    if (Object.is(a, b) || a === b || (Number.isNaN(a) && Number.isNaN(b))) continue;
    const difference = Math.abs(a - b);
    const absolute = Number.isNaN(difference) ? Infinity : difference;
    const allowed = tolerance.absolute + tolerance.relative * Math.abs(b);
    const excess = Number.isFinite(b) ? absolute / (allowed || Number.MIN_VALUE) : Infinity;
    if (excess > 1 && isTie(index)) {
      ties++;
      continue;
    }
    if (excess > 1) outside++;
    worstAbsolute = Math.max(worstAbsolute, absolute);
    if (absolute > tolerance.relative * Math.abs(b)) isRelative = false;
    if (b !== 0) worstRelative = Math.max(worstRelative, absolute / Math.abs(b));
    if (excess > worstExcess) [worstExcess, where] = [excess, index];
  }
  const within = isRelative ? 'relative' : worstAbsolute <= tolerance.absolute ? 'absolute' : 'both';
  return {
    ...base,
    worstAbsolute,
    worstRelative,
    largest,
    where: worstExcess < 0 ? [] : unravelIndex(where, expected.shape),
    outside,
    ties,
    passed: outside === 0,
    passedBy: outside > 0 ? null : worstExcess < 0 ? 'exact' : within,
  };
}
