/**
 * @file Checks the model and training fields of plan.json against the model that is planned.
 */
import { stableJson } from '../../program/atomic.js';
import type { Plan } from '../../strategy/plan.js';
import { unfit } from '../../strategy/unfit.js';
import type { ImportedModel } from '../models/import.js';

/** @throws AutoparError (input) `plan-contradicts-itself` with both */
export function checkModel({ model, passes, training }: Plan, planned: ImportedModel): void {
  const [stated, follows] = [
    { 'model.dims': model.dims, passes: passesOf(passes), ...prefixed(training) },
    { 'model.dims': planned.dims, passes: passesOf(planned.passes), ...prefixed(planned.training ?? null) },
  ].map((own) => new Map(Object.entries(own))) as [Map<string, unknown>, Map<string, unknown>];
  for (const key of new Set([...stated.keys(), ...follows.keys()])) {
    const [one, other] = [stated.get(key) ?? null, follows.get(key) ?? null];
    if (stableJson(one) === stableJson(other)) continue;
    throw unfit(
      'plan-contradicts-itself',
      `${key} is ${JSON.stringify(one)} in the plan and ${JSON.stringify(other)} in its model`,
      {},
    );
  }
}

function prefixed(training: Plan['training']): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(training ?? {}).map(([key, value]) => [`training.${key}`, value]));
}

function passesOf(passes: Plan['passes']): Plan['passes'] {
  return passes.map(({ name, options }) => ({ name, ...(options ? { options } : {}) }));
}
