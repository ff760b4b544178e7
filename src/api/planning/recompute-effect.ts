/**
 * @file The time that recompute costs and the memory that it frees: compares a plan with itself with every activation stored.
 * Nothing is lowered for it: the lowered stages have that form too, as the last micro-batch of `except_last` runs it.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { predictStages } from '../../cost-model/predict-stages.js';
import { clonedOperators } from '../../ir/autodiff/recompute.js';
import type { Graph } from '../../ir/graph.js';
import { lastForm } from '../../partition/except-last.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import type { PlanResult } from '../../search/plan.js';
import type { LoweredPlan } from './lower-plan.js';

export interface RecomputeEffect {
  /** Operators that the backward runs again. */
  readonly operators: number;
  /** Repeated layers that have some of them. */
  readonly layers: number;
  /** Additional seconds of a step. */
  readonly seconds: number;
  /** Per stage, the bytes by which the memory peak of a rank is lower. */
  readonly freedBytes: readonly number[];
}

type Predicted = Pick<PlanResult['prediction'], 'stepSeconds' | 'peakBytes'>;

/**
 * @param graph as it was planned; null is returned where it has no clones
 * @param lowering the same, lowered
 */
export function recomputeEffect(
  graph: Graph,
  { lowered, schedule }: LoweredPlan,
  prediction: Predicted,
  cluster: Cluster,
): RecomputeEffect | null {
  const cloned = clonedOperators(graph);
  if (cloned.size === 0) return null;
  const stages = lowered.map(withoutRecompute);
  const without = predictStages(stages, schedule, cluster);
  const layers = new Set(graph.nodes.flatMap(({ name, layer }) => (layer !== null && cloned.has(name) ? [layer] : [])));
  return {
    operators: cloned.size,
    layers: layers.size,
    seconds: prediction.stepSeconds - without.stepSeconds,
    freedBytes: prediction.peakBytes.map((bytes, stage) => (without.peakBytes[stage] ?? bytes) - bytes),
  };
}

function withoutRecompute(stage: LoweredStage): LoweredStage {
  const isRun = stage.sharded.nodes.some(({ phase }) => phase === 'recompute');
  return isRun ? { ...stage, sharded: lastForm(stage.sharded) } : stage;
}
