/**
 * @file Fits positive numbers to residuals by Levenberg and Marquardt's method on their logarithms, with weights that minimise
 * the sum of |residual| rather than of its square, so that outliers count less (iteratively reweighted; Madsen, Nielsen and
 * Tingleff 2004).
 */

/** One number to fit. */
export interface Unknown {
  /** The value expected before any measurement. */
  readonly expected: number;
  /** Upper bound of the value. */
  readonly most: number;
}

export interface RobustFit {
  readonly values: readonly number[];
  /** Weighted mean of |residual|, plus the penalty for the distance from the expected values. */
  readonly loss: number;
}

/**
 * @param residuals of all samples for values of the unknowns, in their order
 * @param weights of the samples, of sum 1
 * @param stiffness what the square of a logarithmic step away from the expected value costs
 */
export function robustFit(
  unknowns: readonly Unknown[],
  residuals: (values: readonly number[]) => Float64Array,
  weights: readonly number[],
  stiffness: number,
  rounds: number,
): RobustFit {
  const logs = (values: readonly number[]) =>
    values.map((value, index) => Math.log(value / (unknowns[index]?.expected ?? 1)));
  const lossOf = (values: readonly number[], off: Float64Array) =>
    off.reduce((sum, value, index) => sum + (weights[index] ?? 0) * softened(value), 0) +
    logs(values).reduce((sum, step) => sum + stiffness * step * step, 0);
  let values = unknowns.map(({ expected, most }) => Math.min(expected, most));
  let off = residuals(values);
  let loss = lossOf(values, off);
  let damping = 1e-2;
  for (let round = 0; round < rounds; round++) {
    const slopes = values.map((value, index) => {
      const factor = value * PROBE > (unknowns[index]?.most ?? value) ? 1 / PROBE : PROBE;
      const moved = residuals(values.map((other, at) => (at === index ? other * factor : other)));
      return moved.map((item, sample) => (item - (off[sample] ?? 0)) / Math.log(factor));
    });
    const rowWeights = off.map((value, index) => (weights[index] ?? 0) / Math.hypot(value, SOFT));
    const steps = logs(values);
    const gradient = slopes.map((slope, row) => weighted(rowWeights, slope, off) + 2 * stiffness * (steps[row] ?? 0));
    const curvature = slopes.map((slope, row) =>
      slopes.map((other, column) => weighted(rowWeights, slope, other) + (row === column ? 2 * stiffness : 0)),
    );
    let better = false;
    for (let attempt = 0; attempt < ATTEMPTS && !better; attempt++) {
      const damped = curvature.map((line, row) =>
        line.map((item, column) => (row === column ? item * (1 + damping) : item)),
      );
      const step = solved(
        damped,
        gradient.map((item) => -item),
      );
      const tried = values.map((value, index) => {
        const bounded = Math.max(-FARTHEST, Math.min(FARTHEST, step[index] ?? 0));
        return Math.min(unknowns[index]?.most ?? value, value * Math.exp(bounded));
      });
      const triedOff = residuals(tried);
      const triedLoss = lossOf(tried, triedOff);
      better = triedLoss < loss;
      damping = better ? Math.max(1e-4, damping / 5) : damping * 6;
      if (!better) continue;
      const gain = loss - triedLoss;
      [values, off, loss] = [tried, triedOff, triedLoss];
      if (gain < 1e-5 * loss) return { values, loss };
    }
    if (!better) break;
  }
  return { values, loss };
}

/** Below this a residual counts by its square. */
const SOFT = 0.05;
/** Relative step of the numeric derivative. */
const PROBE = Math.exp(0.02);
/** Largest logarithmic step of a round. */
const FARTHEST = 0.7;
/** Dampings that are tried in a round. */
const ATTEMPTS = 6;

/** |value|, smooth at 0. */
function softened(value: number): number {
  return Math.hypot(value, SOFT) - SOFT;
}

function weighted(weights: Float64Array, a: Float64Array, b: Float64Array): number {
  return weights.reduce((sum, weight, index) => sum + weight * (a[index] ?? 0) * (b[index] ?? 0), 0);
}

/** The solution of a symmetric positive definite system: Cholesky factors, forward and back substitution. */
function solved(matrix: readonly (readonly number[])[], right: readonly number[]): readonly number[] {
  const factor: number[][] = [];
  const entry = (row: number, column: number) => factor[row]?.[column] ?? 0;
  const dot = (a: number, b: number, length: number) =>
    Array.from({ length }, (_, at) => entry(a, at) * entry(b, at)).reduce((sum, item) => sum + item, 0);
  for (const [row, line] of matrix.entries()) {
    factor.push([]);
    for (let column = 0; column <= row; column++) {
      const rest = (line[column] ?? 0) - dot(row, column, column);
      factor[row]?.push(row === column ? Math.sqrt(Math.max(rest, 1e-18)) : rest / entry(column, column));
    }
  }
  const half: number[] = [];
  for (const [row, value] of right.entries())
    half.push((value - half.reduce((sum, item, at) => sum + entry(row, at) * item, 0)) / entry(row, row));
  const whole = [...half];
  for (let row = whole.length - 1; row >= 0; row--) {
    let rest = half[row] ?? 0;
    for (let below = row + 1; below < whole.length; below++) rest -= entry(below, row) * (whole[below] ?? 0);
    whole[row] = rest / entry(row, row);
  }
  return whole;
}
