/**
 * @file Alpa's algorithm as its paper has it (Zheng et al. 2022, section 5.2): for every latency that a stage can have, the least
 * sum of latencies over stages, layers and devices. One point per layer and sub-mesh, 1F1B, nothing crosses; no bounds, no
 * pruning, so that it is right where the search prunes too much.
 */
import type { LayerPoint, StageProblem } from '../../../src/search/stages/problem.js';

export function plainSweep(problem: StageProblem): number {
  const { layers, subMeshes, groups, schedule } = problem;
  const devices = groups[0]?.devices ?? 0;
  const m = schedule.microBatches;
  const pointOf = (layer: number, subMesh: number) =>
    problem.tables[layers[layer] as number]?.[subMesh]?.[0] as LayerPoint;
  const seconds = (first: number, end: number, subMesh: number): number => {
    let sum = 0;
    for (let layer = first; layer < end; layer++) sum += pointOf(layer, subMesh).forwardSeconds;
    return sum;
  };
  const fits = (first: number, end: number, subMesh: number, remaining: number): boolean => {
    let held = 0;
    let most = 0;
    for (let layer = first; layer < end; layer++) {
      const { residentBytes, savedBytes, transientBytes } = pointOf(layer, subMesh);
      held += residentBytes + Math.min(remaining, m) * savedBytes;
      most = Math.max(most, transientBytes);
    }
    return held + most <= (subMeshes[subMesh]?.memoryBytes ?? 0);
  };
  const bounds = new Set<number>();
  for (let first = 0; first < layers.length; first++)
    for (let end = first + 1; end <= layers.length; end++)
      for (const subMesh of subMeshes.keys()) bounds.add(seconds(first, end, subMesh));
  let best = Number.POSITIVE_INFINITY;
  for (const bound of bounds) {
    const known = new Map<string, number>();
    const least = (remaining: number, first: number, left: number): number => {
      if (remaining === 0) return first === layers.length && left === 0 ? 0 : Number.POSITIVE_INFINITY;
      const key = `${remaining} ${first} ${left}`;
      const found = known.get(key);
      if (found !== undefined) return found;
      let sum = Number.POSITIVE_INFINITY;
      for (const [subMesh, mesh] of subMeshes.entries()) {
        for (let end = first + 1; mesh.devices <= left && end <= layers.length; end++) {
          const own = seconds(first, end, subMesh);
          if (own > bound || !fits(first, end, subMesh, remaining)) continue;
          sum = Math.min(sum, own + least(remaining - 1, end, left - mesh.devices));
        }
      }
      known.set(key, sum);
      return sum;
    };
    for (let stages = 1; stages <= layers.length; stages++) {
      best = Math.min(best, least(stages, 0, devices) + (m - 1) * bound);
    }
  }
  return best;
}
