/**
 * @file explain --mesh: a compiled plan lowered again, and what goes over each of its axes.
 */
import { partition } from '../partition/partition.js';
import { type Explainable, redistributorOf } from './explain.js';
import { type AxisUse, planAxes } from './mesh-axes.js';

/** The axes of a plan with more than one rank: where their groups lie, over which link, bytes and seconds of a step. */
export function explainMesh(plan: Explainable): readonly AxisUse[] {
  if (plan.meshOf)
    return (plan.stages ?? []).flatMap(({ sharded }, stage) =>
      planAxes(sharded, plan.cluster).map((use) => ({ ...use, axis: `${use.axis} of stage ${stage}` })),
    );
  return planAxes(partition(plan.graph, plan.assignment, redistributorOf(plan)), plan.cluster);
}
