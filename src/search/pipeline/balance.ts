/**
 * @file Distributes consecutive units of a model over the parts of a pipeline: the slowest part is as fast as possible.
 */

/** The input of the cut. */
export interface Balance {
  /** Seconds of each unit. */
  readonly seconds: readonly number[];
  /** Seconds of transfer before each unit, of the tensors that earlier units make for it and later ones. */
  readonly arrival: readonly number[];
  readonly parts: number;
  /** Whether a part may consist of this unit alone: each part has one of these units. */
  readonly fills: readonly boolean[];
  /** Whether a unit may be on a part. */
  readonly mayBe: (unit: number, part: number) => boolean;
}

/**
 * How many units each part has, none of them 0, by dynamic programming over (units, parts): the longest part is the shortest that
 * is possible; null where no cut is allowed.
 */
export function balancedCut({ seconds, arrival, parts, fills, mayBe }: Balance): readonly number[] | null {
  const count = seconds.length;
  const sums = [0];
  for (const own of seconds) sums.push((sums.at(-1) as number) + own);
  // By units in the parts so far: the longest part, and where the last part begins.
  let longest: readonly number[] = [0, ...Array<number>(count).fill(Number.POSITIVE_INFINITY)];
  const begins: number[][] = [];
  for (let part = 0; part < parts; part++) {
    const next = Array<number>(count + 1).fill(Number.POSITIVE_INFINITY);
    const begin = Array<number>(count + 1).fill(-1);
    for (let end = part + 1; end <= count - (parts - 1 - part); end++) {
      let isFull = false;
      for (let first = end - 1; first >= part && mayBe(first, part); first--) {
        isFull ||= fills[first] === true;
        if (!isFull) continue;
        const own = (sums[end] as number) - (sums[first] as number) + (first === 0 ? 0 : (arrival[first] ?? 0));
        // Among equal cuts, the one that leaves the fewest units to later parts.
        const most = Math.max(own, longest[first] as number);
        if (most < (next[end] as number)) {
          next[end] = most;
          begin[end] = first;
        }
        if ((sums[end] as number) - (sums[first] as number) > (next[end] as number)) break;
      }
    }
    longest = next;
    begins.push(begin);
  }
  if (!Number.isFinite(longest[count] as number)) return null;
  const sizes: number[] = [];
  for (let part = parts - 1, end = count; part >= 0; part--) {
    const first = begins[part]?.[end] as number;
    sizes.unshift(end - first);
    end = first;
  }
  return sizes;
}
