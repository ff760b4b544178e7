/**
 * @file Layouts as device matrix and tensor map.
 *
 *     mesh dp 2 · tp 4, layout [(dp,tp), -]     device matrix (2, 4), tensor map ((1, 0), (-1))
 *     in one list, without names                device matrix (8),    tensor map (0, -1)
 *
 * A mesh axis is one axis of the device matrix as long as the layout uses it as a whole; where it uses sub-axes apart,
 * each is an axis of its own. Pieces, padding and partial sums have no form in this notation.
 */
import { type Layout, normalise, type Piece } from '../../sharding-propagation/layout.js';
import { type Mesh, type SubAxis, subAxes } from '../../sharding-propagation/mesh.js';
import { type DeviceLayout, type MindSporeStrategy, type NamedLayout, stageDevices } from './document.js';

/** Number of shards of each dimension of a layout. */
export function splitCounts(layout: Layout, mesh: Mesh): readonly number[] {
  const sizes = new Map(subAxes(mesh).map(({ name, size }) => [name, size]));
  return layout.dims.map((pieces) =>
    pieces.flatMap((piece) => piece.axes).reduce((product, axis) => product * (sizes.get(axis) ?? 1), 1),
  );
}

/** The layout as device matrix and tensor map, partial sums left out; null where a dimension is in pieces or padded. */
export function deviceLayout(layout: Layout, mesh: Mesh): NamedLayout | null {
  if (layout.dims.some(inPieces) || layout.extents?.some((extents) => extents !== null)) return null;
  const dims = layout.dims.map((pieces) => pieces[0]?.axes ?? []);
  const axes = mesh.axes
    .filter(({ size }) => size > 1)
    .flatMap(({ name, size, subAxes: subs }) => {
      const names = subs.map((sub) => sub.name);
      if (usedAsWhole(names, dims)) return [{ alias: name, size, parts: names }];
      return subs.map((sub) => ({ alias: sub.name, size: sub.size, parts: [sub.name] }));
    });
  const fromRight = (alias: string) => axes.length - 1 - axes.findIndex((axis) => axis.alias === alias);
  return {
    deviceMatrix: axes.length === 0 ? [1] : axes.map(({ size }) => size),
    tensorMap: dims.map((used) => {
      const aliases = axes.filter(({ parts }) => used.includes(parts[0] ?? ''));
      const ordered = aliases.sort((a, b) => used.indexOf(a.parts[0] ?? '') - used.indexOf(b.parts[0] ?? ''));
      return ordered.length === 0 ? [-1] : ordered.map(({ alias }) => fromRight(alias));
    }),
    interleaved: false,
    aliases: axes.map(({ alias }) => alias),
  };
}

/**
 * The same shards with at most one axis per dimension: axes that are side by side in the matrix and shard one dimension
 * in that order become one. Null where axes that are not side by side shard a dimension together.
 */
export function flatLayout({ deviceMatrix, tensorMap }: DeviceLayout): DeviceLayout | null {
  const runs = tensorMap.filter((axes) => axes.length > 1);
  if (runs.some((axes) => axes.some((axis, index) => index > 0 && axis !== (axes[index - 1] ?? 0) - 1))) return null;
  const count = deviceMatrix.length;
  const joined = new Set(runs.flatMap((axes) => axes.slice(1)));
  const matrix: number[] = [];
  const place = new Map<number, number>();
  deviceMatrix.forEach((size, index) => {
    const axis = count - 1 - index;
    if (joined.has(axis)) matrix[matrix.length - 1] = (matrix.at(-1) ?? 1) * size;
    else {
      place.set(axis, matrix.length);
      matrix.push(size);
    }
  });
  return {
    deviceMatrix: matrix,
    tensorMap: tensorMap.map(([first = -1]) => [first === -1 ? -1 : matrix.length - 1 - (place.get(first) ?? 0)]),
  };
}

/**
 * The layout of a tensor of `shape` on a mesh that has as many devices as the matrix; null where the matrix divides the
 * devices otherwise than the mesh's sub-axes do, or the shards do not divide the shape.
 */
