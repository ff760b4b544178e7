/**
 * @file Proposals of a search over steps as lowered: the likeliest first, each planned operator by operator and priced as lowered
 * with its memory; the next ones only where that price refutes the order of the proposals.
 */
import { bytesForTensors, deviceBytes, usableBytes } from '../../cost-model/predict.js';
import type { Degrees, StepConfiguration } from '../../cost-model/step/configuration.js';
import { AutoparError } from '../../ir/error.js';
import { interruptible } from '../../ir/interruption.js';
import type { PricedConfiguration } from '../../search/configurations/priced.js';
import { NothingFits, type PlanOptions } from '../../search/plan.js';
import { NEAR, preferencesOf } from '../../search/preference.js';
import { Deadline } from '../../solver/deadline.js';
import type { Training } from '../models/training.js';
import { plan } from '../plan.js';
import {
  type Choices,
  type ComparedPlan,
  type FittingPlan,
  type Formed,
  figureOf,
  notTaken,
  refusal,
  stepSecondsOf,
} from './compared-plans.js';
import { hasStages, isSearched, likeliest, mayBeFaster, withEstimate } from './next-proposal.js';
import { MOST_WORK, MOST_WORK_OF_KINDS, meshWork } from './planning-work.js';
import { askedOf, kindOf, microBatchCount, type Proposed, type Proposer, proposer } from './proposals.js';
import type { StepSearch } from './search-step.js';

export interface LoweredProposals {
  /** The fastest first. */
  readonly fitting: readonly FittingPlan[];
  readonly others: readonly ComparedPlan[];
  /** All that was compared by the price of layers; null where nothing could be proposed. */
  readonly searched: StepSearch | null;
  /** Why nothing could be proposed; null where something was. */
  readonly refusal: AutoparError | null;
  readonly notes: readonly string[];
}

export const NOT_PROPOSED: LoweredProposals = { fitting: [], others: [], searched: null, refusal: null, notes: [] };

/** Proposals that may be lowered, one after another. */
const LOWERED = 4;

/**
 * Of the memory that there is, as much as estimates of training may need for a start, where headroom is wanted: they are off by
 * some per cent, a plan that is too large by less is planned in vain, and one that recomputes a layer more takes hardly longer.
 */
const SAFE_SHARE = 0.95;

/** How often proposals are made, for less memory where some of them do not fit once they are lowered. */
const ROUNDS = 3;

/**
 * Proposals as lowered, the first few; where none of them fits, those for as much less memory as the lowered ones need more than
 * was estimated.
 * @param alone the best plan of dp and tp alone; null where there is none
 */
export async function lowerProposals(
  choices: Choices,
  deadline: Deadline,
  alone: FittingPlan | null,
): Promise<LoweredProposals> {
  const { options, training, cluster, read } = choices;
  options.onProgress?.('searching steps');
  // Half of the time is for proposing.
  const half = new Deadline(Number.isFinite(deadline.left()) ? deadline.left() / 2 : undefined, options.signal);
  const proposing = await proposer(options, training, read, half).catch(refusal);
  if (proposing instanceof AutoparError) return unproposed(proposing);
  const lowering = new ProposalLowering(choices, proposing, alone, deadline);
  const limit = limitOf(choices);
  const within = (bytes: number) => (Number.isFinite(bytes) ? deviceBytes(bytes, cluster) : null);
  const { headroom } = preferencesOf(options, options.memory !== undefined);
  let asked = within(training ? Math.max(SAFE_SHARE, 1 - headroom) * limit : limit);
  let searched: StepSearch | null = null;
  for (let round = 0; round < ROUNDS; round++) {
    const safe: Proposed | AutoparError = await proposing.propose(asked).catch(refusal);
    // What fits nearly, or not at all, is proposed where nothing else is.
    const proposed =
      safe instanceof AutoparError && round === 0 ? await proposing.propose(within(limit)).catch(refusal) : safe;
    if (proposed instanceof AutoparError) {
      if (round === 0) return unproposed(proposed);
      break;
    }
    searched ??= { ...proposed.searched, fewer: await proposing.fewer(proposed.searched) };
    const excess = await lowering.lowerFirst(proposed.proposals);
    if (excess === null) break;
    asked = within(limit / excess);
  }
  const figure = figureOf(options);
  const fitting = [...lowering.fitting].sort((a, b) => figure(a) - figure(b));
  return { fitting, others: [...lowering.others.values()], searched, refusal: null, notes: [] };
}

function unproposed(error: AutoparError): LoweredProposals {
  const note = `dp and tp alone were planned, since no other step could be proposed: ${error.message}`;
  return { ...NOT_PROPOSED, refusal: error, notes: [note] };
}

/** Bytes that tensors may take of a device; without end on ranks of this machine. */
function limitOf({ options, cluster }: Choices): number {
  return options.memory ?? usableBytes(cluster) ?? Number.POSITIVE_INFINITY;
}

const SLOWER = 'not lowered: estimated to be no faster';
const LARGER = 'not lowered: estimated to be too large, by what another needs';
const LATE = 'not lowered before the time limit';
const TOO_LARGE = 'not lowered: the model has too many operators to plan several times';

