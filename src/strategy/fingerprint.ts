/**
 * @file Whether a plan was made for the model at hand.
 */
import { AutoparError } from '../ir/error.js';
import type { Plan } from './plan.js';

/** What is compared with the plan's `model`. */
export interface Fingerprinted {
  readonly name: string;
  readonly fingerprint: string;
  readonly dims: Readonly<Record<string, number>>;
  readonly file?: string;
}

/** @throws AutoparError (input) `model-changed`, saying which of what the plan records differs. */
export function checkFingerprint(plan: Plan, imported: Fingerprinted): void {
  if (plan.model.fingerprint === imported.fingerprint) return;
  const differences = [
    ...(plan.model.name === imported.name ? [] : [`its name is ${imported.name}, not ${plan.model.name}`]),
    ...[...new Set([...Object.keys(plan.model.dims), ...Object.keys(imported.dims)])]
      .sort()
      .filter((dim) => plan.model.dims[dim] !== imported.dims[dim])
      .map(
        (dim) => `dimension ${dim} is ${imported.dims[dim] ?? 'not bound'}, not ${plan.model.dims[dim] ?? 'unbound'}`,
      ),
  ];
  const reason = differences.length > 0 ? differences.join('; ') : 'its operators, shapes or constants differ';
  throw new AutoparError(
    'model-changed',
    'input',
    `the model is not the one that the plan was made for: ${reason}`,
    imported.file === undefined ? {} : { file: imported.file },
    'compile the model again',
  );
}
