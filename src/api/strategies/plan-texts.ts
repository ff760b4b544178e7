/** @file Parts of a plan as text for people. */
import { axesInPlan, type PlanMeshes, operatorText as textOfOperator } from '../../strategy/diff.js';
import type { PlanOperator } from '../../strategy/plan.js';
import { checkArguments, text } from '../options/kinds.js';
import { MESHES, OPERATOR } from '../options/results.js';

/** An operator on a plan's mesh: `b0: dp, n: tp 2 of 8; all-reduce; stage 1`. */
export function operatorText(operator: PlanOperator, plan: PlanMeshes): string {
  checkArguments('operatorText', { operator: [operator, OPERATOR], plan: [plan, MESHES] });
  return textOfOperator(operator, plan);
}

/** A layout or the steps of a resharding. Stages with meshes of their own have no common names of axes. */
export function axesInWords(layout: string, plan: PlanMeshes): string {
  checkArguments('axesInWords', { layout: [layout, text], plan: [plan, MESHES] });
  return axesInPlan(layout, plan);
}
