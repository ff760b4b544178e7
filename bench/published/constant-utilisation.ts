/**
 * @file The yardstick: every run reaches the same share of its devices' peak, the geometric mean of the development rows.
 * FLOPs are those that the run executes, recomputation included.
 */
import { flopsOf, modelFlops } from '../../src/cost-model/step/model-flops.js';
import type { ModelWork } from '../../src/cost-model/step/work.js';
import type { PublishedRun } from './run.js';

/** Seconds at the full 16-bit peak: what a share of it divides. */
export function peakSeconds(work: ModelWork, { configuration, cluster }: PublishedRun): number {
  const { degrees, globalBatch, microBatch, recompute } = configuration;
  const again = work.layers.reduce(
    (sum, { count, part }) => sum + count * part.forward.reduce((flops, kernel) => flops + flopsOf(kernel), 0),
    0,
  );
  const recomputed = recompute === 'full' ? (again * degrees.tp * globalBatch) / microBatch : 0;
  const { bf16, fp16 } = cluster.device.peakFlops;
  const ranks = degrees.tp * degrees.pp * degrees.dp * degrees.sp;
  return (modelFlops(work, configuration) + recomputed) / (ranks * (bf16 ?? fp16 ?? Number.NaN));
}
