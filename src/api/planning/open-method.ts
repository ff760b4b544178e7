/**
 * @file How sp shards attention where that is left open: the search over operators chooses a method for each attention. Each
 * method is planned alone only where that search cannot decide:
 *
 *     a ring is taken      positions are then in zig-zag order, and reordering masks costs time that the search did not count
 *     nothing fits         within a memory limit, fewer choices are searched further
 */
import { AutoparError } from '../../ir/error.js';
import { timeWritten } from '../../search/figures.js';
import { NothingFits } from '../../search/nothing-fits.js';
import { type AttentionMethod, SP_METHODS } from '../../sharding-propagation/roles.js';
import type { Plan } from '../../strategy/plan.js';

interface WithPlan {
  readonly plan: Plan;
}

/**
 * The fastest of the plans by each method alone; it records the time of each.
 * @throws AutoparError of the plan that needs least memory where none fits
 */
export async function fastestMethod<Found extends WithPlan>(
  alone: (method: AttentionMethod) => Promise<Found>,
): Promise<Found> {
  const plans: Found[] = [];
  const refused: AutoparError[] = [];
  const says: string[] = [];
  for (const method of METHODS) {
    const own = await alone(method).catch(refusal);
    if (own instanceof AutoparError) refused.push(own);
    else plans.push(own);
    says.push(own instanceof AutoparError ? `${method}: ${own.message}` : `${method} takes ${stepText(own)} a step`);
  }
  const [fastest] = plans.sort((a, b) => secondsOf(a) - secondsOf(b));
  if (!fastest) throw refused.sort((a, b) => needs(a) - needs(b))[0];
  const { sequence } = fastest.plan;
  return sequence
    ? { ...fastest, plan: { ...fastest.plan, sequence: { ...sequence, why: says.join('; ') } } }
    : fastest;
}

/** Whether some attention is a ring. */
export function hasRing({ sequence }: Plan): boolean {
  return (sequence?.attentions?.ring ?? 0) > 0;
}

const METHODS = SP_METHODS.filter((method): method is AttentionMethod => method !== 'auto');

function secondsOf({ plan }: WithPlan): number {
  return plan.predicted.stepSeconds;
}

function stepText(planned: WithPlan): string {
  return timeWritten(secondsOf(planned) * 1e9);
}

function needs(error: AutoparError): number {
  return error instanceof NothingFits ? error.figures.leastBytes : Number.POSITIVE_INFINITY;
}

/** Why a method has no plan: the model cannot have it, or nothing fits. */
function refusal(error: unknown): AutoparError {
  const isOfMethod = error instanceof AutoparError && (error.exit === 'noPlan' || error.code === 'degree-does-not-fit');
  if (!isOfMethod) throw error;
  return error;
}

/** The error, if nothing fits, so that the caller can handle it; others are thrown. */
export function asNothingFits(error: unknown): NothingFits {
  if (error instanceof NothingFits) return error;
  throw error;
}