export function layoutOfDevices(
  { deviceMatrix, tensorMap }: DeviceLayout,
  shape: readonly number[],
  mesh: Mesh,
): Layout | null {
  if (tensorMap.length !== shape.length) return null;
  const byAxis = axesOfMatrix(deviceMatrix, mesh);
  if (!byAxis) return null;
  const dims = tensorMap.map((axes, dimension) => {
    const used = axes.filter((axis) => axis !== -1);
    const parts = used.reduce((product, axis) => product * (deviceMatrix[deviceMatrix.length - 1 - axis] ?? 1), 1);
    const size = shape[dimension] ?? 1;
    return {
      size,
      divides: size % parts === 0,
      axes: used.flatMap((axis) => byAxis[deviceMatrix.length - 1 - axis] ?? []),
    };
  });
  if (dims.some(({ divides }) => !divides)) return null;
  return normalise(
    dims.map(({ size, axes }) => [{ size, axes }]),
    [],
    mesh,
  );
}

/** Degrees of the mesh of a stage that a checkpoint may be for; sp is left out where it is 1. */
export interface MatrixDegrees {
  readonly dp: number;
  readonly sp?: number;
  readonly tp: number;
}

/**
 * The degrees that a checkpoint was probably made on: by the names of its axes where it has them, else by its most frequent
 * device matrix: the last of two axes is tp; one axis is tp alone where it shards a parameter, else dp. Without names, sp has to
 * be given; then the first of two axes is dp.
 * @param given degrees that are known; the other follows from them
 */
export function likelyDegrees(
  document: MindSporeStrategy,
  devices?: number,
  given: Partial<MatrixDegrees> = {},
): MatrixDegrees {
  const all = stageDevices(document).devices ?? devices ?? 1;
  const sequence = given.sp === undefined || given.sp === 1 ? {} : { sp: given.sp };
  const count = othersOf(all, given.sp);
  if (given.dp !== undefined || given.tp !== undefined) {
    const { tp = othersOf(count, given.dp), dp = othersOf(count, tp) } = given;
    return { dp, ...sequence, tp };
  }
  for (const { aliases, deviceMatrix } of [...document.operandLayouts.values()].flat()) {
    const sizeOf = (axis: string) =>
      aliases.reduce((size, name, at) => size * (name.split('.')[0] === axis ? (deviceMatrix[at] ?? 1) : 1), 1);
    const [dp, sp] = [sizeOf('dp'), given.sp ?? sizeOf('sp')];
    const known = aliases.every((name) => /^(dp|sp|tp)(\.|$)/.test(name));
    if (aliases.length > 0 && known && all % (dp * sp) === 0)
      return { dp, ...(sp === 1 ? {} : { sp }), tp: all / (dp * sp) };
  }
  const matrices = new Map<string, number>();
  const layouts = [...document.parameters.values()];
  const isCut = layouts.some(({ tensorMap }) => tensorMap.flat().some((axis) => axis !== -1));
  const hasSequence = sequence.sp !== undefined;
  for (const { deviceMatrix } of layouts) {
    const dp = deviceMatrix.length === 1 && (isCut || hasSequence) ? 1 : (deviceMatrix[0] ?? 1);
    if (deviceMatrix.length <= (hasSequence ? 3 : 2)) matrices.set(`${dp}`, (matrices.get(`${dp}`) ?? 0) + 1);
  }
  const [most] = [...matrices].sort(([, a], [, b]) => b - a);
  const dp = most ? Number(most[0]) : 1;
  return count % dp === 0 ? { dp, ...sequence, tp: count / dp } : { dp: 1, ...sequence, tp: count };
}

/** The ranks that a degree leaves to the other one; 1 where it does not divide them. */
function othersOf(devices: number, degree = 1): number {
  return devices % degree === 0 ? devices / degree : 1;
}

/** Per axis of the matrix its sub-axes: both number the same ranks, the last axis fastest. */
function axesOfMatrix(deviceMatrix: readonly number[], mesh: Mesh): readonly (readonly SubAxis[])[] | null {
  const rest = [...subAxes(mesh)];
  const result = deviceMatrix.map((size) => {
    const taken: SubAxis[] = [];
    let product = 1;
    while (product < size) {
      const sub = rest.shift();
      if (!sub) return null;
      taken.push(sub.name);
      product *= sub.size;
    }
    return product === size ? taken : null;
  });
  return rest.length === 0 && result.every((axes) => axes !== null) ? result : null;
}

function usedAsWhole(names: readonly SubAxis[], dims: readonly (readonly SubAxis[])[]): boolean {
  const used = dims.filter((axes) => axes.some((axis) => names.includes(axis)));
  if (used.length === 0) return true;
  const [axes = []] = used;
  const start = axes.indexOf(names[0] ?? '');
  return used.length === 1 && start >= 0 && names.every((name, index) => axes[start + index] === name);
}

function inPieces(pieces: readonly Piece[]): boolean {
  return pieces.length > 1;
}
