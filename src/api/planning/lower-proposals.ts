/**
 * @file Lowers proposals of a search over steps, the most likely first. Each is planned operator by operator and priced as
 * lowered with its memory; the next ones are lowered only where that price contradicts the order of the proposals.
 */
import { bytesForTensors, deviceBytes, usableBytes } from '../../cost-model/predict.js';
import type { Degrees, StepConfiguration } from '../../cost-model/step/configuration.js';
import { AutoparError } from '../../ir/error.js';
import { interruptible } from '../../ir/interruption.js';
import type { PricedConfiguration } from '../../search/configurations/priced.js';
import { NothingFits } from '../../search/nothing-fits.js';
import { OF_THIS_MESH, type PlanOptions } from '../../search/plan.js';
import { NEAR, preferencesOf } from '../../search/preference.js';
import { Deadline } from '../../solver/deadline.js';
import type { Training } from '../models/training.js';
import { plan } from '../plan.js';
import { stagesNamed } from '../requests/decisions.js';
import {
  type Choices,
  type ComparedPlan,
  type FittingPlan,
  figureOf,
  notTaken,
  type PreparedModel,
  refusal,
  stepSecondsOf,
} from './compared-plans.js';
import { hasStages, isSearched, likeliest, mayBeTaken, withEstimate } from './next-proposal.js';
import { MOST_WORK, MOST_WORK_OF_KINDS, meshWork } from './planning-work.js';
import {
  kindOf,
  microBatchCount,
  type ProposedConfigurations,
  type Proposer,
  proposalOptions,
  proposer,
} from './proposals.js';
import type { StepSearch } from './search-step.js';

export interface LoweredProposals {
  /** The fastest first. */
  readonly fitting: readonly FittingPlan[];
  readonly others: readonly ComparedPlan[];
  /** The search by the price of layers; null where nothing could be proposed. */
  readonly searched: StepSearch | null;
  /** Why nothing could be proposed; null where something was. */
  readonly refusal: AutoparError | null;
  readonly notes: readonly string[];
}

export const NOT_PROPOSED: LoweredProposals = { fitting: [], others: [], searched: null, refusal: null, notes: [] };

/** The most proposals that are lowered, one after another. */
const LOWERED = 4;

/**
 * Share of the memory limit that estimates of training may need in the first round, where headroom is wanted. Estimates are off
 * by some per cent: a plan that is too large by less is planned in vain, and one that recomputes a layer more is hardly slower.
 */
const SAFE_SHARE = 0.95;

/** The most times that plans with stages, or without, are proposed again for less memory. */
const AGAIN = 2;

/**
 * Lowers the first few proposals. Where one does not fit, those like it are proposed again at once for less memory, by the
 * ratio of the memory that it needs to its estimate: the next ones of the first proposals may be far slower.
 * @param alone the best plan of dp and tp alone; null where there is none
 */
export async function lowerProposals(
  choices: Choices,
  deadline: Deadline,
  alone: FittingPlan | null,
): Promise<LoweredProposals> {
  const { options, training, cluster, read } = choices;
  const { pp = 1 } = alone?.planned.plan.degrees ?? options.degrees ?? {};
  options.onProgress?.('searching steps');
  // Half of the time is for proposing.
  const half = new Deadline(Number.isFinite(deadline.left()) ? deadline.left() / 2 : undefined, options.signal);
  const proposing = await proposer(options, training, read, cluster, half).catch(refusal);
  if (proposing instanceof AutoparError) return nothingProposed(proposing, pp);
  const limit = limitOf(choices);
  const { headroom } = preferencesOf(options, options.memory !== undefined);
  const within = (bytes: number) => {
    const limitBytes = Number.isFinite(bytes) ? deviceBytes(bytes, cluster) : null;
    return proposing.propose(limitBytes).catch(refusal);
  };
  const safe = await within(training ? Math.max(SAFE_SHARE, 1 - headroom) * limit : limit);
  // Configurations that hardly fit, or do not fit, are proposed only where there are no others.
  const proposed = safe instanceof AutoparError ? await within(limit) : safe;
  if (proposed instanceof AutoparError) return nothingProposed(proposed, pp);
  const searched = { ...proposed.searched, fewer: await proposing.fewer(proposed.searched) };
  const lowering = new ProposalLowering(choices, proposing.wholeBytes, within, alone, deadline);
  await lowering.lowerFirst(proposed.proposals);
  const figure = figureOf(options);
  const fitting = [...lowering.fitting].sort((a, b) => figure(a) - figure(b));
  return { fitting, others: [...lowering.others.values()], searched, refusal: null, notes: [] };
}

/** @param pp stages that were given: proposals have whole layers in each, and a plan of given stages need not */
function nothingProposed(error: AutoparError, pp: number): LoweredProposals {
  const given = `pp ${pp} was planned as given, its stages cut between operators, and beside it only dp and tp`;
  const planned = pp > 1 ? given : 'only dp and tp were planned';
  const note = `${planned}, because no other step could be proposed: ${error.message}`;
  return { ...NOT_PROPOSED, refusal: error, notes: [note] };
}

