/**
 * @file Check that a plan was made for the given model.
 */
import { AutoparError } from '../ir/error.js';
import type { Plan } from './plan.js';

/** A model that is compared with the plan's `model`. */
export interface Fingerprinted extends Pick<Plan['model'], 'name' | 'fingerprint' | 'dims'> {
  readonly file?: string;
}

/** @throws AutoparError (input) `model-changed`, naming the recorded values that differ. */
export function checkFingerprint(plan: Plan, imported: Fingerprinted): void {
  if (plan.model.fingerprint === imported.fingerprint) return;
  const differences = modelDifferences(plan, imported);
  const reason = differences.length > 0 ? differences.join('; ') : 'its operators, shapes or constants differ';
  throw new AutoparError(
    'model-changed',
    'input',
    `the plan was made for another model: ${reason}`,
    imported.file === undefined ? {} : { file: imported.file },
    'compile the model again',
  );
}

/**
 * Refuses a checkpoint that was made for another model, or for another number of devices than there are.
 * @throws AutoparError (input) `strategy-mismatch`, listing all that differs
 */
export function checkCheckpoint(plan: Plan, imported: Fingerprinted, devices?: number, file?: string): void {
  const made = plan.cluster.nodes * plan.cluster.perNode;
  const another = plan.model.fingerprint !== imported.fingerprint;
  const differences = [
    ...(another ? modelDifferences(plan, imported) : []),
    ...(devices === undefined || devices === made ? [] : [`there are ${devices} devices, not ${made}`]),
  ];
  if (another && differences.length === 0) differences.push('operators, shapes or constants differ');
  if (differences.length === 0) return;
  throw new AutoparError(
    'strategy-mismatch',
    'input',
    `the strategy checkpoint does not fit ${another ? 'this model' : 'these devices'}: ${differences.join('; ')}`,
    file === undefined ? {} : { file },
    another ? 'name the model of the plan, or compile this one' : 'plan for the number of devices of the checkpoint',
  );
}

function modelDifferences(plan: Plan, imported: Fingerprinted): string[] {
  return [
    ...(plan.model.name === imported.name ? [] : [`its name is ${imported.name}, not ${plan.model.name}`]),
    ...[...new Set([...Object.keys(plan.model.dims), ...Object.keys(imported.dims)])]
      .sort()
      .filter((dim) => plan.model.dims[dim] !== imported.dims[dim])
      .map(
        (dim) => `dimension ${dim} is ${imported.dims[dim] ?? 'not bound'}, not ${plan.model.dims[dim] ?? 'unbound'}`,
      ),
  ];
}
