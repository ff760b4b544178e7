/**
 * @file The error of a plan that does not fit its model.
 */
import { AutoparError } from '../ir/error.js';
import type { CodeOf } from '../ir/error-codes.js';

/** The error of a plan that does not fit its model. */
export function unfit(
  code: CodeOf<'input'>,
  message: string,
  where: { readonly node?: string; readonly tensor?: string },
): AutoparError {
  return new AutoparError(
    code,
    'input',
    message,
    where,
    'the plan was edited, or belongs to another model or version; compile the model again',
  );
}
