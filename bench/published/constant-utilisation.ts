/**
 * @file The yardstick: every run reaches the same share of its devices' peak. FLOPs are those that the run's model needs,
 * recomputation included; the share is the geometric mean of the development rows.
 */
import type { ModelWork, PartWork, Work } from '../../src/cost-model/step/work.js';
import type { PublishedRun } from './run.js';

/** FLOPs of one step on one rank, recomputation included. */
export function stepFlops(work: ModelWork, { configuration }: Pick<PublishedRun, 'configuration'>): number {
  const { degrees, globalBatch, microBatch, recompute } = configuration;
  const twice = recompute === 'full' ? 2 : 1;
  const of = (part: PartWork, forwards: number) =>
    forwards * sum(part.forward.map(flopsOf)) + sum(part.backward.map(flopsOf));
  const layers = sum(work.layers.map(({ count, part }) => count * of(part, twice)));
  const perMicroBatch = layers + of(work.first, 1) + of(work.last, 1);
  return (perMicroBatch * globalBatch) / (microBatch * degrees.dp * degrees.pp * degrees.sp);
}

function flopsOf(work: Work): number {
  if (work.kind === 'matmul') return 2 * work.batch * work.rows * work.columns * work.depth;
  if (work.kind !== 'attention') return 0;
  const { batch, heads, queries, keys, width, valueWidth, backward } = work;
  return (backward ? 4 : 2) * batch * heads * queries * keys * (width + valueWidth) * 0.5;
}

/** Seconds at the full 16-bit peak: what a share of it divides. */
export function peakSeconds(work: ModelWork, run: PublishedRun): number {
  const { bf16, fp16 } = run.cluster.device.peakFlops;
  return stepFlops(work, run) / (bf16 ?? fp16 ?? Number.NaN);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
