/**
 * @file A batch of one sample in the shapes of a graph. It multiplies no size, so it cannot be read off a dimension: it is
 * a digit of size 1 somewhere in the row-major order of a tensor's elements, and is followed as a place.
 *
 *     [1, 12, 64]   place 768: one step of it is 768 elements
 *     [12, 64]      still place 768: the major part of dimension 0, which grows to (b 12)
 *     [12, 4, 16]   of place 64: between 12 and 4, so either (12 b) or (b 4): an open choice
 */
import type { DimensionFactors, Factor, FactorRule } from '../factor-rule.js';
import { elementCount } from '../graph.js';

/** Per dimension: the size of its part below the batch, or null where the batch is not in it. */
export type Digits = readonly (number | null)[];

/** A dimension and the size of its part below the batch. */
export interface BatchPlace {
  readonly axis: number;
  readonly minor: number;
}

/** An operand that must hold the batch at `digits` and does not. */
export interface Missing {
  readonly operand: number;
  readonly digits: Digits;
}

/** Picks one of several places; `key` is equal for choices that should be made alike. */
export type Choose = (key: string, places: readonly BatchPlace[]) => BatchPlace | undefined;

/** The places of the batch in a tensor, majors first. */
export function batchPlaces(digits: Digits): readonly BatchPlace[] {
  return digits.flatMap((minor, axis) => (minor === null ? [] : [{ axis, minor }]));
}

/**
 * Where the batch at `place` of shape `from` may be once its elements are given shape `to`: all places that keep the
 * order of the elements, likelier ones first. A dimension of size 1 in the place is its own; between two dimensions it
 * joins the one whose neighbour was not touched.
 */
export function placesAfter(from: readonly number[], place: BatchPlace, to: readonly number[]): readonly BatchPlace[] {
  const below = place.minor * elementCount(from.slice(place.axis + 1));
  const places = to.flatMap((size, axis): readonly BatchPlace[] => {
    const rest = elementCount(to.slice(axis + 1));
    const minor = below / rest;
    return Number.isInteger(minor) && minor >= 1 && size % minor === 0 ? [{ axis, minor }] : [];
  });
  const own = places.filter(({ axis }) => to[axis] === 1);
  const merged = places.filter(({ axis }) => to[axis] !== 1);
  const untouched = elementCount(to.slice((merged[0]?.axis ?? 0) + 1)) === elementCount(from.slice(place.axis + 1));
  const sameBefore = from.slice(0, place.axis).join() === to.slice(0, merged.at(-1)?.axis ?? 0).join();
  // (p b) before (b q) where q is unchanged; else (b q) first where the dimensions before are unchanged.
  const ordered = merged.length > 1 && sameBefore && !untouched ? [...merged].reverse() : merged;
  const kept = own.findIndex(({ axis }) => axis === place.axis && from[axis] === 1);
  const first = own[kept];
  return first ? [first, ...own.toSpliced(kept, 1), ...ordered] : [...own, ...ordered];
}

/** A factor and the size of its part below the batch. */
export interface FactorPlace {
  readonly factor: Factor;
  readonly minor: number;
}

/** The factor of a dimension that the batch is in; null where the operator takes the dimension for a broadcast. */
export function factorPlace(names: DimensionFactors, rule: FactorRule, minor: number): FactorPlace | null {
  const found: FactorPlace[] = [];
  let below = 1;
  for (const name of [...names].reverse()) {
    const factor = rule.factors.get(name);
    const size = factor?.size ?? 1;
    const inside = minor / below;
    if (factor && Number.isInteger(inside) && inside >= 1 && size % inside === 0) found.push({ factor, minor: inside });
    below *= size;
  }
  // At the border of two factors it belongs to either: to one of size 1, else to one that may be sharded.
  return (
    found.find(({ factor }) => factor.size === 1) ??
    found.find(({ factor }) => factor.kind !== 'whole') ??
    found[0] ??
    null
  );
}

/** The digits of a tensor whose factors at `places` hold the batch; null where one dimension would hold it twice. */
export function batchDigits(
  dims: readonly DimensionFactors[],
  rule: FactorRule,
  places: ReadonlyMap<string, number>,
): Digits | null {
  let twice = false;
  const digits = dims.map((names) => {
    let below = 1;
    let found: number | null = null;
    for (const name of [...names].reverse()) {
      const minor = places.get(name);
      if (minor !== undefined) {
        twice ||= found !== null;
        found = minor * below;
      }
      below *= rule.factors.get(name)?.size ?? 1;
    }
    return found;
  });
  return twice ? null : digits;
}

/** The sizes of a tensor of `shape` once its batch of one has become a batch of `batch`. */
export function withBatch(shape: readonly number[], digits: Digits, batch: number): readonly number[] {
  return shape.map((size, axis) => ((digits[axis] ?? null) === null ? size : size * batch));
}
