/**
 * @file Cuts: how one dimension, or one factor, is sharded over sub-axes, each item with the place at which it shards.
 *
 *     [dp, whole 4, tp, whole 32]   of 512 over dp 2, tp 2   =   dp at stride 256, tp at stride 32
 *
 * An item covers the positions from its stride to stride · size. Cuts of one dimension can be joined as long as the positions
 * that they cover are disjoint: dp on the batch and tp on the sequence meet in a dimension that is both, whichever came first.
 * The pieces of a layout (digits.ts) are the same cuts, written major to minor; the form here can be moved between a dimension
 * and the factors that the dimension is made of.
 *
 * Sizes that axes do not divide are padded: then one item has all the axes and covers the whole unit that they share, six
 * heads over tp 4 as {axes: tp, size: 6}.
 */
import { digitsOf, type Piece, stridesOf } from '../digits.js';
import { type Extent, type Layout, normalise, paddedSize } from '../layout.js';
import { axesSize, type Mesh, type SubAxis, subAxisSize } from '../mesh.js';
import { type FactorPieces, pieceName } from '../refine.js';

export interface CutItem {
  /** One sub-axis; or, for a unit that they do not divide, all of those that share it, major to minor. */
  readonly axes: readonly SubAxis[];
  /** Positions along the unit: the sub-axis' size, or the unpadded size of the unit. */
  readonly size: number;
  /** Positions of the dimension between two neighbours of the unit. */
  readonly stride: number;
}

/** Major to minor; empty where nothing is sharded. */
export type Cut = readonly CutItem[];

export const UNCUT: Cut = [];

/** A factor or dimension of `size` sharded at its major end, padded where the axes do not divide it. */
export function plainCut(axes: readonly SubAxis[], size: number, mesh: Mesh): Cut {
  if (axes.length === 0) return UNCUT;
  if (size % axesSize(mesh, axes) !== 0) return [{ axes, size, stride: 1 }];
  let stride = size;
  return axes.map((axis) => {
    const own = subAxisSize(mesh, axis);
    stride /= own;
    return { axes: [axis], size: own, stride };
  });
}

/**
 * A cut of `from` positions as one of `to` positions: those that windows read and make. A cut that is not plain becomes WHOLE.
 */
export function resizedCut(cut: Cut, from: number, to: number, mesh: Mesh): Cut {
  if (from === to || cut.length === 0) return cut;
  const axes = axesOfCut(cut);
  return sameCut(cut, plainCut(axes, from, mesh)) ? plainCut(axes, to, mesh) : UNCUT;
}

/** One cut of all the factors that make a dimension, major to minor. */
export function joinCuts(cuts: readonly Cut[], sizes: readonly number[]): Cut {
  const [only] = cuts;
  if (cuts.length === 1 && only) return only;
  let below = 1;
  const items: CutItem[] = [];
  for (let index = cuts.length - 1; index >= 0; index--) {
    const here = cuts[index] ?? UNCUT;
    for (let item = here.length - 1; item >= 0; item--) items.unshift(scaled(here[item] as CutItem, below));
    below *= sizes[index] ?? 1;
  }
  return items;
}

/** The part of a dimension's cut within each of its factors. Items across two factors are left out. */
export function splitCut(cut: Cut, sizes: readonly number[]): readonly Cut[] {
  if (cut.length === 0) return sizes.map(() => UNCUT);
  if (sizes.length === 1) return [cut];
  const parts: CutItem[][] = sizes.map(() => []);
  let below = sizes.reduce((product, size) => product * size, 1);
  const bases = sizes.map((size) => {
    below /= size;
    return below;
  });
  keepRuns(cut, (item) => {
    const index = bases.findIndex((base, at) => {
      const end = item.stride * item.size;
      return item.stride >= base && item.stride % base === 0 && end <= base * (sizes[at] ?? 1) && end % base === 0;
    });
    if (index < 0) return false;
    parts[index]?.push({ ...item, stride: item.stride / (bases[index] ?? 1) });
    return true;
  });
  return parts;
}

/**
 * A cut joined with as much of another as fits beside it and is accepted; the same object where nothing is added. Where an
 * item does not fit, items that continue it are left out too.
 */
export function mergeCuts(base: Cut, added: Cut, total: number, accept: (item: CutItem) => boolean): Cut {
  let result = base;
  keepRuns(added, (item) => {
    if (holds(result, item)) return true;
    const next = accept(item) ? inserted(result, item, total) : null;
    if (next) result = next;
    return next !== null;
  });
  return result;
}

