/**
 * @file Layouts: how one tensor is sharded over a mesh.
 *
 * Per dimension a list of pieces, major to minor, whose sizes multiply to the dimension; each piece has an ordered
 * list of sub-axes that cut it into equal consecutive shards (none = whole). One piece is the ordinary case; several
 * are what exporters need: fused QKV over tp is `[-, (3 | 64:tp)]`. Besides, the axes over which the value is partial.
 *
 * Sizes that axes do not divide are padded at their tail (`extents`): 10 over tp 4 are 12, three on each rank, the last two
 * without meaning. A piece's size is always the padded one.
 *
 * Text: `[dp, -, tp]`, `[(dp,tp), -]` (dp major), `[(3 | 64:tp), -]`, `[dp, -] + partial(tp)`, `partial(tp, max)`.
 * A sub-axis is written `tp.0`; all sub-axes of an axis in order are written `tp`.
 */

import type { DimensionFactors, Reduction } from '../ir/factor-rule.js';
import { remembered } from '../ir/remembered.js';
import { digitsOf, type Piece, piecesOf } from './digits.js';
import { axesSize, type Mesh, type SubAxis } from './mesh.js';

export type { Piece } from './digits.js';

export interface PartialAxis {
  readonly axis: SubAxis;
  readonly reduction: Reduction;
}

/** Always in merged form: `normalise` has joined neighbours whose shards coincide, and dropped pieces of size 1. */
export interface Layout {
  readonly dims: readonly (readonly Piece[])[];
  /** Sorted by name, so that equal sets compare equal; text shows them in mesh order. */
  readonly partial: readonly PartialAxis[];
  /**
   * Where a dimension is padded: its parts, major to minor, whose sizes multiply to the padded dimension and whose valid
   * counts to the real one. Null for a dimension that is not; left out where none is.
   */
  readonly extents?: Extents;
}

/** Part of a dimension of which the first `valid` of `size` positions have a meaning. */
export interface Extent {
  readonly size: number;
  readonly valid: number;
}

export type Extents = readonly (readonly Extent[] | null)[];

/**
 * The layout in merged form: pieces of size 1 are dropped, a piece joins the one before it where it is whole, or where
 * the one before is cut to the last element; a dimension left without pieces is one whole piece.
 *
 * The last reason to join depends on how large the axes are, so it is applied only where a mesh is given. Layouts that
 * differ in nothing else have the same shards: `sameShards` is true for them, and resharding between them has no steps.
 */
export function normalise(
  dims: readonly (readonly Piece[])[],
  partial: readonly PartialAxis[] = [],
  mesh?: Mesh,
  extents?: Extents,
): Layout {
  const merged = extents?.map((parts) => (parts ? mergedExtents(parts) : null));
  return {
    dims: dims.map((pieces) => mergedPieces(pieces, mesh)),
    partial: partial.length > 1 ? [...partial].sort((a, b) => compareNames(a.axis, b.axis)) : partial,
    ...(merged?.some((parts) => parts !== null) ? { extents: merged } : {}),
  };
}

function mergedPieces(pieces: readonly Piece[], mesh: Mesh | undefined): readonly Piece[] {
  const [only] = pieces;
  if (only && pieces.length === 1 && only.axes.length === 0) return [{ size: only.size, axes: only.axes }];
  return mesh ? piecesOf(digitsOf(pieces, mesh)) : joinPieces(pieces);
}

/** A layout in merged form. */
export function mergedLayout(layout: Layout, mesh: Mesh): Layout {
  return normalise(layout.dims, layout.partial, mesh, layout.extents);
}

/**
 * Layouts in merged form, equal ones as one object. A search needs the same few hundred of each structure tens of thousands of
 * times, and keeps the results.
 */
export function mergedOnce(mesh: Mesh): (layout: Layout) => Layout {
  const known = new Map<string, Layout>();
  return (layout) => {
    const key = keyOf(layout);
    const found = known.get(key);
    if (found) return found;
    const merged = mergedLayout(layout, mesh);
    const only = known.get(layoutKey(merged)) ?? merged;
    known.set(layoutKey(only), only).set(key, only);
    return only;
  };
}

/** Size of a piece of `size` once it is padded so that its axes, which make `shards` parts, divide it. */
export function paddedSize(size: number, shards: number): number {
  return Math.ceil(size / shards) * shards;
}

/**
 * The layout of a tensor whose dimensions are lists of factors: each factor is a piece sharded by its own axes.
 *
 * `sizes` gives a factor's whole size; `axes` the sub-axes of the factors that are sharded. With a mesh, factors that their
 * axes do not divide are padded.
 */
