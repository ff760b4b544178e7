/**
 * @file Dimensions split, put in another order and joined again, as einops writes it:
 *
 *     n (g c) x -> c (g n) x        Reshape · Transpose · Reshape, each only where it does something
 */
import type { DimensionFactors } from '../factor-rule.js';
import type { ExpansionWriter } from './expansion.js';

/** A part of a dimension. One object is one axis: both sides of a rearrangement name the same ones. */
export interface RearrangedAxis {
  readonly size: number;
  /** Its factors, of the operator that is expanded; left out in gradients. */
  readonly dims?: DimensionFactors;
}

/** A tensor's dimensions, each a list of axes, major to minor. [] is a dimension of size 1. */
export type DimensionAxes = readonly (readonly RearrangedAxis[])[];

/** Adds the operators that bring `input` from the dimensions `from` into the dimensions `to`; returns the result's name. */
export function rearrange(write: ExpansionWriter, input: string, from: DimensionAxes, to: DimensionAxes): string {
  const [order, wanted] = [from.flat(), to.flat()];
  const split = order.map((axis) => [axis]);
  const moved = wanted.map((axis) => [axis]);
  const perm = wanted.map((axis) => order.indexOf(axis));
  if (perm.every((place, index) => place === index)) return reshaped(write, input, from, to);
  const apart = reshaped(write, input, from, split);
  const transposed = write.add('Transpose', [apart], dimensionsOf(moved), { perm });
  return reshaped(write, transposed, moved, to);
}

export function dimensionSizes(axes: DimensionAxes): readonly number[] {
  return axes.map((parts) => parts.reduce((product, { size }) => product * size, 1));
}

export function dimensionsOf(axes: DimensionAxes): readonly DimensionFactors[] {
  return axes.map((parts) => parts.flatMap(({ dims = [] }) => dims));
}

/** The axes of a tensor that is not split: one per dimension. */
export function plainAxes(shape: readonly number[]): readonly RearrangedAxis[] {
  return shape.map((size) => ({ size }));
}

function reshaped(write: ExpansionWriter, input: string, from: DimensionAxes, to: DimensionAxes): string {
  const shape = dimensionSizes(to);
  const dims = dimensionsOf(to);
  if (dimensionSizes(from).join() === shape.join() && JSON.stringify(dimensionsOf(from)) === JSON.stringify(dims))
    return input;
  return write.add('Reshape', [input], dims, { shape });
}
