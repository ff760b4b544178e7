/**
 * @file Gradients of normalisations. With unit x̂ = (x − mean) · inverse, inverse = (mean(c²) + ε)^(−1/2), and the gradient h
 * of x̂:
 *
 *     dx = inverse · (h − mean(h) − x̂ · mean(h x̂))
 *
 * without mean(h) if x is not centred. Statistics that the operator returns as results are read, others are recomputed
 * (from x alone: cheaper than storing x̂). Everything is computed in the type in which the forward forms its sums.
 */
import type { DType } from '../dtype.js';
import { elementCount } from '../graph.js';
import { axisOf, numberOf, operand, result } from './operands.js';
import type { GradientBody, OperatorGradient } from './operator-gradient.js';
import type { Arithmetic } from './operator-writer.js';
import { stashType } from './statistics.js';

/** A tensor over some of whose dimensions statistics are taken. */
export interface NormalisedTensor {
  readonly x: string;
  readonly type: DType;
  readonly shape: readonly number[];
  readonly axes: readonly number[];
}

/** A field with its unit form. */
export interface Normalised {
  readonly at: Arithmetic;
  /** Mean over the field's axes, which are kept with size 1. */
  readonly mean: (name: string) => string;
  readonly count: number;
  readonly shape: readonly number[];
  readonly isCentred: boolean;
  readonly unit: string;
  readonly inverse: string;
}

/** How to compute the unit form; statistics that exist already are given by name. */
interface UnitFormWay {
  readonly epsilon: number;
  readonly isCentred: boolean;
  readonly mean?: string | null;
  readonly inverse?: string | null;
}

export function means(write: OperatorGradient, { type, shape, axes }: NormalisedTensor) {
  const at = write.on(type);
  const count = elementCount(axes.map((axis) => shape[axis] ?? 1));
  return { at, count, shape, mean: (name: string) => at.mul(at.sum(name, axes), 1 / count) };
}

export function normalised(write: OperatorGradient, field: NormalisedTensor, way: UnitFormWay): Normalised {
  const parts = means(write, field);
  const { at, mean } = parts;
  const centred = way.isCentred ? at.sub(field.x, way.mean ?? mean(field.x)) : field.x;
  const computed = () => at.of('Reciprocal', at.of('Sqrt', at.add(mean(at.square(centred)), way.epsilon)));
  const inverse = way.inverse ?? computed();
  return { ...parts, isCentred: way.isCentred, inverse, unit: at.mul(centred, inverse) };
}

/** The gradients that reach a normalisation; null for those that are absent. */
interface ArrivingGradients {
  /** Gradient of the unit form. */
  readonly unit: string | null;
  /** Gradients of the mean and of the inverse deviation, in the statistics' shape. */
  readonly mean?: string | null;
  readonly inverse?: string | null;
  /** Gradient of the variance. */
  readonly variance?: string | null;
  /** Gradient of the field itself, as a result. */
  readonly field?: string | null;
}

/** The gradient of the field. */
export function throughUnit(normal: Normalised, arriving: ArrivingGradients): string {
  const { at, shape, mean, count, isCentred, unit, inverse } = normal;
  const terms: string[] = arriving.field ? [arriving.field] : [];
  if (arriving.unit) {
    const bent = at.sub(arriving.unit, at.mul(unit, mean(at.mul(arriving.unit, unit))));
    terms.push(at.mul(isCentred ? at.sub(bent, mean(arriving.unit)) : bent, inverse));
  }
  if (arriving.inverse) {
    const coefficient = at.mul(at.mul(arriving.inverse, at.square(inverse)), -1 / count);
    terms.push(at.mul(unit, coefficient));
  }
  if (arriving.variance) terms.push(at.mul(unit, at.mul(at.div(arriving.variance, inverse), 2 / count)));
  const lift = arriving.mean ? at.mul(arriving.mean, 1 / count) : null;
  const sum = terms.length > 0 ? terms.reduce((total, term) => at.add(total, term)) : null;
  if (sum && lift) return at.add(sum, lift);
  if (sum) return sum;
  // Only the mean has a gradient: it is spread over the field.
  return at.write.add('Expand', [lift ?? at.write.scalar(at.type, 0)], { shape });
}

/** Normalisations over the last dimensions: results are the unit form scaled (and shifted), then statistics. */
function trailing(isCentred: boolean): GradientBody {
  return (write) => {
    const { operator } = write;
    const { dtype, shape } = operand(operator, 0);
    const from = axisOf(operator, 'axis', shape.length, -1);
    const type = stashType(operator);
    // Statistics in another type than that of the sums are too coarse to be reused.
    const kept = (index: number) => (operator.outputs[index]?.dtype === type ? `out${index}` : null);
    const [meanAt, inverseAt] = isCentred ? [1, 2] : [null, 1];
    const normal = normalised(
      write,
      {
        x: write.inType('in0', dtype, type),
        type,
        shape,
        axes: shape.flatMap((_, axis) => (axis >= from ? [axis] : [])),
      },
      {
        epsilon: numberOf(operator, 'epsilon', 1e-5),
        isCentred,
        mean: meanAt === null ? null : kept(meanAt),
        inverse: kept(inverseAt),
      },
    );
    const arriving = (index: number | null) =>
      index !== null && write.has(index) ? write.inType(`grad${index}`, result(operator, index).dtype, type) : null;
    scaled(write, normal, { scale: 1, shift: isCentred ? 2 : null, type, shape }, (unit) => {
      if (write.wants(0))
        write.become(0, throughUnit(normal, { unit, mean: arriving(meanAt), inverse: arriving(inverseAt) }), type);
    });
  };
}

/** The operands that scale and shift a unit form, and the type and shape of the computation. */
interface Scales {
  readonly scale: number;
  readonly shift: number | null;
  readonly type: DType;
  readonly shape: readonly number[];
}

/** Gradients of scale and shift; `then` gets the gradient of the unit form, null if the result has no gradient. */
export function scaled(
  write: OperatorGradient,
  { at, unit }: Normalised,
  { scale, shift, type, shape }: Scales,
  then: (unit: string | null) => void,
): void {
  const all = shift === null ? [scale] : [scale, shift];
  if (!write.has(0)) {
    then(null);
    write.noneOf(...all);
    return;
  }
  const g = write.inType('grad0', result(write.operator, 0).dtype, type);
  const factor = write.operator.inputs[scale];
  then(factor ? at.mul(g, write.inType(`in${scale}`, factor.dtype, type)) : g);
  if (write.wants(scale)) write.into(scale, at.mul(g, unit), type, shape);
  if (shift !== null && write.wants(shift)) write.into(shift, g, type, shape);
}

/** Gradients of normalisations of each position over its last dimensions, by operator. */
export const normalisationGradients: Readonly<Record<string, GradientBody>> = {
  LayerNormalization: trailing(true),
  RMSNormalization: trailing(false),
  SimplifiedLayerNormalization: trailing(false),
};