/** Bytes that tensors may take of a device; unlimited on ranks of this machine. */
function limitOf({ options, cluster }: Choices): number {
  return options.memory ?? usableBytes(cluster) ?? Number.POSITIVE_INFINITY;
}

const SLOWER = 'not lowered: estimated to be no better';
const LARGER = 'not lowered: estimated to need too much memory, from another lowered proposal';
const LATE = 'not lowered before the time limit';
const TOO_LARGE = 'not lowered: the model has too many operators to plan several times';

/** Proposals of one model that are lowered one after another, and conclusions from the lowered ones about the next. */
class ProposalLowering {
  readonly fitting: FittingPlan[] = [];
  readonly others = new Map<string, ComparedPlan>();
  /** For dp and tp alone only the fastest plan is known, not the one with the least memory. */
  private readonly isTimed: boolean;
  private readonly limit: number;
  private paired: FittingPlan | null;
  /** Operators times sub-axes that were planned. */
  private work = 0;
  private readonly seen = new Set<string>();
  /** Kinds of the lowered proposals. */
  private readonly kinds = new Set<string>();
  /**
   * The ratio of needed to estimated memory for plans that are too large, or fit only by saving memory: the least among lowered
   * ones, with stages and without.
   */
  private readonly excess = new Map<boolean, number>();
  /** How often plans with stages, and those without, were proposed again. */
  private readonly again = new Map<boolean, number>();

  constructor(
    private readonly choices: Choices,
    private readonly wholeBytes: Proposer['wholeBytes'],
    private readonly within: (bytes: number) => Promise<ProposedConfigurations | AutoparError>,
    private readonly alone: FittingPlan | null,
    private readonly deadline: Deadline,
  ) {
    this.isTimed = choices.options.objective !== 'memory';
    this.limit = limitOf(choices);
    this.paired = alone;
  }

  /** Lowers the first few, and those that are proposed again for less memory. */
  async lowerFirst(proposals: readonly PricedConfiguration[]): Promise<void> {
    const { choices, alone, isTimed, fitting, others, seen } = this;
    this.paired = withEstimate(alone, proposals);
    let waiting = proposals;
    let tried = 0;
    while (tried < LOWERED) {
      const priced = isTimed ? likeliest(waiting, fitting) : waiting[0];
      if (!priced) break;
      waiting = waiting.filter((other) => other !== priced);
      const key = JSON.stringify(priced.configuration);
      if (seen.has(key) || (isTimed && isSearched(priced, alone, this.isOpen(priced)))) continue;
      seen.add(key);
      const refuted = this.refuted(priced);
      if (refuted !== null) {
        if (proposals.slice(0, LOWERED).includes(priced)) others.set(key, notTaken(priced, refuted));
        continue;
      }
      tried++;
      const unplanned = this.unplanned(priced);
      if (unplanned !== null) {
        others.set(key, notTaken(priced, unplanned));
        continue;
      }
      choices.options.onProgress?.(
        `planning proposal ${tried} of ${Math.max(tried, Math.min(proposals.length, LOWERED))}`,
      );
      const result = await this.lower(priced);
      if (!(result instanceof AutoparError)) continue;
      others.set(key, notTaken(priced, result));
      // Where pins do not fit a mesh, nothing is searched on it.
      if (OF_THIS_MESH.has(result.code)) tried--;
      if (!(result instanceof NothingFits)) continue;
      const excess = result.figures.leastBytes / this.bytes(priced);
      this.exceeds(priced, excess);
      const smaller = await this.proposedAgain(priced, excess);
      if (smaller.length === 0) continue;
      tried--;
      waiting = [...waiting, ...smaller];
    }
  }

  /** Plans with stages, or without, as a proposal that did not fit, that need less by its ratio of memory to the estimate. */
  private async proposedAgain(priced: PricedConfiguration, excess: number): Promise<readonly PricedConfiguration[]> {
    const isStaged = hasStages(priced);
    const again = this.again.get(isStaged) ?? 0;
    if (again === AGAIN) return [];
    this.again.set(isStaged, again + 1);
    const proposed = await this.within(this.limit / excess);
    return proposed instanceof AutoparError ? [] : proposed.proposals.filter((one) => hasStages(one) === isStaged);
  }

  /** Why lowered plans make it pointless to lower a proposal; null where they do not. */
  private refuted(priced: PricedConfiguration): string | null {
    const { fitting, paired } = this;
    if (this.isTimed && !mayBeTaken(priced, paired ? [paired, ...fitting] : fitting, this.choices)) return SLOWER;
    return this.bytes(priced) * (this.excess.get(hasStages(priced)) ?? 1) > this.limit ? LARGER : null;
  }

  /** Why time does not suffice to lower a proposal; null where it does. */
  private unplanned(priced: PricedConfiguration): string | null {
    if (this.deadline.isOver()) return LATE;
    const known = this.fitting[0] ?? this.alone;
    const most = this.kinds.has(kindOf(priced)) ? MOST_WORK : MOST_WORK_OF_KINDS;
    return known && this.work + workOf(priced, known) > most ? TOO_LARGE : null;
  }

