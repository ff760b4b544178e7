/**
 * @file What ranks compute in a ring whose attention is causal and whose sequence is in zig-zag order: rank r has the pieces r
 * and 2n − 1 − r of 2n. Of the four products of its two pieces of queries with the two pieces of a block of keys, every rank
 * needs three at its own block and two at each other one, so that all have the same work (Llama 3 training, Dubey et al. 2024):
 *
 *     rank r, keys of rank r        keys of j < r          keys of j > r
 *              r    2n−1−r                j    2n−1−j             j    2n−1−j
 *     r        ╲      ·              r    ■      ·           r    ·      ·
 *     2n−1−r   ■      ╲         2n−1−r    ■      ·      2n−1−r    ■      ■
 *
 * So the second piece of queries meets the first piece of keys at every hop. Which product is the other one depends on the rank:
 * it is data, a table that ranks look up.
 */

/** Pieces of a block. */
export const PIECES = 2;

/**
 * A product of a piece of the rank's own positions with one of the block that is there; null: of the same one of both, by rank.
 */
export interface HopPart {
  readonly own: number;
  readonly other: number;
  /** By member of the ring: which piece it is of both, in place of `own` and `other`. */
  readonly byRank?: readonly number[];
}

/** What is computed at a hop of `count`, at which rank r has the block of rank r − hop. */
export function partsOfHop(hop: number, count: number, isZigzag: boolean): readonly HopPart[] {
  if (!isZigzag) return [{ own: 0, other: 0 }];
  const always = { own: 1, other: 0 };
  if (hop === 0) return [{ own: 0, other: 0 }, always, { own: 1, other: 1 }];
  // A block of a rank behind comes first in the sequence, one of a rank before, round the ring, follows.
  const byRank = Array.from({ length: count }, (_, rank) => (rank >= hop ? 0 : 1));
  return [always, { own: 0, other: 0, byRank }];
}
