/**
 * @file Which proposal is lowered next: the one likely to be fastest, unless what is lowered already is faster or as much.
 */
import type { PricedConfiguration } from '../../search/configurations/priced.js';
import { NEAR } from '../../search/preference.js';
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import { type FittingPlan, stepSecondsOf } from './compared-plans.js';
import { kindOf, microBatchCount } from './proposals.js';

/**
 * The proposal that is least by its estimate, as much dearer as lowered ones of its kind are, else of those that have stages, or
 * none, like it.
 */
export function likeliest(
  proposals: ReadonlySet<PricedConfiguration>,
  lowered: readonly FittingPlan[],
): PricedConfiguration | undefined {
  const expected = (proposal: PricedConfiguration) =>
    proposal.seconds *
    (factorOf(lowered, (priced) => kindOf(priced) === kindOf(proposal)) ??
      factorOf(lowered, (priced) => hasStages(priced) === hasStages(proposal)) ??
      1);
  return [...proposals].reduce<PricedConfiguration | undefined>(
    (best, one) => (best && expected(best) <= expected(one) ? best : one),
    undefined,
  );
}

/**
 * Whether a proposal may be faster than what is lowered. Prices of sharded graphs are some factor above those of layers, much
 * the same of a model's plans of one kind, whose transfers and bubbles the factor has too: the least of theirs is taken. None is
 * known before one of them is lowered, nor of one that pays time for memory. What is as fast within the exactness of predictions
 * may be faster.
 */
export function mayBeFaster(proposal: PricedConfiguration, lowered: readonly FittingPlan[]): boolean {
  const factor = factorOf(lowered, (priced) => kindOf(priced) === kindOf(proposal)) ?? 1;
  return lowered.every((one) => proposal.seconds * factor < NEAR * stepSecondsOf(one));
}

/** Whether dp and tp alone were searched over all that a proposal asks for, and fit: its ZeRO level leaves fewer layouts. */
export function isSearched({ configuration }: PricedConfiguration, alone: FittingPlan | null): boolean {
  const { degrees, recompute, offload = 'none' } = configuration;
  const { plan: known, found } = alone?.planned ?? {};
  const { pp, sp, ep } = known?.degrees ?? { pp: 0, sp: 0, ep: 0 };
  const isTooLarge = found?.rejected.some((other) => other.kind === 'too-large' && other.degrees.tp === degrees.tp);
  const isAlike = pp === 1 && degrees.pp === pp && degrees.sp === sp && degrees.ep === ep;
  const isWhole = microBatchCount(configuration) === (alone?.training?.microBatches ?? 1);
  // Of inference over sp a proposal is lowered in two forms of attention, of which alone is one.
  const isOneForm = sp === 1 || alone?.training !== undefined;
  return isAlike && isWhole && isOneForm && !isTooLarge && recompute === 'none' && offload === 'none';
}

/** The best of dp and tp alone with the estimate of its degrees, where both are there. */
export function withEstimate(alone: FittingPlan | null, proposals: readonly PricedConfiguration[]): FittingPlan | null {
  if (!alone) return null;
  const { degrees } = alone.planned.plan;
  const isLike = ({ configuration }: PricedConfiguration) =>
    AXIS_ORDER.every((axis) => configuration.degrees[axis] === degrees[axis]);
  const priced = proposals.filter(isLike).sort((a, b) => a.seconds - b.seconds)[0] ?? null;
  return { ...alone, priced };
}

/** The least by which plans that proposals became are dearer, of some of them; null where none of these is lowered. */
function factorOf(lowered: readonly FittingPlan[], isLike: (priced: PricedConfiguration) => boolean): number | null {
  const factors = lowered.flatMap((one) =>
    one.priced && !one.planned.found.savesMemory && isLike(one.priced) ? [stepSecondsOf(one) / one.priced.seconds] : [],
  );
  return factors.length > 0 ? Math.min(...factors) : null;
}

export function hasStages({ configuration }: PricedConfiguration): boolean {
  return configuration.degrees.pp > 1;
}