  /** Lowers one proposal; returns the error if it has no plan. */
  private async lower(priced: PricedConfiguration): Promise<FittingPlan | AutoparError> {
    this.kinds.add(kindOf(priced));
    const known = this.fitting[0] ?? this.alone;
    const result = await lowerProposal(this.choices, priced, this.isOpen(priced), this.deadline).catch(refusal);
    const counted = known ?? (result instanceof AutoparError ? null : result);
    if (counted) this.work += workOf(priced, counted);
    if (result instanceof AutoparError) return result;
    this.fitting.push(result);
    // Others that are estimated to need as much would pay time for memory too.
    if (result.planned.found.savesMemory) this.exceeds(priced, NEAR * (this.limit / this.bytes(priced)));
    return result;
  }

  /**
   * On ranks of this machine the search chooses, update by update, which state is sharded, unless memory requires a level.
   * Accelerators overlap messages of updates with the backward pass, as one: there a level is faster.
   */
  private isOpen(priced: PricedConfiguration): boolean {
    const { options, cluster } = this.choices;
    return (
      options.zero === undefined &&
      cluster.local &&
      isOfUpdates(priced.configuration) &&
      bytesForTensors(this.wholeBytes(priced), cluster) <= this.limit
    );
  }

  private bytes(priced: PricedConfiguration): number {
    return bytesForTensors(priced.bytes, this.choices.cluster);
  }

  private exceeds(priced: PricedConfiguration, times: number): void {
    const known = this.excess.get(hasStages(priced)) ?? Number.POSITIVE_INFINITY;
    this.excess.set(hasStages(priced), Math.min(times, known));
  }
}

/** Work of planning a proposal. Training graphs of a model have almost the same operators at any number of micro-batches. */
function workOf({ configuration }: PricedConfiguration, { imported }: PreparedModel): number {
  const { dp, sp, tp } = configuration.degrees;
  return meshWork(imported.graph, dp * sp * tp);
}

/** Whether the ZeRO level of a step affects only its updates: with one micro-batch, level 2 equals level 1. */
function isOfUpdates(configuration: StepConfiguration): boolean {
  return configuration.zero === 1 || (configuration.zero === 2 && microBatchCount(configuration) === 1);
}

/**
 * Plans a proposal operator by operator.
 * @param isOpen its ZeRO level is left open
 * @throws AutoparError where it has no plan, or none that fits
 */
async function lowerProposal(
  choices: Choices,
  priced: PricedConfiguration,
  isOpen: boolean,
  deadline: Deadline,
): Promise<FittingPlan> {
  const { form, options, training } = choices;
  const { configuration } = priced;
  const { dp, sp, ep } = configuration.degrees;
  const { microBatch: _, ...given } = options;
  await interruptible(options.signal);
  const formed = (degrees: Partial<Degrees>) =>
    form(
      { ...given, degrees: { ...given.degrees, ...degrees } },
      training && { ...training, microBatches: microBatchCount(configuration) },
    );
  const written = await formed({ dp, sp, ep });
  const forms = [written];
  // Attention in plain operators gives each rank its own queries, one operator its own heads and features of values: neither is
  // faster for every model. Training is planned only in the first form, since planning it takes several times as long.
  if (!training && sp > 1) {
    const whole = await formed({ dp, sp: 1, ep });
    if (whole.imported.graph.nodes.length !== written.imported.graph.nodes.length) forms.push(whole);
  }
  const results: (FittingPlan | AutoparError)[] = [];
  for (const one of forms) results.push(await lowerFormed(choices, priced, one, isOpen, deadline).catch(refusal));
  const fitting = results.flatMap((one) => (one instanceof AutoparError ? [] : [one]));
  const [best] = fitting.sort((one, other) => stepSecondsOf(one) - stepSecondsOf(other));
  if (!best) throw results[0];
  return best;
}

/** The same in one form of the model. */
async function lowerFormed(
  { options, training, read }: Choices,
  priced: PricedConfiguration,
  formed: PreparedModel,
  isOpen: boolean,
  deadline: Deadline,
): Promise<FittingPlan> {
  const { configuration } = priced;
  const isCut = options.stages !== undefined || stagesNamed(read, options).length > 0;
  const asked = { ...options, ...proposalOptions(configuration, formed.imported.graph, options, isCut) };
  const { zero: _zero, ...open } = asked;
  return {
    ...formed,
    planned: await plan(formed.imported, isOpen ? open : asked, memoryOf(training), deadline),
    priced,
  };
}

/**
 * Proposals of training state how memory is saved, so operators are searched within the memory limit only where none of them
 * fits. Those of inference save memory only by their degrees, so operators are searched within the limit at once, however many
 * there are.
 */
export function memoryOf(training: Training | undefined): PlanOptions['memory'] {
  return training ? 'checked' : 'tried';
}
