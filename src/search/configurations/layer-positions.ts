/**
 * @file Where a model can be cut, as positions that stages lie between: in the order of its layers where each stage is one run of
 * them; by how many of each class come before, in any order, where stages hold several chunks.
 */
import type { ModelWork } from '../../cost-model/step/work.js';

export interface LayerPositions {
  /** Position 0 has no layer before it, this one all. */
  readonly last: number;
  /** Layers between two positions; −1 where one does not come before the other. */
  readonly layersBetween: (from: number, to: number) => number;
  /** The same by class. */
  readonly countsBetween: (from: number, to: number) => readonly number[];
  /** Equal where the layers between are alike. */
  readonly key: (from: number, to: number) => number;
  /** Whether every further position has more layers before it. */
  readonly isRow: boolean;
}

/** Combinations of counts that are looked at: beyond, cuts into chunks of layers of many classes have no positions. */
const MOST_POSITIONS = 600;

/** Null where there would be too many. */
export function layerPositions({ layers, order }: ModelWork, chunks: number): LayerPositions | null {
  const counts = layers.map(({ count }) => count);
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (counts.length > 1 && chunks === 1)
    return inOrder(
      order ?? counts.flatMap((count, index) => Array.from({ length: count }, () => index)),
      counts.length,
    );
  const positions = counts.reduce((product, count) => product * (count + 1), 1);
  if (counts.length === 1)
    return {
      last: all,
      layersBetween: (from, to) => to - from,
      countsBetween: (from, to) => [to - from],
      key: (from, to) => to - from,
      isRow: true,
    };
  return positions > MOST_POSITIONS ? null : byCounts(counts, positions);
}

function inOrder(order: readonly number[], classes: number): LayerPositions {
  const before = Array.from({ length: classes }, (_, index) => {
    const sums = [0];
    for (const own of order) sums.push((sums.at(-1) as number) + (own === index ? 1 : 0));
    return sums;
  });
  return {
    last: order.length,
    layersBetween: (from, to) => to - from,
    countsBetween: (from, to) => before.map((sums) => (sums[to] as number) - (sums[from] as number)),
    key: (from, to) => from * (order.length + 1) + to,
    isRow: true,
  };
}

/** A position is a number whose digits, one for each class, are the layers before it. */
function byCounts(counts: readonly number[], positions: number): LayerPositions {
  const digits = Array.from({ length: positions }, (_, position) => {
    let rest = position;
    return counts.map((count) => {
      const digit = rest % (count + 1);
      rest = Math.floor(rest / (count + 1));
      return digit;
    });
  });
  const countsBetween = (from: number, to: number) =>
    (digits[to] as readonly number[]).map((count, index) => count - (digits[from]?.[index] ?? 0));
  return {
    last: positions - 1,
    layersBetween: (from, to) => {
      let sum = 0;
      for (const count of countsBetween(from, to)) {
        if (count < 0) return -1;
        sum += count;
      }
      return sum;
    },
    countsBetween,
    // Without a borrow the difference has the differences as its digits.
    key: (from, to) => to - from,
    isRow: false,
  };
}
