/**
 * @file Borders (halos): the positions that a block of a dimension under windows needs from its neighbours.
 *
 *     x [16] in 4 blocks, windows of 3 that reach 1 position into padding, y [16]
 *     rank 1 makes y 4 … 7 and reads x 3 … 8: position 3 of rank 0, position 8 of rank 2
 *
 * Blocks are equal, and so are borders: every rank sends as much as the one that has to send most. A rank reads from its own
 * block and those beside it only; a window that reaches further has no lowering.
 */
import type { Factor, FactorRule, Halo } from '../ir/factor-rule.js';
import type { SubAxis } from './mesh.js';

/** The positions of a dimension that ranks read. */
export interface Borders {
  /** Positions of a rank's own block, padding included. */
  readonly block: number;
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

/** `size` positions under windows, one for each of `read` positions, both in so many blocks. */
export function bordersOf(halo: Halo, size: number, read: number, blocks: number): Borders {
  const [block, own] = [Math.ceil(size / blocks), Math.ceil(read / blocks)];
  const ranks = Array.from({ length: blocks }, (_, rank) => rank);
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
    block,
    length,
    starts,
    before: reach(starts.map((start, rank) => Math.min(rank * block, size) - Math.max(start, 0))),
    behind: reach(starts.map((start, rank) => Math.min(start + length, size) - (rank + 1) * block)),
  };
}

/** Why a factor's windows keep it from being sharded into so many blocks, as a sentence's end; null where they do not. */
export function borderProblem(rule: FactorRule, name: string, blocks: number): string | null {
  const read = rule.factors.get(name)?.size ?? 1;
  for (const { name: own, size, halo } of rule.factors.values()) {
    if (halo?.of !== name || blocks === 1) continue;
    const reachOf = (count: number) => {
      const { before, behind, block } = bordersOf(halo, size, read, count);
      return { most: Math.max(before, behind), block };
    };
    const fits = (count: number) => size >= count && reachOf(count).most <= reachOf(count).block;
    if (fits(blocks)) continue;
    let degree = Math.floor(blocks / 2);
    while (degree > 1 && (blocks % degree !== 0 || !fits(degree))) degree--;
    const { most, block } = reachOf(blocks);
    const remedy = degree > 1 ? `${degree} parts are possible` : 'it cannot be sharded';
    return size < blocks
      ? `factor ${own}: its size ${size} is less than ${blocks} parts; ${remedy}`
      : `factor ${own}: in ${blocks} parts its shards have ${block} of ${size} positions, and windows of ` +
          `${halo.reach} reach ${most} beyond; ${remedy}`;
  }
  return null;
}
