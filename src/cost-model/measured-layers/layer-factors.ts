/**
 * @file Ratio of real to predicted seconds of layers, by their shapes: a factor that is measured where a layer was, interpolated
 * elsewhere (kriging; Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006, chapter 2). Its logarithm is a sum of
 * three normal variables, each 0 until measured: one of the whole cluster, one that changes smoothly with the shape, one of each
 * shape alone.
 */
import { madeOnce } from '../../ir/remembered.js';
import type { StepConfiguration } from '../step/configuration.js';
import type { PartWork } from '../step/work.js';
import { cholesky, type Matrix, solveCholesky } from './cholesky.js';
import { isSameLayer, type LayerShape, layerShape, squaredDistance } from './layer-shape.js';

/** A layer that runs were measured with. */
export interface MeasuredLayer extends LayerShape {
  /** Seconds of its phases over those that are predicted. */
  readonly factor: number;
  /** How many runs have it. */
  readonly runs: number;
}

/** Factors by which the seconds of layers are multiplied. */
export interface LayerFactors {
  readonly factorOf: (part: PartWork, configuration: StepConfiguration) => number;
}

/**
 * Standard deviations of the three logarithms: seconds of single shapes differ by a tenth, about as far as predictions are off
 * where nothing was run (docs/reference/accuracy.md), and the share that they have in common differs by half of that. Halves and
 * doubles of these change little (docs/clusters.md).
 */
const SPREAD = { cluster: 0.05, smooth: 0.05, own: 0.1 };

/** How far the logarithms of two layers' factors go together. */
function covariance(a: LayerShape, b: LayerShape): number {
  const smooth = SPREAD.smooth ** 2 * Math.exp(-squaredDistance(a, b) / 2);
  return SPREAD.cluster ** 2 + smooth + (isSameLayer(a, b) ? SPREAD.own ** 2 : 0);
}

/** Covariances of all with all; a slightly larger diagonal keeps the matrix positive definite. */
export function covariances(shapes: readonly LayerShape[]): Matrix {
  return shapes.map((a, index) =>
    Float64Array.from(shapes, (b, other) => covariance(a, b) + (index === other ? 1e-9 : 0)),
  );
}

/** The factor of every layer, by those that were measured. */
export function layerFactors(measured: readonly MeasuredLayer[]): LayerFactors {
  const logs = Float64Array.from(measured, ({ factor }) => Math.log(factor));
  const weights = solveCholesky(cholesky(covariances(measured)), logs);
  const known = new WeakMap<PartWork, Map<string, number>>();
  const factorAt = (shape: LayerShape): number => {
    const own = measured.find((layer) => isSameLayer(layer, shape));
    if (own) return own.factor;
    return Math.exp(
      measured.reduce((sum, layer, index) => sum + (weights[index] as number) * covariance(layer, shape), 0),
    );
  };
  return {
    factorOf: (part, configuration) => {
      const { degrees, software, precision, attention, tpSequence } = configuration;
      const key = `${degrees.tp} ${degrees.sp} ${degrees.ep} ${software} ${precision} ${attention} ${tpSequence}`;
      const ofPart = madeOnce(known, part, () => new Map<string, number>());
      return madeOnce(ofPart, key, () => factorAt(layerShape(part, configuration)));
    },
  };
}
