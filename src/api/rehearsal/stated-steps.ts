/**
 * @file Checks the collectives that plan.json names between layouts (`redistributions.TENSOR.steps`) against those that its
 * layouts need. Programs are made from the layouts; a rehearsal checks everything that a plan states.
 */
import type { LoweredStage, PipelineLayout } from '../../partition/lower-stages.js';
import { reshardOpTexts, servedOpTexts } from '../../search/reshard-texts.js';
import type { Plan } from '../../strategy/plan.js';
import { readerText } from '../../strategy/readers.js';
import { unfit } from '../../strategy/unfit.js';
import type { AssignedPlan } from '../planning/lower-plan.js';

/** @throws AutoparError (input) `plan-contradicts-itself` with both */
export function checkSteps(
  { redistributions }: Plan,
  { staged: { graph }, assignment, resharder }: AssignedPlan,
  layout: PipelineLayout | undefined,
  lowered: readonly LoweredStage[],
): void {
  const steps = servedOpTexts(reshardOpTexts(graph, assignment, resharder, layout), assignment, lowered);
  for (const [index, { tensor, readers }] of assignment.sharedReshards.entries()) {
    const texts = readers.map(readerText);
    const own = Object.hasOwn(redistributions, tensor) ? redistributions[tensor] : undefined;
    const stated = own?.find((entry) => entry.readers.some((reader) => texts.includes(reader)))?.steps;
    const taken = steps[index] ?? [];
    if (stated === undefined || stated.join() === taken.join()) continue;
    throw unfit(
      'plan-contradicts-itself',
      `the plan reshards tensor ${tensor} for ${texts.join(', ')} by ${stepsText(stated)}, and its layouts need ` +
        `${stepsText(taken)}`,
      { tensor },
    );
  }
}

function stepsText(steps: readonly string[]): string {
  return steps.length === 0 ? 'nothing' : steps.join(', ');
}
