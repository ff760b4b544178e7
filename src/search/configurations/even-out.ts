/**
 * @file Of all cuts with one pace the most even: the slowest stage sets the pace, and the closed form does not care how the
 * others share what is left. Who reads the plan does, and so do reductions that hide under a stage's backward.
 */

/**
 * Number of parts of each stage, in order: the least sum of squared seconds among cuts whose stages take `pace` at most; null
 * where there is none.
 * @param seconds of each part
 */
export function evenOut(seconds: readonly number[], stages: number, pace: number): readonly number[] | null {
  const count = seconds.length;
  const sums = [0];
  for (const one of seconds) sums.push((sums.at(-1) as number) + one);
  const between = (from: number, to: number) => (sums[to] as number) - (sums[from] as number);
  // A sum of the same seconds in another order may differ in its last digits.
  const most = pace * (1 + 1e-9);
  let best = sums.map((_, from) =>
    between(from, count) <= most ? between(from, count) ** 2 : Number.POSITIVE_INFINITY,
  );
  const ends: number[][] = [];
  for (let stage = stages - 2; stage >= 0; stage--) {
    const later = best;
    const end: number[] = [];
    best = sums.map((_, from) => {
      let least = Number.POSITIVE_INFINITY;
      for (let to = from + 1; to <= count - (stages - 1 - stage) && between(from, to) <= most; to++) {
        const cost = between(from, to) ** 2 + (later[to] as number);
        if (cost < least) {
          least = cost;
          end[from] = to;
        }
      }
      return least;
    });
    ends.unshift(end);
  }
  if (!Number.isFinite(best[0] as number)) return null;
  const counts: number[] = [];
  let from = 0;
  for (const end of ends) {
    const to = end[from] as number;
    counts.push(to - from);
    from = to;
  }
  return [...counts, count - from];
}