/** Proposals of one model that are lowered one after another, and what the lowered ones tell about the next. */
class ProposalLowering {
  readonly fitting: FittingPlan[] = [];
  readonly others = new Map<string, ComparedPlan>();
  /** Of dp and tp alone the fastest is known, not the one with the least memory. */
  private readonly isTimed: boolean;
  private readonly limit: number;
  private paired: FittingPlan | null;
  /** Operators times sub-axes that were planned. */
  private work = 0;
  private readonly seen = new Set<string>();
  /** Of what was lowered. */
  private readonly kinds = new Set<string>();
  /**
   * How many times its estimate needs what is too large, or fits with memory saved alone: the least of what was lowered, with
   * stages and without.
   */
  private readonly excess = new Map<boolean, number>();

  constructor(
    private readonly choices: Choices,
    private readonly proposing: Proposer,
    private readonly alone: FittingPlan | null,
    private readonly deadline: Deadline,
  ) {
    this.isTimed = choices.options.objective !== 'memory';
    this.limit = limitOf(choices);
    this.paired = alone;
  }

  /**
   * Lowers the first few that were not lowered yet.
   * @returns how many times its estimate what did not fit needs, the least of them; null where all fit
   */
  async lowerFirst(proposals: readonly PricedConfiguration[]): Promise<number | null> {
    const { choices, alone, isTimed, fitting, others, seen } = this;
    if (!this.paired?.priced) this.paired = withEstimate(alone, proposals);
    const waiting = new Set(proposals);
    let least: number | null = null;
    let tried = 0;
    while (waiting.size > 0 && tried < LOWERED) {
      const priced = isTimed ? likeliest(waiting, fitting) : [...waiting][0];
      if (!priced) break;
      waiting.delete(priced);
      const key = JSON.stringify(priced.configuration);
      if (seen.has(key) || (isTimed && isSearched(priced, alone))) continue;
      seen.add(key);
      const refuted = this.refuted(priced);
      if (refuted !== null) {
        if (proposals.indexOf(priced) < LOWERED) others.set(key, notTaken(priced, refuted));
        continue;
      }
      tried++;
      const unplanned = this.unplanned(priced);
      if (unplanned !== null) {
        others.set(key, notTaken(priced, unplanned));
        continue;
      }
      choices.options.onProgress?.(`planning proposal ${tried} of ${Math.min(proposals.length, LOWERED)}`);
      const result = await this.lower(priced);
      if (!(result instanceof AutoparError)) continue;
      others.set(key, notTaken(priced, result));
      if (!(result instanceof NothingFits)) continue;
      const own = result.figures.leastBytes / this.bytes(priced);
      least = Math.min(least ?? own, own);
      this.exceeds(priced, own);
    }
    return least;
  }

  /** Why what is lowered leaves no reason to lower a proposal; null where it leaves one. */
  private refuted(priced: PricedConfiguration): string | null {
    const { fitting, paired } = this;
    if (this.isTimed && !mayBeFaster(priced, paired ? [paired, ...fitting] : fitting)) return SLOWER;
    return this.bytes(priced) * (this.excess.get(hasStages(priced)) ?? 1) > this.limit ? LARGER : null;
  }

  /** Why there is no time to lower a proposal; null where there is. */
  private unplanned(priced: PricedConfiguration): string | null {
    if (this.deadline.isOver()) return LATE;
    const known = this.fitting[0] ?? this.alone;
    const most = this.kinds.has(kindOf(priced)) ? MOST_WORK : MOST_WORK_OF_KINDS;
    return known && this.work + workOf(priced, known) > most ? TOO_LARGE : null;
  }

  /** One proposal; or why it has no plan. */
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
   * Where memory does not ask for a ZeRO level, what is cut of the state is found update by update. That is the least sum over
   * all stages, and a step waits for one of them: on accelerators, which hide messages of updates, the level makes it shorter.
   */
  private isOpen(priced: PricedConfiguration): boolean {
    const { options, cluster } = this.choices;
    return (
      options.zero === undefined &&
      (cluster.local || !hasStages(priced)) &&
      isOfUpdates(priced.configuration) &&
      bytesForTensors(this.proposing.wholeBytes(priced), cluster) <= this.limit
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

/** Of planning a proposal. Training graphs of a model have much the same operators, whatever its micro-batches. */
function workOf({ configuration }: PricedConfiguration, { imported }: Formed): number {
  const { dp, sp, tp } = configuration.degrees;
  return meshWork(imported.graph, dp * sp * tp);
}

/** Whether the ZeRO level of a step is about its updates alone: of one micro-batch level 2 is level 1. */
function isOfUpdates(configuration: StepConfiguration): boolean {
  return configuration.zero === 1 || (configuration.zero === 2 && microBatchCount(configuration) === 1);
}

/**
 * A proposal, planned operator by operator; or why it is not.
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
  // In plain operators each rank may have its own queries, in one operator its own heads and features of values: neither is
  // faster for every model. Training is planned in the first form alone, since planning it takes several times as long.
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
  { options, training }: Choices,
  priced: PricedConfiguration,
  formed: Formed,
  isOpen: boolean,
  deadline: Deadline,
): Promise<FittingPlan> {
  const { configuration } = priced;
  const asked = { ...options, ...askedOf(configuration, formed.imported.graph, options) };
  const { zero: _zero, ...open } = asked;
  return {
    ...formed,
    planned: await plan(formed.imported, isOpen ? open : asked, memoryOf(training), deadline),
    priced,
  };
}

/**
 * Proposals of training say how memory is saved, so that operators are searched within it where none of them fits; those of
 * inference save it by their degrees alone, so that operators are searched within it at once, however many there are.
 */
export function memoryOf(training: Training | undefined): PlanOptions['memory'] {
  return training ? 'checked' : 'tried';
}
