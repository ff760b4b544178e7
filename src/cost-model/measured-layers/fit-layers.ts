/**
 * @file From measured steps to factors of their layers: the likeliest factors under the prior of `layer-factors.ts`, by linear
 * equations that are solved again at each solution. Runs that stay far off the seconds of similar runs count less.
 */
import { cholesky, type Matrix, solveCholesky } from './cholesky.js';
import { covariances, type MeasuredLayer } from './layer-factors.js';
import { type LayerShape, SIZES } from './layer-shape.js';
import { type LinearStep, linearStep, type MeasuredRun, type PlacedRun, placeRuns } from './linear-step.js';

/** Runs, and the factors of layers that they give. */
export interface FittedLayers {
  readonly shapes: readonly LayerShape[];
  readonly runs: readonly PlacedRun[];
  /** Logarithms of the shapes' factors. */
  readonly logs: Float64Array;
  /** The same from some of the runs alone: those for which `takes` is true. */
  readonly without: (takes: (run: PlacedRun, index: number) => boolean) => Float64Array;
}

/**
 * Noise outside of the layers: two runs of one configuration differ by 1 to 6 %, and predictions for embedding, head and
 * updates are a tenth off.
 */
const NOISE = { run: 0.02, rest: 0.1 };

/** Runs that are further off than so many standard deviations count as if they were that far off. */
const FAR = 2;

/** Turns until nothing moves; it takes three or four. */
const TURNS = 12;

/** Fits factors of layers to runs. */
export function fitLayers(measured: readonly MeasuredRun[]): FittedLayers {
  const { shapes, placed } = placeRuns(measured);
  const prior = cholesky(covariances(shapes));
  let logs: Float64Array = new Float64Array(shapes.length);
  let equations: readonly Equation[] = [];
  for (let turn = 0; turn < TURNS; turn++) {
    equations = placed.map((run) => equationOf(run, linearStep(run, logs), logs, turn > 0));
    const next = solve(prior, equations);
    const moved = next.reduce((most, value, index) => Math.max(most, Math.abs(value - (logs[index] as number))), 0);
    logs = next;
    if (moved < 1e-4) break;
  }
  return {
    shapes,
    runs: placed,
    logs,
    without: (takes) =>
      solve(
        prior,
        equations.filter((_, index) => takes(placed[index] as PlacedRun, index)),
      ),
  };
}

/** The layers of a fit in the form of files, in an order that does not depend on that of the runs. */
export function measuredLayers({ shapes, runs, logs }: FittedLayers): readonly MeasuredLayer[] {
  const counts = shapes.map(() => 0);
  for (const { layers, times = 1 } of runs)
    for (const layer of new Set(layers)) counts[layer] = (counts[layer] ?? 0) + times;
  return shapes
    .map((shape, index) => ({
      ...shape,
      ...Object.fromEntries(SIZES.map((key) => [key, Number(shape[key].toPrecision(12))])),
      factor: Number(Math.exp(logs[index] as number).toPrecision(5)),
      runs: counts[index] as number,
    }))
    .sort(byShape);
}

/** Orders layers by software and formats, then by their sizes. */
function byShape(a: LayerShape, b: LayerShape): number {
  const kind = ({ software, precision, attention, tpSequence }: LayerShape) =>
    `${software} ${precision} ${attention} ${tpSequence}`;
  if (kind(a) !== kind(b)) return kind(a) < kind(b) ? -1 : 1;
  const size = SIZES.find((key) => a[key] !== b[key]);
  return size ? a[size] - b[size] : 0;
}

/** Σ shares · logs = value, within so much. */
interface Equation {
  readonly shares: LinearStep['shares'];
  readonly value: number;
  readonly variance: number;
}

function equationOf(run: PlacedRun, { log, shares }: LinearStep, logs: Float64Array, isNear: boolean): Equation {
  let known = 0;
  let ofLayers = 0;
  for (const [layer, share] of shares) {
    known += share * (logs[layer] as number);
    ofLayers += share;
  }
  const off = Math.log(run.seconds) - log;
  const deviation = Math.hypot(NOISE.run / Math.sqrt(run.times ?? 1), NOISE.rest * Math.max(0, 1 - ofLayers));
  const far = isNear ? Math.max(1, Math.abs(off) / (FAR * deviation)) : 1;
  return { shares, value: off + known, variance: far * deviation ** 2 };
}

/**
 * The likeliest logarithms g under a prior of covariance L · Lᵀ: with g = L · w, (1 + Lᵀ P L) w = Lᵀ b, P and b being the sums of
 * the equations' squares over their variances.
 */
function solve(prior: Matrix, equations: readonly Equation[]): Float64Array {
  const size = prior.length;
  const squares = Array.from({ length: size }, () => new Float64Array(size));
  const right = new Float64Array(size);
  for (const { shares, value, variance } of equations) {
    for (const [i, one] of shares) {
      right[i] = (right[i] as number) + (one * value) / variance;
      const row = squares[i] as Float64Array;
      for (const [j, other] of shares) row[j] = (row[j] as number) + (one * other) / variance;
    }
  }
  const system = identityPlus(transposedTimes(prior, timesLower(squares, prior)));
  return timesVector(prior, solveCholesky(cholesky(system), transposedTimesVector(prior, right)));
}

/** A · L; rows of A that are nothing stay nothing. */
function timesLower(a: Matrix, lower: Matrix): Matrix {
  return a.map((row) => {
    const product = new Float64Array(row.length);
    for (const [k, factor] of row.entries()) {
      if (factor === 0) continue;
      const other = lower[k] as Float64Array;
      for (let j = 0; j <= k; j++) product[j] = (product[j] as number) + factor * (other[j] as number);
    }
    return product;
  });
}

/** Lᵀ · A. */
function transposedTimes(lower: Matrix, a: Matrix): Matrix {
  const product = lower.map((row) => new Float64Array(row.length));
  for (const [k, row] of lower.entries()) {
    const other = a[k] as Float64Array;
    if (other.every((value) => value === 0)) continue;
    for (let i = 0; i <= k; i++) {
      const factor = row[i] as number;
      const into = product[i] as Float64Array;
      for (let j = 0; j < other.length; j++) into[j] = (into[j] as number) + factor * (other[j] as number);
    }
  }
  return product;
}

function identityPlus(matrix: Matrix): Matrix {
  for (const [index, row] of matrix.entries()) row[index] = (row[index] as number) + 1;
  return matrix;
}

function timesVector(lower: Matrix, vector: Float64Array): Float64Array {
  return Float64Array.from(lower, (row) =>
    row.reduce((sum, value, index) => sum + value * (vector[index] as number), 0),
  );
}

function transposedTimesVector(lower: Matrix, vector: Float64Array): Float64Array {
  const product = new Float64Array(vector.length);
  for (const [k, row] of lower.entries())
    for (let i = 0; i <= k; i++) product[i] = (product[i] as number) + (row[i] as number) * (vector[k] as number);
  return product;
}
