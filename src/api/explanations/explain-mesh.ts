/**
 * @file explain --mesh: a compiled plan lowered again, and the communication over each of its axes.
 */
import { clustersOf } from '../../cost-model/predict-stages.js';
import { inBuckets } from '../../partition/buckets.js';
import { inHalves } from '../../partition/interleave.js';
import { partition } from '../../partition/partition.js';
import { type Explainable, resharderOf } from '../explain.js';
import { type AxisUse, planAxes } from '../reports/mesh-axes.js';

/** The mesh axes of a plan with more than one rank: levels of their groups, their links, and bytes and seconds per step. */
export function explainMesh(plan: Explainable): readonly AxisUse[] {
  if (plan.meshOf) {
    const clusters = clustersOf(plan.stages ?? [], plan.cluster);
    return (plan.stages ?? []).flatMap(({ sharded }, stage) =>
      planAxes(sharded, clusters[stage] ?? plan.cluster).map((use) => ({
        ...use,
        axis: `${use.axis} of stage ${stage}`,
      })),
    );
  }
  const whole = partition(plan.graph, plan.assignment, resharderOf(plan));
  // Communication that a pipeline stage hides is specific to the stage: buckets and halves do not apply to the whole graph.
  const { schedule, stages } = plan;
  const own = stages || !schedule ? whole : inHalves(inBuckets(whole, schedule), schedule.interleave);
  return planAxes(own, plan.cluster);
}
