/**
 * @file What was compared with a plan: proposals as lowered, the verdict of the search on every combination of degrees, and the
 * best degrees of the sharding planner. `compile --json` prints it, compared.json keeps it, and reports are made from it.
 */
import { bytesForTensors } from '../../cost-model/predict.js';
import type { Degrees, StepConfiguration } from '../../cost-model/step/configuration.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import type { PlanResult } from '../../search/plan.js';
import type { Preferences } from '../../search/preference.js';
import type { ComparedPlan } from './compared-plans.js';
import type { FewerDevices } from './fewer-devices.js';
import type { DegreesVerdict, PricedConfiguration, StepSearch } from './search-step.js';

/** All that was compared, with units in the names. */
export interface PlanComparison {
  /** Plans that were lowered, the chosen one first; empty if none could be, null if none were proposed. */
  readonly compared: readonly ComparedRecord[] | null;
  /** The search by the price of layers; null if nothing was proposed. */
  readonly proposals: ProposalsRecord | null;
  /** The best degrees of the sharding planner, the chosen ones first. */
  readonly top: readonly RankedRecord[];
  /** Degrees that the sharding planner did not take, and why. */
  readonly rejected: readonly { readonly degrees: Partial<Degrees>; readonly reason: string }[];
}

export interface ComparedRecord extends Omit<ComparedPlan, 'proposed' | 'estimate'> {
  /** The settings besides degrees and batches; left out for the best of dp · tp alone. */
  readonly proposed?: ProposedSettings;
  readonly estimate?: NonNullable<ComparedPlan['estimate']>;
}

type ProposedSettings = Pick<
  StepConfiguration,
  'schedule' | 'virtualStages' | 'stageLayers' | 'zero' | 'recompute' | 'recomputedLayers' | 'offload'
>;

export interface PricedRecord {
  readonly configuration: StepConfiguration;
  readonly stepSeconds: number;
  /** `estimate`: the closed form of the pipeline; `simulated`: action by action. */
  readonly priceLevel: PricedConfiguration['priceLevel'];
  readonly peakBytes: number;
  readonly fullestStage: number;
  readonly hostBytes?: number;
  readonly hostMemoryBytes?: number;
}

/** The verdict on a combination of degrees. */
export type VerdictRecord = { readonly degrees: Degrees } & (
  | ({ readonly kind: 'priced'; readonly timesAsLong?: number; readonly timesAsMuch?: number } & PricedRecord)
  | { readonly kind: 'slower' | 'unseen'; readonly atLeastSeconds: number }
  | ({ readonly kind: 'too-large' } & PricedRecord)
  | { readonly kind: 'impossible'; readonly reason: string }
);

export interface ProposalsRecord {
  readonly objective: StepSearch['objective'];
  /** Numbers of combinations of degrees and of priced configurations. */
  readonly combinations: number;
  readonly priced: number;
  /** (cost − bound) / cost. */
  readonly gap: number;
  /** Assumptions of the proof. */
  readonly with: readonly string[];
  readonly timeLimited?: true;
  readonly preferences: Preferences;
  /** The configuration that is proposed first. */
  readonly first: PricedRecord;
  /** The fastest, and why it was not proposed first; null where it was. */
  readonly fastest: (PricedRecord & { readonly because: string }) | null;
  readonly leavesHeadroom: boolean;
  readonly fewerDevices: FewerDevices | null;
  /** Cheapest first, then those that are slower at least, not searched, too large, impossible. */
  readonly verdicts: readonly VerdictRecord[];
}

export interface RankedRecord extends Omit<PlanResult['top'][number], 'stepNanoseconds' | 'boundNanoseconds'> {
  readonly stepSeconds: number;
  readonly boundSeconds: number;
}

export function comparisonOf({
  compared,
  searched,
  top,
  rejected,
}: Pick<PlanResult, 'top' | 'rejected'> & {
  readonly compared: readonly ComparedPlan[] | null;
  readonly searched: StepSearch | null;
}): PlanComparison {
  return {
    compared: compared?.map((own) => comparedRecord(own, searched)) ?? null,
    proposals: searched && proposalsRecord(searched),
    top: top.map(({ stepNanoseconds, boundNanoseconds, ...ranked }) => ({
      ...ranked,
      stepSeconds: stepNanoseconds / 1e9,
      boundSeconds: boundNanoseconds / 1e9,
    })),
    rejected: rejected.map(({ degrees, reason }) => ({ degrees, reason })),
  };
}

