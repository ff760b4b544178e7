/**
 * @file Compared plans: those that fit, by their seconds or their memory as lowered, and why each of the others was not taken.
 */
import { type Cluster, clusterSize } from '../../cost-model/cluster.js';
import type { Degrees, StepConfiguration } from '../../cost-model/step/configuration.js';
import { AutoparError } from '../../ir/error.js';
import type { PricedConfiguration } from '../../search/configurations/priced.js';
import { bytesWritten, multipleWritten } from '../../search/figures.js';
import { NothingFits } from '../../search/nothing-fits.js';
import type { ComparedAlternative } from '../../search/preference.js';
import type { ImportedModel } from '../models/import.js';
import type { Training } from '../models/training.js';
import type { PlannedModel } from '../plan.js';
import type { NestedCompileOptions } from '../requests/compile-options.js';
import { microBatchCount } from './proposals.js';

/** A model in the form that is planned. */
export interface PreparedModel {
  readonly imported: ImportedModel;
  /** The training options with the number of micro-batches. */
  readonly training: Training | undefined;
}

/** The inputs of the choice of a plan. */
export interface Choices {
  readonly cluster: Cluster;
  /** The model as it was read. */
  readonly read: ImportedModel;
  readonly options: NestedCompileOptions;
  /** Training as requested; undefined for inference. */
  readonly training: Training | undefined;
  /** The model as it is planned. @throws AutoparError where it cannot have these micro-batches */
  readonly form: (asked: NestedCompileOptions, training: Training | undefined) => Promise<PreparedModel>;
}

/** A candidate plan, and its result. */
export interface ComparedPlan {
  readonly degrees: Degrees;
  readonly microBatches: number;
  /** The proposed configuration; null for the best of dp · tp alone. */
  readonly proposed: StepConfiguration | null;
  /** `free`: any axis could shard any factor; left out, axes shard by their roles. */
  readonly axes?: 'free';
  /** The estimate by the price of layers; null where nothing was proposed. */
  readonly estimate: { readonly stepSeconds: number; readonly peakBytes: number } | null;
  /** Seconds as lowered; null where it was not lowered, or does not fit. */
  readonly stepSeconds: number | null;
  /** Peak memory of the fullest stage, as lowered; null where it was not lowered. */
  readonly peakBytes: number | null;
  /** Why it was not taken; null for the one that was. */
  readonly reason: string | null;
}

/** A plan that fits. */
export interface FittingPlan extends PreparedModel {
  readonly planned: PlannedModel;
  /** `free`: any axis may shard any factor; left out, axes shard by their roles. */
  readonly axes?: 'free';
  readonly priced: PricedConfiguration | null;
}

/** The figure that the objective minimises, as lowered: bytes of the fullest stage, or seconds. */
export function figureOf({ objective }: Pick<NestedCompileOptions, 'objective'>): (plan: FittingPlan) => number {
  return objective === 'memory' ? peakOf : stepSecondsOf;
}

export function stepSecondsOf({ planned }: FittingPlan): number {
  return planned.found.prediction.stepSeconds;
}

export function peakOf({ planned }: FittingPlan): number {
  return Math.max(...planned.found.prediction.peakBytes);
}

/** The figures by which a plan that fits is preferred to others. */
export function alternativeOf(plan: FittingPlan): ComparedAlternative {
  const { degrees, requested } = plan.planned.plan;
  return {
    seconds: stepSecondsOf(plan),
    bytes: peakOf(plan),
    degrees,
    isOffloaded: (requested?.offload ?? 'none') !== 'none',
    liftsRoles: plan.axes === 'free',
  };
}

/** @param all plans that fit, first the one that is taken */
export function ranked(
  all: readonly FittingPlan[],
  others: readonly ComparedPlan[],
  options: Pick<NestedCompileOptions, 'objective'>,
): readonly ComparedPlan[] {
  const figure = figureOf(options);
  const least = figure(all[0] as FittingPlan);
  const more = options.objective === 'memory' ? 'as much memory' : 'as long';
  const fitting = all.map((lowered, index): ComparedPlan => {
    const { planned, priced, training, axes } = lowered;
    const own = figure(lowered);
    return {
      degrees: planned.plan.degrees,
      microBatches: training?.microBatches ?? 1,
      ...estimated(priced),
      ...(axes ? { axes } : {}),
      stepSeconds: stepSecondsOf(lowered),
      peakBytes: peakOf(lowered),
      reason: index === 0 ? null : `${multipleWritten(own / least, more)}${asFast(own, least)}`,
    };
  });
  return [...fitting, ...others];
}

/** Why a faster plan is not taken. */
function asFast(seconds: number, least: number): string {
  return seconds < least ? ', and not as simple or with less memory free' : '';
}

function estimated(priced: PricedConfiguration | null): Pick<ComparedPlan, 'proposed' | 'estimate'> {
  if (!priced) return { proposed: null, estimate: null };
  const { configuration, seconds, bytes } = priced;
  return { proposed: configuration, estimate: { stepSeconds: seconds, peakBytes: bytes } };
}

export function notTaken(priced: PricedConfiguration, why: AutoparError | string): ComparedPlan {
  const { degrees } = priced.configuration;
  return {
    degrees,
    microBatches: microBatchCount(priced.configuration),
    ...estimated(priced),
    ...without(why),
  };
}

/** The refused plan of dp and tp alone. */
export function refusedPlan({ options, cluster, training }: Choices, why: AutoparError | null): ComparedPlan {
  const { dp, tp, pp = 1, sp = 1, ep = 1 } = options.degrees ?? {};
  const rest = clusterSize(cluster) / (pp * sp);
  return {
    degrees: { pp, sp, ep, dp: dp ?? rest / (tp ?? 1), tp: tp ?? (dp === undefined ? 1 : rest / dp) },
    microBatches: training?.microBatches ?? 1,
    ...estimated(null),
    ...without(why ?? 'too many operators to plan dp and tp alone'),
  };
}

function without(why: AutoparError | string): Pick<ComparedPlan, 'stepSeconds' | 'peakBytes' | 'reason'> {
  if (typeof why === 'string') return { stepSeconds: null, peakBytes: null, reason: why };
  if (!(why instanceof NothingFits)) return { stepSeconds: null, peakBytes: null, reason: why.message };
  const { leastBytes, limitBytes, isBound } = why.figures;
  const [least, limit] = [leastBytes, limitBytes].map(bytesWritten);
  return {
    stepSeconds: null,
    peakBytes: leastBytes,
    reason: isBound ? `needs at least ${least} of ${limit}, however sharded` : `needs ${least} of ${limit} as lowered`,
  };
}

/** The error of a candidate without a plan, to be compared with the others. @throws errors that the user cannot fix */
export function refusal(error: unknown): AutoparError {
  if (error instanceof AutoparError) return error;
  throw error;
}
