/**
 * @file What bounds of configurations are asked with.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';

export interface BoundRequest {
  readonly configuration: StepConfiguration;
  readonly cluster: Cluster;
  /** Bytes of each device; null for no limit. */
  readonly limitBytes: number | null;
  /** Whether layers may keep their activations where the configuration recomputes. */
  readonly isMixed: boolean;
  /** What says how many micro-batches each stage holds, where it is not the configuration. */
  readonly holding?: StepConfiguration;
}

/** Sums in another order differ in their last digits: bounds are lowered by more than that. */
export const ROUNDING = 1 - 1e-9;

/** Chunks that stand for however many. */
export const MOST_CHUNKS = 2 ** 30;
