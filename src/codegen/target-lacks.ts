/**
 * @file The refusal of a plan that a target has no form for.
 */
import { AutoparError } from '../ir/error.js';

/** `target-lacks-plan` (exit backendAbsent); `subject` names the part of the plan, `node` an operator that has it. */
export function lacksPlan(target: string, subject: string, node: string): AutoparError {
  return new AutoparError(
    'target-lacks-plan',
    'backendAbsent',
    `--target ${target} does not support ${subject}`,
    { node },
    'choose another plan, or leave --target out for the bundled runtime',
  );
}
