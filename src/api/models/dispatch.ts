/**
 * @file Token dispatch to experts as an import option: the check of the option, its record in a plan, and how it is read back
 * from a plan.
 */
import { badOption } from '../../ir/error.js';
import type { DispatchedExperts, DispatchOptions } from '../../ir/experts/dispatch-experts.js';
import { DISPATCHES } from '../../ir/experts/dispatches.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import type { PlanPass } from '../../strategy/plan.js';

export type { DispatchOptions } from '../../ir/experts/dispatch-experts.js';
export { DISPATCHES } from '../../ir/experts/dispatches.js';

/** The dispatch options among other options. */
export function dispatchIn({ dispatch, capacityFactor }: DispatchOptions): DispatchOptions {
  return withoutUndefined({ dispatch, capacityFactor });
}

const PASS = 'dispatch-experts';

/** @throws AutoparError `bad-option` (usage) for an invalid capacity factor */
export function checkDispatch({ capacityFactor = 1 }: DispatchOptions): void {
  if (capacityFactor > 0 && Number.isFinite(capacityFactor)) return;
  throw badOption(
    `--capacity-factor ${capacityFactor}: expected a number above 0`,
    '1 is the even share of tokens, 1.25 is usual; leave it out to drop no token',
  );
}

/** The pass as plan.json has it. */
export function dispatchPass(options: DispatchOptions, layers: readonly DispatchedExperts[]): PlanPass {
  return { name: PASS, options: { ...dispatchIn(options), slots: layers.map(({ capacity }) => capacity).join(' ') } };
}

/** Slots of an expert for each sample, by layer in the order of the program's outputs. */
export function slotsOf(passes: readonly PlanPass[]): readonly number[] {
  const { slots } = passes.find(({ name }) => name === PASS)?.options ?? {};
  return typeof slots === 'string' ? slots.split(' ').map(Number) : [];
}

/** The import options that a plan's passes record. */
export function dispatchOf(passes: readonly PlanPass[]): DispatchOptions {
  const { dispatch, capacityFactor } = passes.find(({ name }) => name === PASS)?.options ?? {};
  const found = DISPATCHES.find((name) => name === dispatch);
  if (found === undefined) return {};
  return { dispatch: found, ...(typeof capacityFactor === 'number' ? { capacityFactor } : {}) };
}

/** Whether tokens may be dropped, so that the program computes something else than the model file. */
export function dropsTokens(passes: readonly PlanPass[]): boolean {
  return dispatchOf(passes).capacityFactor !== undefined;
}

/** The note about a layer for the user. */
export function dispatchNote({ name, experts, chosen, tokens, capacity }: DispatchedExperts): string {
  return `${name}: top ${chosen} of ${experts} experts, each takes ${capacity} of a sample's ${tokens} tokens`;
}
