/**
 * @file A layout as ONNX's ShardingSpecProto, and back.
 *
 *     [-, tp] of [8, 12] on dp 2 · tp 2     sharded_dim {axis 1: 12 in 2 shards}
 *     ranks 0 and 2 hold shard 0            device [-1, -2], groups {-1: [0, 2], -2: [1, 3]}
 *
 * `device` lists shards in row-major order over the sharded dimensions; a negative entry is a group of devices that hold
 * the same shard. A dimension with several simple shardings is a product of parts, each sharded by itself: its pieces.
 */
import { AutoparError } from '../../ir/error.js';
import type { Integer64, ShardingSpecProto } from '../../ir/onnx/schema.js';
import { integerOf } from '../../ir/onnx/tensors.js';
import type { Extent, Layout, Piece } from '../../sharding-propagation/layout.js';
import { parseLayout } from '../../sharding-propagation/layout-text.js';
import {
  axesSize,
  coordinatesOf,
  deviceCount,
  type Mesh,
  MOST_DEVICES,
  type SubAxis,
  subAxes,
  subAxisSize,
} from '../../sharding-propagation/mesh.js';

/**
 * The spec of a tensor, partial sums left out: ONNX has none. Devices are ranks, those of a stage numbered from its `first` on. A
 * padded dimension is given with its own size, whose last shard is shorter; null where it is padded otherwise, which ONNX cannot
 * express.
 */
export function specOfLayout(tensor: string, layout: Layout, mesh: Mesh, first = 0): ShardingSpecProto | null {
  const padded = (axis: number) => layout.extents?.[axis] ?? null;
  if (layout.dims.some((pieces, axis) => !paddedAtEnd(pieces, padded(axis), mesh))) return null;
  const cut = layout.dims.flatMap((pieces, axis) =>
    pieces.some((piece) => piece.axes.length > 0) ? [{ axis, pieces }] : [],
  );
  const axes = cut.flatMap(({ pieces }) => pieces.flatMap((piece) => piece.axes));
  const groups = groupsByShard(axes, mesh).map((ranks) => ranks.map((rank) => first + rank));
  const alone = groups.every((ranks) => ranks.length === 1);
  return {
    tensor_name: tensor,
    device: groups.map((ranks, shard) => (alone ? (ranks[0] ?? 0) : -shard - 1)),
    ...(alone ? {} : { index_to_device_group_map: groups.map((value, shard) => ({ key: -shard - 1, value })) }),
    sharded_dim: cut.map(({ axis, pieces }) => ({
      axis,
      simple_sharding: pieces.map((piece) => ({
        dim_value: padded(axis)?.reduce((size, { valid }) => size * valid, 1) ?? piece.size,
        num_shards: axesSize(mesh, piece.axes),
      })),
    })),
  };
}

/** Whether padding, if any, just fills the last shard: a reader pads in this way a size that shards do not divide. */
function paddedAtEnd(pieces: readonly Piece[], extents: readonly Extent[] | null, mesh: Mesh): boolean {
  if (!extents) return true;
  const [[piece, ...more], [extent, ...others]] = [pieces, extents];
  if (!piece || !extent || more.length + others.length > 0) return false;
  const shards = axesSize(mesh, piece.axes);
  return piece.size === Math.ceil(extent.valid / shards) * shards;
}

/** A spec as it is read: how each dimension is sharded, and which ranks hold each shard, in row-major order. */
export interface ReadSpec {
  readonly tensor: string;
  /** Per dimension its parts, major to minor; a size is null where the file names it only. */
  readonly cuts: readonly (readonly { readonly size: number | null; readonly shards: number }[])[];
  readonly holders: readonly (readonly number[])[];
}

/**
 * Reads a spec for a tensor of `rank` dimensions.
 * @returns a clause that states what is wrong with it, where it is not valid
 */
export function readSpec(spec: ShardingSpecProto, rank: number): ReadSpec | string {
  const cuts = Array.from({ length: rank }, (): { size: number | null; shards: number }[] => []);
  for (const { axis: given, simple_sharding: parts } of spec.sharded_dim ?? []) {
    const axis = integerOf(given) < 0 ? integerOf(given) + rank : integerOf(given);
    const cut = cuts[axis];
    if (!cut) return `axis ${integerOf(given)} is not an axis of a tensor of ${rank} dimensions`;
    if (cut.length > 0) return `axis ${axis} is sharded twice`;
    for (const part of parts ?? []) {
      const shards = integerOf(part.num_shards);
      if (shards < 1) return `axis ${axis} is cut into ${shards} shards`;
      cut.push({ size: sizeOf(part), shards });
    }
  }
  const groups = new Map<number, readonly number[]>(
    (spec.index_to_device_group_map ?? []).map(({ key, value }) => [integerOf(key), (value ?? []).map(integerOf)]),
  );
  const holders = (spec.device ?? []).map((device: Integer64) => groups.get(integerOf(device)) ?? [integerOf(device)]);
  const shards = cuts.flat().reduce((product, part) => product * part.shards, 1);
  // A file that names one long group many times would take more memory than there is.
  const listed = holders.reduce((sum, group) => sum + group.length, 0);
  if (listed > MOST_DEVICES) return `its groups list ${listed} devices, more than the ${MOST_DEVICES} there can be`;
  if (holders.length !== shards && !(shards === 1 && holders.length > 1))
    return `its dimensions make ${shards} shards, ${holders.length} devices or groups are listed`;
  if (holders.flat().some((device) => device < 0)) return 'a named device group is not defined';
  return { tensor: spec.tensor_name ?? '', cuts, holders: shards === 1 ? [holders.flat()] : holders };
}

