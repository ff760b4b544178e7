/**
 * @file The work of ranks in a ring whose attention is causal and whose sequence is in zig-zag order: rank r has the pieces r
 * and 2n − 1 − r of 2n. Its two pieces of queries and the two pieces of a chunk of keys have four products. Every rank needs
 * three at its own chunk and two at each other one, so that all have the same work (Llama 3 training, Dubey et al. 2024):
 *
 *     rank r, keys of rank r        keys of j < r          keys of j > r
 *              r    2n−1−r                j    2n−1−j             j    2n−1−j
 *     r        ╲      ·              r    ■      ·           r    ·      ·
 *     2n−1−r   ■      ╲         2n−1−r    ■      ·      2n−1−r    ■      ■
 *
 * So every hop computes the second piece of queries with the first piece of keys. The other product depends on the rank: it is
 * data, a table that ranks look up.
 */

/** Pieces of a chunk. */
export const PIECES = 2;

/**
 * The product of a piece of the rank's own positions with a piece of the hop's chunk; with `byRank`, of the same piece of both.
 */
export interface HopPart {
  readonly own: number;
  readonly other: number;
  /** By member of the ring: which piece it is of both, in place of `own` and `other`. */
  readonly byRank?: readonly number[];
}

/** The products of a hop of `count`, at which rank r has the chunk of rank r − hop. */
export function partsOfHop(hop: number, count: number, isZigzag: boolean): readonly HopPart[] {
  if (!isZigzag) return [{ own: 0, other: 0 }];
  const always = { own: 1, other: 0 };
  if (hop === 0) return [{ own: 0, other: 0 }, always, { own: 1, other: 1 }];
  // A chunk of a rank behind comes first in the sequence, one of a rank before, round the ring, follows.
  const byRank = Array.from({ length: count }, (_, rank) => (rank >= hop ? 0 : 1));
  return [always, { own: 0, other: 0, byRank }];
}
