/**
 * @file The device mesh: named axes from outermost to innermost, each an ordered product of prime sub-axes.
 *
 * Strategies and layouts assign sub-axes, so that one half of an axis of 4 can shard one factor and the other half another
 * (two key heads on tp 4). A sub-axis is written `tp.0`; an axis of prime size has one sub-axis, written `tp`.
 */

import { AutoparError } from '../ir/error.js';
import { remembered } from '../ir/remembered.js';

/** More than any machine has; far fewer than numbers allow, so that a typing error is reported at once. */
export const MOST_DEVICES = 2 ** 20;

/** More stages than any pipeline has. */
export const MOST_STAGES = 2 ** 12;

/** Name of a sub-axis: `tp` where the axis has just one, else `tp.0`, `tp.1`, … major to minor. */
export type SubAxis = string;

export interface MeshAxis {
  readonly name: string;
  readonly size: number;
  /** Prime sizes, major to minor; their product is `size`. Empty for an axis of size 1. */
  readonly subAxes: readonly { readonly name: SubAxis; readonly size: number }[];
}

/** Axes from outermost to innermost: the last axis varies fastest over consecutive ranks. */
export interface Mesh {
  readonly axes: readonly MeshAxis[];
  /** Sub-axes that experts are sharded over (roles.ts); left out where they are whole. */
  readonly experts?: readonly SubAxis[];
}

/** Default order, outermost first: the heaviest traffic (tp) stays on the fastest links. */
export const AXIS_ORDER = ['pp', 'dp', 'sp', 'tp'] as const;

/** The axis whose ranks hold different operators; all others are of the mesh that operators are sharded over. */
export const STAGE_AXIS = AXIS_ORDER[0];

/**
 * A mesh of the given sizes, in the order given.
 * @throws AutoparError `bad-devices` (usage) for a size that is not a positive integer, and for more devices than MOST_DEVICES
 */
export function makeMesh(sizes: readonly (readonly [name: string, size: number])[]): Mesh {
  const devices = sizes.reduce((product, [, size]) => product * size, 1);
  if (devices > MOST_DEVICES || !sizes.every(([, size]) => Number.isInteger(size) && size >= 1)) {
    const written = sizes.map(([name, size]) => `${name} ${size}`).join(' · ');
    throw new AutoparError(
      'bad-devices',
      'usage',
      `the degrees ${written} make ${devices} devices; autopar plans for 1 to ${MOST_DEVICES}`,
      {},
      'check the degrees',
    );
  }
  return { axes: sizes.map(([name, size]) => ({ name, size, subAxes: subAxesOf(name, size) })) };
}

/** Number of ranks. */
export function deviceCount(mesh: Mesh): number {
  return mesh.axes.reduce((product, axis) => product * axis.size, 1);
}

/** All sub-axes, outermost first: every step of every resharding needs them. */
export const subAxes = remembered((mesh: Mesh): MeshAxis['subAxes'] => mesh.axes.flatMap((axis) => axis.subAxes));

export function hasSubAxis(mesh: Mesh, name: SubAxis): boolean {
  return mesh.axes.some((axis) => axis.subAxes.some((sub) => sub.name === name));
}

/** Sub-axes by their name, by that of their axis, or of the axis that stages of unlike meshes share: `rank` for `rank.0`. */
export function subAxesNamed(mesh: Mesh, name: string): readonly SubAxis[] {
  const axis = mesh.axes.find((candidate) => candidate.name === name);
  const found = axis?.subAxes ?? subAxes(mesh).filter((sub) => sub.name === name || sub.name.startsWith(`${name}.`));
  return found.map((sub) => sub.name);
}

/** Size of a sub-axis; throws on a name that the mesh lacks. */
export function subAxisSize(mesh: Mesh, name: SubAxis): number {
  for (const axis of mesh.axes) for (const sub of axis.subAxes) if (sub.name === name) return sub.size;
  throw new Error(`mesh has no sub-axis ${name}`);
}

/** Number of shards that a list of sub-axes makes. */
export function axesSize(mesh: Mesh, names: readonly SubAxis[]): number {
  let product = 1;
  for (const name of names) product *= subAxisSize(mesh, name);
  return product;
}

/** A rank's coordinate on every sub-axis. */
export function coordinatesOf(mesh: Mesh, rank: number): ReadonlyMap<SubAxis, number> {
  const strides = rankStrides(mesh);
  const sizes = subAxes(mesh);
  return new Map(sizes.map(({ name, size }) => [name, Math.floor(rank / (strides.get(name) ?? 1)) % size]));
}

/** Mixed-radix index of a rank on a list of sub-axes, the first being major: which shard it holds. */
export function indexOn(mesh: Mesh, names: readonly SubAxis[], rank: number): number {
  const coordinates = coordinatesOf(mesh, rank);
  return names.reduce((index, name) => index * subAxisSize(mesh, name) + (coordinates.get(name) ?? 0), 0);
}

/**
 * The groups that a collective over `names` runs in: each a list of ranks ordered by indexOn(names), so that
 * the k-th member holds the k-th shard; groups in ascending order of their smallest rank.
 */
export function groupsOn(mesh: Mesh, names: readonly SubAxis[]): readonly (readonly number[])[] {
  const others = subAxes(mesh).flatMap(({ name }) => (names.includes(name) ? [] : [name]));
  const members = ranksAlong(mesh, names);
  return ranksAlong(mesh, others).map((smallest) => members.map((rank) => smallest + rank));
}

/** The ranks that agree with rank 0 on every other sub-axis, in the order of indexOn(names). */
function ranksAlong(mesh: Mesh, names: readonly SubAxis[]): readonly number[] {
  const strides = rankStrides(mesh);
  let ranks: readonly number[] = [0];
  for (const name of names) {
    const size = subAxisSize(mesh, name);
    const stride = strides.get(name) ?? 0;
    ranks = ranks.flatMap((rank) => Array.from({ length: size }, (_, index) => rank + index * stride));
  }
  return ranks;
}

/** The distance in ranks between neighbours on each sub-axis, innermost first. */
export const rankStrides = remembered((mesh: Mesh): ReadonlyMap<SubAxis, number> => {
  const strides = new Map<SubAxis, number>();
  let stride = 1;
  for (const { name, size } of [...subAxes(mesh)].reverse()) {
    strides.set(name, stride);
    stride *= size;
  }
  return strides;
});

function subAxesOf(name: string, size: number): MeshAxis['subAxes'] {
  const primes = primeFactors(size);
  return primes.map((prime, index) => ({ name: primes.length === 1 ? name : `${name}.${index}`, size: prime }));
}

/** The sizes of an axis's sub-axes: largest first, so that the major one is the coarsest cut: 12 → [3, 2, 2]. */
export function primeFactors(size: number): readonly number[] {
  const primes: number[] = [];
  let rest = size;
  for (let prime = 2; prime * prime <= rest; prime++) {
    for (; rest % prime === 0; rest /= prime) primes.push(prime);
  }
  if (rest > 1) primes.push(rest);
  return primes.reverse();
}
