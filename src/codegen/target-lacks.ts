/**
 * @file The refusal of a plan that a target has no form for.
 */
import { AutoparError } from '../ir/error.js';

/**
 * `target-lacks-plan` (exit backendAbsent).
 * @param subject names the part of the plan
 * @param node an operator that has it
 * @param remedy what to give for another plan
 */
export function lacksPlan(target: string, subject: string, node: string, remedy = 'choose another plan'): AutoparError {
  return new AutoparError(
    'target-lacks-plan',
    'backendAbsent',
    `--target ${target} does not support ${subject}`,
    { node },
    `${remedy}, or leave --target out for the bundled runtime`,
  );
}