export function layoutFromFactors(
  dims: readonly DimensionFactors[],
  sizes: (factor: string) => number,
  axes: Readonly<Record<string, readonly SubAxis[]>>,
  partial: readonly PartialAxis[] = [],
  mesh?: Mesh,
): Layout {
  let isPadded = false;
  const extents = dims.map((factors) =>
    factors.map((factor): Extent => {
      const valid = sizes(factor);
      const cutting = axes[factor];
      const size = mesh && cutting ? paddedSize(valid, axesSize(mesh, cutting)) : valid;
      isPadded ||= size !== valid;
      return { valid, size };
    }),
  );
  const pieces = dims.map((factors, axis) =>
    factors.map((factor, index): Piece => ({ size: extents[axis]?.[index]?.size ?? 1, axes: axes[factor] ?? [] })),
  );
  return normalise(pieces, partial, mesh, isPadded ? extents : undefined);
}

/** The layout of a tensor of `shape` that every rank holds whole. */
export function replicated(shape: readonly number[]): Layout {
  return { dims: shape.map((size) => [{ size, axes: [] }]), partial: [] };
}

/** Every rank holds the whole tensor. */
export function isReplicated(layout: Layout): boolean {
  return layout.partial.length === 0 && layout.dims.every((pieces) => pieces.every((piece) => piece.axes.length === 0));
}

/** The same layout, piece for piece. */
export function equalLayouts(a: Layout, b: Layout): boolean {
  return a === b || layoutKey(a) === layoutKey(b);
}

/** Whether two layouts of one tensor give every rank the same shard, however their pieces are written. */
export function sameShards(a: Layout, b: Layout, mesh: Mesh): boolean {
  return equalLayouts(a, b) || equalLayouts(mergedLayout(a, mesh), mergedLayout(b, mesh));
}

/** A string that two layouts share exactly when they are equal; for maps, not for people (see layout-text.ts). */
export const layoutKey = remembered(keyOf);

/** A string that two paddings of one dimension share exactly when they are equal; '' where nothing is padded. */
export function extentsKey(parts: readonly Extent[] | null | undefined): string {
  return parts?.map(({ size, valid }) => `${valid}~${size}`).join('|') ?? '';
}

function keyOf(layout: Layout): string {
  const dims = layout.dims.map((pieces) => pieces.map((piece) => `${piece.size}:${piece.axes.join(',')}`).join('|'));
  const partial = layout.partial.map(({ axis, reduction }) => `+${axis}:${reduction}`);
  const padding = layout.extents?.map(extentsKey);
  return `${dims.join(';')}${partial.join('')}${padding ? `/${padding.join(';')}` : ''}`;
}

/** Extents in their one form: parts that are not padded join the part before them; null where nothing is padded. */
function mergedExtents(parts: readonly Extent[]): readonly Extent[] | null {
  const result: Extent[] = [];
  for (const { size, valid } of parts) {
    const last = result.at(-1);
    if (last && size === valid) result[result.length - 1] = { size: last.size * size, valid: last.valid * valid };
    else if (size !== 1) result.push({ size, valid });
  }
  return result.some(({ size, valid }) => size !== valid) ? result : null;
}

/**
 * Shape of one rank's shard of a tensor of `shape`, in elements, padding included.
 *
 * Throws where the layout is not one of such a tensor, or its axes do not divide a piece: an error of the caller.
 */
export function localShape(shape: readonly number[], layout: Layout, mesh: Mesh): number[] {
  if (shape.length !== layout.dims.length) {
    throw new Error(`a layout of ${layout.dims.length} dimensions for a tensor of shape [${shape.join(', ')}]`);
  }
  return layout.dims.map((pieces) =>
    pieces.reduce((product, piece) => {
      const local = piece.size / axesSize(mesh, piece.axes);
      if (!Number.isInteger(local))
        throw new Error(`axes ${piece.axes.join(',')} do not divide a piece of ${piece.size}`);
      return product * local;
    }, 1),
  );
}

/** Every sub-axis that the layout uses: those that shard, then those it is partial over. */
export function axesOf(layout: Layout): readonly SubAxis[] {
  return [
    ...layout.dims.flatMap((pieces) => pieces.flatMap((piece) => piece.axes)),
    ...layout.partial.map((entry) => entry.axis),
  ];
}

/** Joins the pieces that can be joined without knowing how large the axes are. */
function joinPieces(pieces: readonly Piece[]): readonly Piece[] {
  const result: Piece[] = [];
  for (const piece of pieces) {
    const last = result.at(-1);
    if (piece.size === 1 && piece.axes.length === 0) continue;
    if (last && piece.axes.length === 0) result[result.length - 1] = { size: last.size * piece.size, axes: last.axes };
    else result.push(piece);
  }
  return result.length > 0 ? result : [{ size: 1, axes: [] }];
}

function compareNames(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** One of each of equal layouts. */
export function distinctLayouts(layouts: readonly Layout[]): readonly Layout[] {
  return [...new Map(layouts.map((layout) => [layoutKey(layout), layout])).values()];
}
