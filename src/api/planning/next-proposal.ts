/**
 * @file Which proposal is lowered next: the one that is likely to be fastest, unless a lowered plan is as fast or faster.
 */
import { bytesForTensors, usableBytes } from '../../cost-model/predict.js';
import type { PricedConfiguration } from '../../search/configurations/priced.js';
import { NEAR, preferencesOf, preferred } from '../../search/preference.js';
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import { alternativeOf, type Choices, type FittingPlan, stepSecondsOf } from './compared-plans.js';
import { kindOf, microBatchCount } from './proposals.js';

/** The proposal with the least expected time. */
export function likeliest(
  proposals: readonly PricedConfiguration[],
  lowered: readonly FittingPlan[],
): PricedConfiguration | undefined {
  const expected = (proposal: PricedConfiguration) => proposal.seconds * (factorOf(proposal, lowered) ?? 1);
  return proposals.reduce<PricedConfiguration | undefined>(
    (best, one) => (best && expected(best) <= expected(one) ? best : one),
    undefined,
  );
}

/**
 * Whether a proposal may be taken beside the lowered plans. Where one of its kind was lowered, it would have to be taken at its
 * expected time and its estimated memory; else it may be if it is as fast within the accuracy of predictions, and so may one of
 * the degrees of the best of dp and tp alone, which has no estimate but the proposal's. A pipeline is expected to exceed its
 * estimate as plans of one stage do, which need neither transfers nor bubbles; `--prefer fastest` makes sure of it.
 */
export function mayBeTaken(
  proposal: PricedConfiguration,
  lowered: readonly FittingPlan[],
  { options, cluster }: Pick<Choices, 'options' | 'cluster'>,
): boolean {
  const preferences = preferencesOf(options, options.memory !== undefined);
  const isThorough = preferences.prefer === 'fastest';
  const isPaired = lowered.some(({ priced }) => priced === proposal);
  const ofKind = isPaired ? null : factorOfKind(proposal, lowered);
  const ofOneStage = () => leastFactor(lowered, (other) => !hasStages(other));
  const factor = ofKind ?? factorOf(proposal, lowered) ?? (hasStages(proposal) && !isThorough ? ofOneStage() : null);
  const expected = proposal.seconds * (factor ?? 1);
  if (ofKind === null || isThorough) return lowered.every((one) => expected < NEAR * stepSecondsOf(one));
  const { degrees, offload = 'none' } = proposal.configuration;
  const bytes = bytesForTensors(proposal.bytes, cluster);
  const own = { seconds: expected, bytes, degrees, isOffloaded: offload !== 'none', liftsRoles: false };
  const limit = options.memory ?? usableBytes(cluster) ?? null;
  const { taken } = preferred([own, ...lowered.map(alternativeOf)], (one) => one, preferences, limit);
  return taken === own;
}

/**
 * Whether the search of dp and tp alone covers all that a proposal asks for, and fits.
 * @param isOpen its ZeRO level is left to the search of operators, as that of `alone`
 */
export function isSearched(
  { configuration }: PricedConfiguration,
  alone: FittingPlan | null,
  isOpen: boolean,
): boolean {
  const { degrees, recompute, offload = 'none', zero } = configuration;
  const { plan: known, found } = alone?.planned ?? {};
  const { pp, sp, ep } = known?.degrees ?? { pp: 0, sp: 0, ep: 0 };
  const isTooLarge = found?.rejected.some((other) => other.kind === 'too-large' && other.degrees.tp === degrees.tp);
  const isAlike = pp === 1 && degrees.pp === pp && degrees.sp === sp && degrees.ep === ep;
  const isWhole = microBatchCount(configuration) === (alone?.training?.microBatches ?? 1);
  // For inference over sp a proposal is lowered in two forms of attention; `alone` is only one of them.
  const isOneForm = sp === 1 || alone?.training !== undefined;
  const isPlain = recompute === 'none' && offload === 'none' && (zero === 0 || isOpen);
  return isAlike && isWhole && isOneForm && !isTooLarge && isPlain;
}

/** The best of dp and tp alone with the estimate for its degrees, where both exist. */
export function withEstimate(alone: FittingPlan | null, proposals: readonly PricedConfiguration[]): FittingPlan | null {
  if (!alone) return null;
  const { degrees } = alone.planned.plan;
  const isLike = ({ configuration }: PricedConfiguration) =>
    AXIS_ORDER.every((axis) => configuration.degrees[axis] === degrees[axis]);
  const priced = proposals.filter(isLike).sort((a, b) => a.seconds - b.seconds)[0] ?? null;
  return { ...alone, priced };
}

/**
 * The factor by which lowered plans like a proposal exceed their estimates. Prices of sharded graphs exceed those of layers by a
 * factor, which is almost the same for a model's plans of one kind, and includes their transfers and bubbles; the least is taken.
 * Those of pipelines are close whatever their number of stages. Null before a plan like it is lowered; plans that trade time for
 * memory do not count.
 */
function factorOf(proposal: PricedConfiguration, lowered: readonly FittingPlan[]): number | null {
  return factorOfKind(proposal, lowered) ?? (hasStages(proposal) ? leastFactor(lowered, hasStages) : null);
}

/** The same from plans of its kind alone. */
function factorOfKind(proposal: PricedConfiguration, lowered: readonly FittingPlan[]): number | null {
  return leastFactor(lowered, (other) => kindOf(other) === kindOf(proposal));
}

function leastFactor(lowered: readonly FittingPlan[], isLike: (priced: PricedConfiguration) => boolean): number | null {
  const factors = lowered.flatMap((one) =>
    one.priced && !one.planned.found.savesMemory && isLike(one.priced) ? [stepSecondsOf(one) / one.priced.seconds] : [],
  );
  return factors.length > 0 ? Math.min(...factors) : null;
}

export function hasStages({ configuration }: PricedConfiguration): boolean {
  return configuration.degrees.pp > 1;
}
