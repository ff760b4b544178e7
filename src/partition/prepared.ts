/**
 * @file Passes over lowered stages before their instructions are ordered, as options request them: updates on first ranks,
 * collectives in buckets, micro-batches in halves, copies between memories.
 */
import { type BucketLimit, inBuckets } from './buckets.js';
import { inHalves } from './interleave.js';
import type { LoweredStage } from './lower-stages.js';
import { type OffloadPlaces, offloaded } from './offload.js';
import { servedByFirst } from './server.js';
import type { Interleave } from './sharded-graph.js';

export interface Preparation {
  readonly buckets: BucketLimit;
  readonly interleave?: Interleave | undefined;
  /** Axes whose first ranks update for the others. */
  readonly server?: readonly string[] | undefined;
  readonly places: OffloadPlaces;
}

/** The stages of a plan as they run. */
export function prepared(
  stages: readonly LoweredStage[],
  { buckets, interleave, server, places }: Preparation,
): readonly LoweredStage[] {
  return servedByFirst(stages, server).map((stage) => ({
    ...stage,
    sharded: offloaded(inHalves(inBuckets(stage.sharded, buckets), interleave), places),
  }));
}