function comparedRecord(
  { degrees, microBatches, proposed, estimate, ...figures }: ComparedPlan,
  searched: StepSearch | null,
): ComparedRecord {
  return {
    degrees,
    microBatches,
    ...(proposed ? { proposed: settingsOf(proposed) } : {}),
    ...(estimate && searched
      ? { estimate: { ...estimate, peakBytes: tensorBytes(estimate.peakBytes, searched) } }
      : {}),
    ...figures,
  };
}

/** The settings that a configuration states. */
function settingsOf(proposed: StepConfiguration): ProposedSettings {
  const { schedule, virtualStages, stageLayers, zero, recompute, recomputedLayers, offload } = proposed;
  const given = withoutUndefined({ schedule, stageLayers, recomputedLayers, offload });
  return { virtualStages, zero, recompute, ...given };
}

/** The same of a search alone. */
export function proposalsRecord(search: StepSearch): ProposalsRecord {
  const { verdicts, priced, gap, isCutOff, preferences, passed, tight, fewer, objective, simulation, best } = search;
  const first = best[0] as PricedConfiguration;
  return {
    objective,
    combinations: verdicts.length,
    priced,
    gap,
    with: assumptionsOf(search),
    ...(isCutOff ? { timeLimited: true } : {}),
    preferences,
    first: { ...pricedRecord(first, search), stepSeconds: simulation.stepSeconds },
    fastest: passed ? { ...pricedRecord(passed.priced, search), because: passed.because } : null,
    leavesHeadroom: tight === null,
    fewerDevices: fewer,
    verdicts: verdicts.map((verdict) => verdictRecord(verdict, search)),
  };
}

/** Assumptions of the proof, except those that options decide: it holds only under them. */
function assumptionsOf({ objective, decided, simulation }: StepSearch): readonly string[] {
  const { configuration, cluster } = simulation;
  const even = decided.pp === 1 || decided.stageLayers ? [] : ['evenly cut stages'];
  if (objective === 'time') return even;
  const offers = !configuration.inference && cluster.device.host !== undefined;
  return [
    ...(offers && decided.offload === undefined ? ['nothing on the host'] : []),
    ...even,
    ...(decided.pp === 1 || decided.schedule !== undefined ? [] : ['no naive schedule']),
  ];
}

/** Bytes of tensors, as lowered plans have them: of programs, a device's other bytes are in the search's figures and limit. */
export function tensorBytes(bytes: number, { simulation: { configuration, cluster } }: StepSearch): number {
  return configuration.program ? bytesForTensors(bytes, cluster) : bytes;
}

function pricedRecord(
  { configuration, seconds, priceLevel, bytes, stage, host }: PricedConfiguration,
  search: StepSearch,
): PricedRecord {
  return {
    configuration,
    stepSeconds: seconds,
    priceLevel,
    peakBytes: tensorBytes(bytes, search),
    fullestStage: stage,
    ...(host ? { hostBytes: host.bytes, hostMemoryBytes: host.memoryBytes } : {}),
  };
}

function verdictRecord(verdict: DegreesVerdict, search: StepSearch): VerdictRecord {
  const { objective, simulation, best } = search;
  const { degrees, kind } = verdict;
  if (kind === 'impossible') return { kind, degrees, reason: verdict.reason };
  if (kind === 'too-large') return { kind, degrees, ...pricedRecord(verdict.least, search) };
  if (kind !== 'priced') return { kind, degrees, atLeastSeconds: verdict.atLeastSeconds };
  const { seconds, bytes } = verdict.best;
  const times =
    objective === 'time'
      ? { timesAsLong: seconds / simulation.stepSeconds }
      : { timesAsMuch: tensorBytes(bytes, search) / tensorBytes(best[0]?.bytes ?? bytes, search) };
  return { kind, degrees, ...pricedRecord(verdict.best, search), ...times };
}
