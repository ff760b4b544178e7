/**
 * @file The use of each sub-axis of a mesh in a layout: all that a bound on reshardings needs.
 */
import type { Reduction } from '../ir/factor-rule.js';
import { digitsOf, stridesOf } from './digits.js';
import { extentsKey, type Layout } from './layout.js';
import { type Mesh, subAxes } from './mesh.js';

/** By number of the sub-axis, in the mesh's order. */
export interface Cuts {
  /** Dimension and stride at which it cuts, as one number (`placeOf`); NOWHERE where it does not. */
  readonly places: readonly number[];
  /** How the ranks along it combine where the value is partial over it; else null. */
  readonly partial: readonly (Reduction | null)[];
  /** By dimension: how it is padded; '' where it is not. */
  readonly padding: readonly string[];
}

export const NOWHERE = -1;

/** Above every stride (a tensor would have 35 TB), and small enough for the 64 dimensions that a tensor may have. */
const STRIDES = 2 ** 45;

/** The dimension of a place. */
export function dimensionOf(place: number): number {
  return Math.floor(place / STRIDES);
}

export function cutsOf(layout: Layout, mesh: Mesh): Cuts {
  const numbers = new Map(subAxes(mesh).map(({ name }, number) => [name, number]));
  const places = new Array<number>(numbers.size).fill(NOWHERE);
  const partial = new Array<Reduction | null>(numbers.size).fill(null);
  layout.dims.forEach((pieces, dimension) => {
    if (pieces.every(({ axes }) => axes.length === 0)) return;
    const digits = digitsOf(pieces, mesh);
    const strides = stridesOf(digits);
    digits.forEach(({ axis }, index) => {
      if (axis !== null) places[numbers.get(axis) as number] = placeOf(dimension, strides[index] as number);
    });
  });
  for (const { axis, reduction } of layout.partial) partial[numbers.get(axis) as number] = reduction;
  return { places, partial, padding: layout.dims.map((_, dimension) => extentsKey(layout.extents?.[dimension])) };
}

/** A place in a tensor as one number. */
function placeOf(dimension: number, stride: number): number {
  return dimension * STRIDES + stride;
}