/** The cut without refused items, and without items that continue those. */
export function restrictCut(cut: Cut, accept: (item: CutItem) => boolean): Cut {
  const kept: CutItem[] = [];
  keepRuns(cut, (item) => {
    const accepted = accept(item);
    if (accepted) kept.push(item);
    return accepted;
  });
  return kept.length === cut.length ? cut : kept;
}

/** Whether a cut has an item, alone or within a padded one that begins with it. */
export function holds(cut: Cut, item: CutItem): boolean {
  return cut.some(
    (own) =>
      sameItem(own, item) ||
      (own.axes.length > 1 && item.stride * item.size === own.stride * own.size && startsWith(own.axes, item.axes)),
  );
}

export function sameCut(a: Cut, b: Cut): boolean {
  return a === b || (a.length === b.length && a.every((item, index) => sameItem(item, b[index] as CutItem)));
}

export function axesOfCut(cut: Cut): readonly SubAxis[] {
  return cut.flatMap((item) => item.axes);
}

/** A factor's axes in a strategy: on the factor itself, or on the pieces that the factor is to be seen as. */
export interface FactorPlacement {
  readonly axes: Readonly<Record<string, readonly SubAxis[]>>;
  readonly sizes: readonly number[] | null;
}

/** The axes and pieces by which a strategy gives a factor of `size` this cut. */
export function placementOf(factor: string, cut: Cut, size: number, mesh: Mesh): FactorPlacement {
  if (cut.length === 0) return { axes: {}, sizes: null };
  const pieces = piecesOfCut(cut, size, mesh);
  const [only] = pieces;
  if (pieces.length === 1 && only) return { axes: { [factor]: only.axes }, sizes: null };
  const axes: Record<string, readonly SubAxis[]> = {};
  pieces.forEach((piece, index) => {
    if (piece.axes.length > 0) axes[pieceName(factor, index)] = piece.axes;
  });
  return { axes, sizes: pieces.map((piece) => piece.size) };
}

/** The cut of a factor of `size` by axes on it or on its pieces. */
export function cutOfPlacement(
  factor: string,
  size: number,
  axes: Readonly<Record<string, readonly SubAxis[]>>,
  pieces: FactorPieces | undefined,
  mesh: Mesh,
): Cut {
  const sizes = pieces?.[factor];
  if (!sizes) return plainCut(axes[factor] ?? [], size, mesh);
  return joinCuts(
    sizes.map((piece, index) => plainCut(axes[pieceName(factor, index)] ?? [], piece, mesh)),
    sizes,
  );
}

/** The layout of a tensor of `shape` with these cuts, not partial, in merged form. */
export function layoutOfCuts(shape: readonly number[], cuts: readonly Cut[], mesh: Mesh): Layout {
  const dims: Piece[][] = [];
  const extents: Extent[][] = [];
  shape.forEach((size, dimension) => {
    const pieces = piecesOfCut(cuts[dimension] ?? UNCUT, size, mesh);
    extents.push(
      pieces.map((piece) => ({ valid: piece.size, size: paddedSize(piece.size, axesSize(mesh, piece.axes)) })),
    );
    dims.push(pieces.map((piece, index) => ({ ...piece, size: extents[dimension]?.[index]?.size ?? piece.size })));
  });
  return normalise(dims, [], mesh, extents);
}

/** Per dimension the cut of a layout. */
export function cutsOfLayout(layout: Layout, mesh: Mesh): readonly Cut[] {
  return layout.dims.map((pieces, dimension) => {
    if (pieces.every((piece) => piece.axes.length === 0)) return UNCUT;
    const parts = layout.extents?.[dimension];
    return parts ? paddedCut(pieces, parts, mesh) : cutOfDigits(digitsOf(pieces, mesh));
  });
}

/**
 * Pieces with unpadded sizes: runs of axes with the whole positions behind them, which are pieces of their own after padded runs.
 */