/** The layout on this mesh whose every shard is on just the devices that the spec lists; null if none. */
export function layoutOfSpec(spec: ReadSpec, shape: readonly number[], mesh: Mesh): Layout | null {
  const everyone = spec.holders.flat();
  if (new Set(everyone).size !== deviceCount(mesh) || everyone.length !== deviceCount(mesh)) return null;
  const shardOf = new Map(spec.holders.flatMap((ranks, shard) => ranks.map((rank) => [rank, shard] as const)));
  const parts = spec.cuts.flatMap((cut) => cut.map((part) => part.shards));
  const digits = subAxes(mesh).map(({ name }) => ({ name, ranks: rankAlong(mesh, name) }));
  const first = digitsOf(shardOf.get(0) ?? 0, parts);
  if (first.some((digit) => digit !== 0)) return null;
  const axesByPart = parts.map((count, part): readonly SubAxis[] | null => {
    const stride = (rank: number) => digitsOf(shardOf.get(rank) ?? 0, parts)[part] ?? 0;
    const moving = digits
      .map(({ name, ranks }) => ({ name, step: stride(ranks) }))
      .filter(({ step }) => step > 0)
      .sort((a, b) => b.step - a.step)
      .map(({ name }) => name);
    return axesSize(mesh, moving) === count ? moving : null;
  });
  if (axesByPart.some((axes) => axes === null)) return null;
  const dims: string[] = [];
  let next = 0;
  for (const [dimension, cut] of spec.cuts.entries()) {
    const size = shape[dimension] ?? 1;
    const known = cut.reduce((product, part) => product * (part.size ?? 1), 1);
    const open = cut.filter((part) => part.size === null).length;
    if (cut.length > 0 && (open > 1 || (open === 0 && known !== size) || size % known !== 0)) return null;
    const parts = cut.map((part) => ({ size: part.size ?? size / known, axes: axesByPart[next++] ?? [] }));
    dims.push(parts.length === 0 ? '-' : `(${parts.map(pieceText).join(' | ')})`);
  }
  const layout = layoutFromText(`[${dims.join(', ')}]`, shape, mesh);
  return layout && sameHolders(layout, spec, mesh) ? layout : null;
}

function pieceText({ size, axes }: Piece): string {
  return axes.length === 0 ? `${size}` : `${size}:(${axes.join(',')})`;
}

/** Null where the axes give more shards than there are elements, or shard twice. */
function layoutFromText(text: string, shape: readonly number[], mesh: Mesh): Layout | null {
  try {
    return parseLayout(text, shape, mesh);
  } catch (error) {
    if (error instanceof AutoparError) return null;
    throw error;
  }
}

/** The spec with devices counted from the first of a stage. */
export function inStage(spec: ReadSpec, first: number): ReadSpec {
  return first === 0 ? spec : { ...spec, holders: spec.holders.map((ranks) => ranks.map((rank) => rank - first)) };
}

/** The number of shards of each dimension. */
export function countsOfSpec(spec: ReadSpec): readonly number[] {
  return spec.cuts.map((cut) => cut.reduce((product, part) => product * part.shards, 1));
}

/** The ranks of each shard, shards in row-major order over `axes`. Most tensors of a plan share a few lists of axes. */
function groupsByShard(axes: readonly SubAxis[], mesh: Mesh): readonly (readonly number[])[] {
  const known = GROUPS.get(mesh) ?? new Map<string, readonly (readonly number[])[]>();
  GROUPS.set(mesh, known);
  const key = axes.join();
  const groups = known.get(key) ?? makeGroups(axes, mesh);
  known.set(key, groups);
  return groups;
}

/** A mesh never changes, so its groups are listed once. */
const GROUPS = new WeakMap<Mesh, Map<string, readonly (readonly number[])[]>>();

function makeGroups(axes: readonly SubAxis[], mesh: Mesh): readonly (readonly number[])[] {
  const groups = Array.from({ length: axesSize(mesh, axes) }, (): number[] => []);
  const strides = new Map<SubAxis, number>();
  let stride = 1;
  for (const axis of axes.toReversed()) {
    strides.set(axis, stride);
    stride *= subAxisSize(mesh, axis);
  }
  for (let rank = 0; rank < deviceCount(mesh); rank++) {
    const coordinates = coordinatesOf(mesh, rank);
    const shard = axes.reduce((index, axis) => index + (strides.get(axis) ?? 0) * (coordinates.get(axis) ?? 0), 0);
    groups[shard]?.push(rank);
  }
  return groups;
}

function sizeOf(part: { readonly dim_value?: Integer64 }): number | null {
  return Object.hasOwn(part, 'dim_value') ? integerOf(part.dim_value) : null;
}

/** The rank next to rank 0 along a sub-axis. */
function rankAlong(mesh: Mesh, name: SubAxis): number {
  let stride = 1;
  for (const sub of [...subAxes(mesh)].reverse()) {
    if (sub.name === name) return stride;
    stride *= sub.size;
  }
  throw new Error(`mesh has no sub-axis ${name}`);
}

/** Mixed-radix digits of a shard's number, major to minor. */
function digitsOf(shard: number, sizes: readonly number[]): readonly number[] {
  let rest = shard;
  return sizes
    .toReversed()
    .map((size) => {
      const digit = rest % size;
      rest = Math.floor(rest / size);
      return digit;
    })
    .reverse();
}

/** Whether the layout gives every shard the spec's ranks: steps along single axes find the axes, this check proves them. */
function sameHolders(layout: Layout, spec: ReadSpec, mesh: Mesh): boolean {
  const axes = layout.dims.flatMap((pieces) => pieces.flatMap((piece) => piece.axes));
  const groups = groupsByShard(axes, mesh);
  const key = (ranks: readonly (readonly number[])[]) =>
    JSON.stringify(ranks.map((group) => [...group].sort((a, b) => a - b)));
  return key(groups) === key(spec.holders);
}
