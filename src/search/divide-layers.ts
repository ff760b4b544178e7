/**
 * @file Dividing a chain of layers over stages of unequal speed, so that the slowest stage is as fast as can be.
 */

/**
 * Number of layers of each stage, in order. The largest of (seconds of a stage's layers / its speed) is the least possible;
 * among divisions of that bottleneck, earlier stages take what they can.
 * @param layerSeconds of each layer on a device of speed 1
 * @param speeds of each stage's devices, relative to that
 * @throws Error for fewer layers than stages
 */
export function divideLayers(layerSeconds: readonly number[], speeds: readonly number[]): readonly number[] {
  const stages = speeds.length;
  if (layerSeconds.length < stages) throw new Error(`${layerSeconds.length} layers cannot fill ${stages} stages`);
  const sums = [0];
  for (const seconds of layerSeconds) sums.push((sums.at(-1) as number) + seconds);
  const between = (from: number, to: number, stage: number) =>
    ((sums[to] as number) - (sums[from] as number)) / (speeds[stage] as number);
  /** Least bottleneck of the stages from `stage` on, over the layers from each on; then where that stage ends. */
  let best = sums.map((_, from) => between(from, layerSeconds.length, stages - 1));
  const ends: number[][] = [];
  for (let stage = stages - 2; stage >= 0; stage--) {
    const later = best;
    const end: number[] = [];
    best = sums.map((_, from) => {
      let least = Number.POSITIVE_INFINITY;
      for (let to = from + 1; to <= layerSeconds.length - (stages - 1 - stage); to++) {
        const bottleneck = Math.max(between(from, to, stage), later[to] as number);
        if (bottleneck <= least) {
          least = bottleneck;
          end[from] = to;
        }
      }
      return least;
    });
    ends.unshift(end);
  }
  const counts: number[] = [];
  let from = 0;
  for (const end of ends) {
    const to = end[from] as number;
    counts.push(to - from);
    from = to;
  }
  return [...counts, layerSeconds.length - from];
}