function piecesOfCut(cut: Cut, size: number, mesh: Mesh): readonly Piece[] {
  const pieces: { size: number; axes: readonly SubAxis[]; padded: boolean }[] = [];
  const addWhole = (whole: number) => {
    const last = pieces.at(-1);
    if (whole === 1) return;
    if (last && !last.padded) last.size *= whole;
    else pieces.push({ size: whole, axes: [], padded: false });
  };
  let rest = size;
  for (const item of cut) {
    const end = item.stride * item.size;
    const padded = item.size % axesSize(mesh, item.axes) !== 0;
    const last = pieces.at(-1);
    if (rest === end && last && last.axes.length > 0 && !last.padded && !padded) {
      last.axes = [...last.axes, ...item.axes];
      last.size *= item.size;
    } else {
      addWhole(rest / end);
      pieces.push({ size: item.size, axes: item.axes, padded });
    }
    rest = item.stride;
  }
  addWhole(rest);
  return pieces.length > 0 ? pieces.map(({ size: own, axes }) => ({ size: own, axes })) : [{ size, axes: [] }];
}

function cutOfDigits(digits: ReturnType<typeof digitsOf>): Cut {
  const strides = stridesOf(digits);
  return digits.flatMap(({ axis, size }, index) =>
    axis === null ? [] : [{ axes: [axis], size, stride: strides[index] ?? 1 }],
  );
}

/**
 * The cut of a padded dimension. Extents have joined the parts behind a padded unit with it, so the stride of the unit is the
 * smallest one with which padding gives the size of the extent.
 */
function paddedCut(pieces: readonly Piece[], parts: readonly Extent[], mesh: Mesh): Cut {
  const digits = [...digitsOf(pieces, mesh)];
  const cuts: Cut[] = [];
  for (const part of parts) {
    const own: (typeof digits)[number][] = [];
    for (let rest = part.size; rest > 1; ) {
      const digit = digits.shift();
      if (!digit) break;
      if (digit.size <= rest) {
        own.push(digit);
        rest /= digit.size;
      } else {
        own.push({ axis: null, size: rest });
        digits.unshift({ axis: null, size: digit.size / rest });
        rest = 1;
      }
    }
    cuts.push(part.size === part.valid ? cutOfDigits(own) : paddedPart(own, part, mesh));
  }
  return joinCuts(
    cuts,
    parts.map((part) => part.valid),
  );
}

function paddedPart(digits: ReturnType<typeof digitsOf>, { size, valid }: Extent, mesh: Mesh): Cut {
  const end = digits.findIndex((digit) => digit.axis === null);
  const leading = digits.slice(0, end < 0 ? digits.length : end).flatMap((digit) => digit.axis ?? []);
  const shards = axesSize(mesh, leading);
  for (let unit = 1; unit <= valid; unit++) {
    if (valid % unit !== 0 || paddedSize(valid / unit, shards) * unit !== size) continue;
    const inner = cutOfDigits(digits.slice(leading.length)).filter((item) => item.stride * item.size <= unit);
    return [{ axes: leading, size: valid / unit, stride: unit }, ...inner];
  }
  return UNCUT;
}

/** Goes through a cut; items that continue a refused item without a gap are refused with it. */
function keepRuns(cut: Cut, keep: (item: CutItem) => boolean): void {
  let refusedAt = 0;
  for (const item of cut) {
    if (refusedAt === item.stride * item.size || !keep(item)) refusedAt = item.stride;
  }
}

function inserted(cut: Cut, item: CutItem, total: number): Cut | null {
  const end = item.stride * item.size;
  if (total % end !== 0) return null;
  const covered = cut.filter((own) => own.stride >= item.stride && own.stride * own.size <= end);
  // A padded unit replaces items that shard the same unit by the first of its axes.
  const takesOver = item.axes.length > 1 && startsWith(item.axes, axesOfCut(covered));
  const others = takesOver ? cut.filter((own) => !covered.includes(own)) : cut;
  for (const own of others) {
    const ownEnd = own.stride * own.size;
    const above = own.stride >= end && own.stride % end === 0;
    const below = item.stride >= ownEnd && item.stride % ownEnd === 0;
    if ((!above && !below) || own.axes.some((axis) => item.axes.includes(axis))) return null;
  }
  return [...others, item].sort((a, b) => b.stride - a.stride);
}

function scaled(item: CutItem, by: number): CutItem {
  return by === 1 ? item : { ...item, stride: item.stride * by };
}

function sameItem(a: CutItem, b: CutItem): boolean {
  return a.stride === b.stride && a.size === b.size && a.axes.length === b.axes.length && startsWith(a.axes, b.axes);
}

function startsWith(axes: readonly SubAxis[], start: readonly SubAxis[]): boolean {
  return start.every((axis, index) => axes[index] === axis);
}
