/**
 * @file Borders (halos): the positions that a shard of a dimension under windows needs from its neighbours.
 *
 *     x [16] in 4 shards, windows of 3 that reach 1 position into padding, y [16]
 *     rank 1 makes y 4 … 7 and reads x 3 … 8: position 3 of rank 0, position 8 of rank 2
 *
 * Shards are equal, and so are borders: every rank sends as much as the one that has to send most. A rank reads from its own
 * shard and those beside it only; a window that reaches further has no lowering.
 */
import type { Factor, FactorRule, Halo } from '../ir/factor-rule.js';
import type { SubAxis } from './mesh.js';

/** The positions of a dimension that ranks read. */
export interface Borders {
  /** Positions of a rank's own shard, padding included. */
  readonly shardSize: number;
  /** Positions that a rank receives from the one before it, and from the one after it. */
  readonly before: number;
  readonly behind: number;
  /** Positions that a rank reads, and by rank the first of them: below zero where it is padding. */
  readonly length: number;
  readonly starts: readonly number[];
}

/** Per factor that is sharded: its sub-axes, major to minor. */
export type FactorSubAxes = Readonly<Record<string, readonly SubAxis[]>>;

/** Factors that are sharded because another is, with their halo on that one. */
export function followers(
  rule: FactorRule,
  axes: Readonly<Record<string, unknown>>,
): readonly (readonly [Factor, Halo])[] {
  return [...rule.factors.values()].flatMap((factor) =>
    factor.halo && axes[factor.halo.of] !== undefined ? [[factor, factor.halo] as const] : [],
  );
}

/** Axes of all factors: followers have those of the factor that they follow. */
export function withFollowers(rule: FactorRule, axes: FactorSubAxes): FactorSubAxes {
  const more = followers(rule, axes);
  if (more.length === 0) return axes;
  return { ...axes, ...Object.fromEntries(more.map(([{ name }, { of }]) => [name, axes[of] ?? []])) };
}

/** `size` positions under windows, one for each of `read` positions, both in so many shards. */
export function bordersOf(halo: Halo, size: number, read: number, shards: number): Borders {
  const [shardSize, own] = [Math.ceil(size / shards), Math.ceil(read / shards)];
  const ranks = Array.from({ length: shards }, (_, rank) => rank);
  // Windows may leave gaps between them: positions from which nothing is made are read all the same, so that their rank has them.
  const first = (at: number) => (at * halo.stride - halo.before) / halo.up;
  const last = (at: number) => (at * halo.stride - halo.before + halo.reach - 1) / halo.up;
  const starts = ranks.map((rank) => Math.min(Math.ceil(first(rank * own)), Math.floor(last(rank * own))));
  const ends = ranks
    .map((_, rank) => (rank + 1) * own - 1)
    .map((at) => Math.max(Math.floor(last(at)), Math.ceil(first(at))) + 1);
  const length = Math.max(...starts.map((start, rank) => (ends[rank] ?? start) - start));
  const reach = (wanted: readonly number[]) => wanted.reduce((most, count) => Math.max(most, count), 0);
  return {
    shardSize,
    length,
    starts,
    before: reach(starts.map((start, rank) => Math.min(rank * shardSize, size) - Math.max(start, 0))),
    behind: reach(starts.map((start, rank) => Math.min(start + length, size) - (rank + 1) * shardSize)),
  };
}

/** Why a factor's windows keep it from being sharded into so many parts, as a sentence's end; null where they do not. */
export function borderProblem(rule: FactorRule, name: string, shards: number): string | null {
  const read = rule.factors.get(name)?.size ?? 1;
  for (const { name: own, size, halo } of rule.factors.values()) {
    if (halo?.of !== name || shards === 1) continue;
    const reachOf = (count: number) => {
      const { before, behind, shardSize } = bordersOf(halo, size, read, count);
      return { most: Math.max(before, behind), shardSize };
    };
    const fits = (count: number) => size >= count && reachOf(count).most <= reachOf(count).shardSize;
    if (fits(shards)) continue;
    let degree = Math.floor(shards / 2);
    while (degree > 1 && (shards % degree !== 0 || !fits(degree))) degree--;
    const { most, shardSize } = reachOf(shards);
    const remedy = degree > 1 ? `${degree} parts are possible` : 'it cannot be sharded';
    return size < shards
      ? `factor ${own}: its size ${size} is less than ${shards} parts; ${remedy}`
      : `factor ${own}: in ${shards} parts its shards have ${shardSize} of ${size} positions, and windows of ` +
          `${halo.reach} reach ${most} beyond; ${remedy}`;
  }
  return null;
}
