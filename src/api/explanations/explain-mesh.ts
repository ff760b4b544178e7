/**
 * @file explain --mesh: a compiled plan lowered again, and the communication over each of its axes.
 */
import { inBuckets } from '../../partition/buckets.js';
import { inHalves } from '../../partition/interleave.js';
import { partition } from '../../partition/partition.js';
import type { Explainable } from '../explain.js';
import { checkArguments } from '../options/kinds.js';
import { EXPLAINABLE } from '../options/results.js';
import { type AxisUse, axesOfStages, planAxes } from '../reports/mesh-axes.js';
import { resharderOf } from './stage-prices.js';

/**
 * The axes of a plan with more than one rank: levels of their groups, their links, and bytes and seconds per step. In a pipeline
 * they are those of the stage whose ranks send most; of every stage, where stages have meshes of their own.
 */
export function explainMesh(plan: Explainable): readonly AxisUse[] {
  checkArguments('explainMesh', { plan: [plan, EXPLAINABLE] });
  const { schedule, stages, stageSchedule } = plan;
  if (!stages || !stageSchedule) {
    const whole = partition(plan.graph, plan.assignment, resharderOf(plan));
    return planAxes(schedule ? inHalves(inBuckets(whole, schedule), schedule.interleave) : whole, plan.cluster);
  }
  const all = axesOfStages(stages, stageSchedule, plan.cluster);
  if (plan.meshOf)
    return all.flatMap((axes) => axes.map((use) => ({ ...use, axis: `${use.axis} of stage ${use.stage}` })));
  return all.reduce((most, axes) => (sentBytes(axes) > sentBytes(most) ? axes : most));
}

function sentBytes(axes: readonly AxisUse[]): number {
  return axes.reduce((sum, use) => sum + use.sentBytes, 0);
}
