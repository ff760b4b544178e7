/**
 * @file The baseline: every run reaches the same share of its devices' peak, the geometric mean of the development rows.
 * FLOPs are those that the run executes, recomputation included.
 */

import { flopsOf } from '../../src/cost-model/step/model-flops.js';
import type { ModelWork, PartWork, StepWork } from '../../src/cost-model/step/work.js';
import type { PublishedRun } from './run.js';

/** Seconds at the full 16-bit peak, which a share of the peak divides. */
export function peakSeconds(work: ModelWork, { configuration, cluster }: PublishedRun): number {
  const { degrees, globalBatch, microBatch, recompute } = configuration;
  // Each rank of tp has whole experts; their tokens are sharded over the ranks.
  const onAll = (works: readonly StepWork[]) =>
    works.reduce(
      (sum, kernel) => sum + flopsOf(kernel) * (kernel.kind === 'matmul' && kernel.experts ? 1 : degrees.tp),
      0,
    );
  const of = ({ forward, backward }: PartWork, again = false) => onAll(forward) * (again ? 2 : 1) + onAll(backward);
  const flops =
    work.layers.reduce((sum, { count, part }) => sum + count * of(part, recompute === 'full'), 0) +
    of(work.first) +
    of(work.last);
  const { bf16, fp16 } = cluster.device.peakFlops;
  const ranks = degrees.tp * degrees.pp * degrees.dp * degrees.sp;
  return (flops * globalBatch) / microBatch / (ranks * (bf16 ?? fp16 ?? Number.NaN));
}
