/**
 * @file Bytes alive over time under an assignment, from its uses alone.
 */
import type { MemoryUse } from '../solver/problem.js';

/** Lower bound on the peak of every assignment: at every moment, each use is in its smallest state. */
export function leastPeak(uses: readonly MemoryUse[]): number {
  const smallest = uses.map((use) => ({ ...use, bytes: Float64Array.of(Math.min(...use.bytes)) }));
  return livePeaks(
    smallest.map((use, variable) => ({ ...use, variable })),
    smallest.map(() => 0),
  )(-Infinity, Infinity);
}

/** For an assignment's uses: the most bytes alive at any moment from `start` up to `end`. */
export function livePeaks(
  uses: readonly MemoryUse[],
  states: readonly number[],
): (start: number, end: number) => number {
  const changes = uses.flatMap(({ variable, start, end, bytes }): readonly (readonly [number, number])[] => {
    const amount = bytes[states[variable] as number] as number;
    return amount > 0 ? [[start, amount] as const, [end, -amount] as const] : [];
  });
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const levels: LiveLevel[] = [{ from: -Infinity, live: 0 }];
  let live = 0;
  for (const [time, amount] of changes) {
    live += amount;
    if (levels[levels.length - 1]?.from === time) levels.pop();
    levels.push({ from: time, live });
  }
  return (start, end) => {
    // The spans asked for are a moment or two of thousands.
    let [low, high] = [0, levels.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((levels[middle] as LiveLevel).from <= start) low = middle;
      else high = middle - 1;
    }
    let most = 0;
    for (let at = low; at < levels.length && (levels[at] as LiveLevel).from < end; at++)
      most = Math.max(most, (levels[at] as LiveLevel).live);
    return most;
  };
}

/** Bytes alive from a moment up to the next level's. */
interface LiveLevel {
  readonly from: number;
  readonly live: number;
}
