/**
 * @file What recompute costs and frees: a plan against itself with every forward result kept.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { predict } from '../../cost-model/predict.js';
import { predictStages } from '../../cost-model/predict-stages.js';
import { stepPrice } from '../../cost-model/price.js';
import { redistributionBound } from '../../cost-model/redistribution-bound.js';
import { clonedOperators, originalTensors, withoutClones } from '../../ir/autodiff/recompute.js';
import type { Graph } from '../../ir/graph.js';
import type { Assignment, View } from '../../partition/assignment.js';
import { type LoweredStage, lowerStages } from '../../partition/lower-stages.js';
import { partition } from '../../partition/partition.js';
import type { PipelinedGraph } from '../../search/pipeline/pipeline.js';
import type { PlanResult } from '../../search/plan.js';
import { layoutKey } from '../../sharding-propagation/layout.js';
import { makeRedistributor } from '../../sharding-propagation/redistribution.js';
import type { Plan } from '../../strategy/plan.js';
import { planPlaces } from '../../strategy/plan-places.js';
import { asPlanned } from './lower-plan.js';

export interface RecomputeEffect {
  /** Operators that the backward runs again. */
  readonly operators: number;
  /** Repeated layers that have some of them. */
  readonly layers: number;
  /** What a step takes more. */
  readonly seconds: number;
  /** Per stage, what the fullest moment of a rank holds less. */
  readonly freedBytes: readonly number[];
}

type Predicted = Pick<PlanResult['prediction'], 'stepSeconds' | 'peakBytes'>;

/** @param graph as it was planned; null is returned where it has no clones */
export function recomputeEffect(
  graph: Graph,
  { assignment, prediction }: Pick<PlanResult, 'assignment'> & { readonly prediction: Predicted },
  cluster: Cluster,
  pipeline: Pick<PipelinedGraph, 'layout' | 'schedule'> | null,
  plan: Plan,
): RecomputeEffect | null {
  const cloned = clonedOperators(graph);
  if (cloned.size === 0) return null;
  const price = stepPrice(cluster, assignment.mesh);
  const bound = redistributionBound(cluster, assignment.mesh, price);
  const redistributor = makeRedistributor(assignment.mesh, price, bound, { allToAll: plan.allToAll ?? true });
  const [plain, kept] = [withoutClones(graph), keptAssignment(graph, assignment)];
  const lowered = pipeline
    ? lowerStages(plain, kept, redistributor, pipeline.layout)
    : [{ graph: plain, sharded: partition(plain, kept, redistributor) }];
  const stages = asPlanned(lowered, plan, planPlaces(plan, plain));
  const without = pipeline
    ? predictStages(stages, pipeline.schedule, cluster, 0)
    : predict((stages[0] as LoweredStage).sharded, cluster);
  const layers = new Set(graph.nodes.flatMap(({ name, layer }) => (layer !== null && cloned.has(name) ? [layer] : [])));
  return {
    operators: cloned.size,
    layers: layers.size,
    seconds: prediction.stepSeconds - without.stepSeconds,
    freedBytes: prediction.peakBytes.map((bytes, stage) => (without.peakBytes[stage] ?? bytes) - bytes),
  };
}

/** The same layouts for readers of the originals. */
function keptAssignment(graph: Graph, { mesh, strategies, inputs, views }: Assignment): Assignment {
  const originals = originalTensors(graph);
  const clones = new Set(graph.nodes.flatMap(({ name, phase }) => (phase === 'recompute' ? [name] : [])));
  const merged = new Map<string, View>();
  for (const view of views) {
    const tensor = originals.get(view.tensor) ?? view.tensor;
    const readers = view.readers.filter(({ name }) => !clones.has(name));
    const key = `${tensor}\u0000${layoutKey(view.layout)}`;
    const before = merged.get(key);
    if (readers.length > 0) merged.set(key, { ...view, tensor, readers: [...(before?.readers ?? []), ...readers] });
  }
  return { mesh, strategies, inputs, views: [...merged.values()] };
}
