/**
 * @file The memory limits of the stages of a step, and the stage that lacks most.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { stageClusters } from '../../cost-model/step/stages.js';
import type { StageMemory } from '../../cost-model/step/step-memory.js';

/** Bytes that a device of each stage has; empty where they are not known. */
export function stageMemoryLimits(
  memory: number | undefined,
  cluster: Cluster,
  configuration: StepConfiguration,
): readonly number[] {
  if (memory === undefined && cluster.local) return [];
  return stageClusters(cluster, configuration).map(({ device }) => memory ?? device.memoryBytes);
}

/** The stage that lacks most bytes (needs most, where limits are not known), and how many; 0 or less where all fit. */
export function missingOf(stages: readonly StageMemory[], limits: readonly number[]) {
  const over = stages.map(({ total }, stage) => total - (limits[stage] ?? 0));
  const most = Math.max(...over);
  return { stage: over.indexOf(most), bytes: limits.length === 0 ? 0 : most };
}
