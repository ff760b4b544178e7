/**
 * @file Which plan of a step is taken: that of the best dp · tp at the micro-batches that are given, or one that a search over
 * steps proposes. The best proposal is planned operator by operator, lowered, and priced as lowered, memory
 * included; the next ones only where that price refutes the order of the proposals. The fastest that fits is the plan.
 */
import { type Cluster, clusterSize } from '../../cost-model/cluster.js';
import { bytesForTensors, deviceBytes, usableBytes } from '../../cost-model/predict.js';
import type { Degrees, StepConfiguration } from '../../cost-model/step/configuration.js';
import { AutoparError } from '../../ir/error.js';
import type { Graph } from '../../ir/graph.js';
import { interruptible } from '../../ir/interruption.js';
import type { PricedConfiguration } from '../../search/configurations/priced.js';
import { bytesWritten, shareWritten } from '../../search/figures.js';
import { NothingFits, type PlanOptions } from '../../search/plan.js';
import { NEAR, preferencesOf, preferred, roomyBytes } from '../../search/preference.js';
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import { Deadline } from '../../solver/deadline.js';
import type { ImportedModel } from '../models/import.js';
import { mixesSamples, type Training } from '../models/training.js';
import { type PlannedModel, plan } from '../plan.js';
import type { NestedCompileOptions } from '../requests/compile-options.js';
import {
  type ComparedPlan,
  type FittingPlan,
  type Formed,
  figureOf,
  notTaken,
  peakOf,
  ranked,
  refusedPlan,
  stepSecondsOf,
} from './compared-plans.js';
import { innerAxes } from './left-out.js';
import { MOST_WORK, MOST_WORK_OF_KINDS, MOST_WORK_WITHOUT_ROLES, meshWork, plainWork } from './planning-work.js';
import { askedOf, asSearched, kindOf, microBatchCount, proposer, unproposed } from './proposals.js';
import { type StepSearch, stepRemedy } from './search-step.js';

/** What is chosen from. */
export interface Choices {
  readonly cluster: Cluster;
  /** The model as it was read. */
  readonly read: ImportedModel;
  readonly options: NestedCompileOptions;
  /** What is trained, as it is asked for; absent for inference. */
  readonly training: Training | undefined;
  /** The model as it is planned. @throws AutoparError where it has no such micro-batches */
  readonly form: (asked: NestedCompileOptions, training: Training | undefined) => Promise<Formed>;
}

export interface ChosenPlan extends Formed {
  readonly planned: PlannedModel;
  /** What axes of the plan may shard; as it was asked where it is left out. */
  readonly axes?: 'free';
  /** The best first, then what does not fit; empty where no proposal could be made, null where none was looked for. */
  readonly compared: readonly ComparedPlan[] | null;
  /** All that was compared by the price of layers before; null where no proposals were made. */
  readonly searched: StepSearch | null;
  readonly notes: readonly string[];
}

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
 * The fastest plan that fits.
 * @throws AutoparError as `plan` does for dp and tp alone, where no proposal has a plan either
 */
export async function choosePlan(choices: Choices): Promise<ChosenPlan> {
  const { options, training, cluster } = choices;
  const deadline = new Deadline(options.timeLimit, options.signal);
  // One device is chosen by an objective for a step in micro-batches, and without one it is asked for the step as it is.
  const { objective = 'time' } = options;
  const isAlone = unproposed(options, training) !== null || (clusterSize(cluster) === 1 && objective === 'time');
  if (!isAlone) return beside(choices, deadline);
  const alone = await planned(choices, await choices.form(options, training), 'searched');
  return { ...alone, compared: null, searched: null, notes: [] };
}

/** The refusal of dp and tp alone, with the nearest of what else was lowered. */
function withProposals(alone: AutoparError, others: readonly ComparedPlan[]): AutoparError {
  const [nearest] = others
    .flatMap(({ peakBytes, ...other }) => (peakBytes === null ? [] : [{ ...other, peakBytes }]))
    .sort((a, b) => a.peakBytes - b.peakBytes);
  if (!nearest) return alone;
  const { degrees, microBatches, reason } = nearest;
  const written = AXIS_ORDER.flatMap((axis) => (degrees[axis] > 1 ? [`${axis} ${degrees[axis]}`] : [])).join(' ');
  const steps = others.length === 1 ? 'step' : 'steps';
  const batches = microBatches > 1 ? ` with ${microBatches} micro-batches` : '';
  return new AutoparError(
    alone.code,
    alone.exit,
    `${alone.message}; of ${others.length} proposed ${steps} the smallest, ${written}${batches}, ${reason}`,
    alone.where,
    alone.hint,
  );
}

/** A refusal with what of the options leaves no step either. */
async function withRemedy(
  error: AutoparError,
  unmade: AutoparError | null,
  { options, training, read }: Choices,
): Promise<AutoparError> {
  const remedy = unmade && (await stepRemedy(asSearched(options, training, read), unmade));
  if (!remedy) return error;
  const hint = [remedy, error.hint].filter((one) => one).join('; else ');
  return new AutoparError(error.code, error.exit, error.message, error.where, hint);
}

/**
 * Proposals of training say how memory is saved, so that operators are searched within it where none of them fits; those of
 * inference save it by their degrees alone, so that operators are searched within it at once, however many there are.
 */
function memoryOf(training: Training | undefined): PlanOptions['memory'] {
  return training ? 'checked' : 'tried';
}

/** dp · tp alone, and proposals beside it. */
async function beside(choices: Choices, deadline: Deadline): Promise<ChosenPlan> {
  const { training, cluster, read, options } = choices;
  const isLarge = (graph: Graph) => training !== undefined && plainWork(cluster, graph, options.degrees) > MOST_WORK;
  const form = () => choices.form(options, training).catch(refusal);
  // Deriving a large model's gradients takes seconds, and the forward's operators alone may be too many.
  const early = isLarge(read.graph) ? null : await form();
  const isPlanned = early !== null && !(early instanceof AutoparError) && !isLarge(early.imported.graph);
  const checked = isPlanned ? await planned(choices, early, memoryOf(training), deadline).catch(refusal) : null;
  const alone = checked instanceof AutoparError ? null : checked;
  const lowered = alone && isAll(alone, choices) ? NOT_PROPOSED : await lowerProposals(choices, deadline, alone);
  const { fitting, others, searched, refusal: unmade, notes } = lowered;
  const lifted = alone && (await withoutRoles(choices, alone, deadline));
  const all = taken([...(alone ? [alone] : []), ...(lifted ? [lifted] : []), ...fitting], choices);
  // The note of a search that failed says so.
  const isMade = notes.length === 0;
  const [best] = all;
  if (best) {
    const why = early instanceof AutoparError ? early : checked instanceof AutoparError ? checked : null;
    const cut = early === null || early instanceof AutoparError ? training : early.training;
    const rest = alone ? others : [...others, refusedPlan({ ...choices, training: cut }, why)];
    const compared = isMade ? ranked(all, rest, options) : [];
    return { ...best, compared, searched, notes: [...notes, ...tightNotes(best, choices)] };
  }
  const formed = early ?? (await form());
  if (formed instanceof AutoparError) throw await withRemedy(formed, unmade, choices);
  const smaller = await planned(choices, formed, 'searched', deadline).catch(refusal);
  if (smaller instanceof AutoparError) throw await withRemedy(withProposals(smaller, others), unmade, choices);
  return { ...smaller, compared: isMade ? ranked([smaller], others, options) : [], searched, notes };
}

interface LoweredProposals {
  /** The fastest first. */
  readonly fitting: readonly FittingPlan[];
  readonly others: readonly ComparedPlan[];
  /** All that was compared by the price of layers; null where nothing could be proposed. */
  readonly searched: StepSearch | null;
  /** Why nothing could be proposed; null where something was. */
  readonly refusal: AutoparError | null;
  readonly notes: readonly string[];
}

/**
 * The best mesh of dp and tp alone with any axis on any factor: convolutions may keep the batch where fully connected layers have
 * features (Krizhevsky 2014, "One weird trick"). Null where it does not fit, beyond `MOST_WORK_WITHOUT_ROLES`, and on ranks of
 * this machine, where it gained 1 % at most, less than prices are off by, and took longer than all else.
 */
async function withoutRoles(choices: Choices, alone: FittingPlan, deadline: Deadline): Promise<FittingPlan | null> {
  const { options, cluster } = choices;
  const { dp, tp, sp, ep } = alone.planned.plan.degrees;
  // Free axes know no methods of sequence parallelism, nor that experts lie apart.
  if (cluster.local || options.axes !== undefined || Math.max(sp, ep) > 1) return null;
  if (meshWork(alone.imported.graph, clusterSize(cluster)) > MOST_WORK_WITHOUT_ROLES || deadline.isOver()) return null;
  const asked = { ...options, axes: 'free' as const, degrees: { ...options.degrees, dp, tp } };
  const lifted = await planned({ ...choices, options: asked }, alone, 'checked', deadline).catch(refusal);
  return lifted instanceof AutoparError ? null : { ...lifted, axes: 'free' };
}

const NOT_PROPOSED: LoweredProposals = { fitting: [], others: [], searched: null, refusal: null, notes: [] };

/**
 * Whether nothing is to be gained beside dp and tp. What neither sp nor ep cuts has stages left, and where all samples pass them
 * at once these wait for each other, so that they save memory alone: in inference, and in training of what mixes the samples of
 * a batch (BatchNormalization), which is not cut into micro-batches. Ranks of this machine may gain by sending less.
 */
function isAll(alone: FittingPlan, choices: Choices): boolean {
  const { options, training, read, cluster } = choices;
  const { imported, planned } = alone;
  if (options.objective === 'memory' || planned.plan.degrees.pp > 1) return false;
  if (!leavesHeadroom(alone, choices) || innerAxes(imported.graph).length > 0) return false;
  return training === undefined || (!cluster.local && mixesSamples(read, training));
}

/** Whether a plan leaves the memory free that is wanted; true where there is no limit. */
function leavesHeadroom(plan: FittingPlan, { options, cluster }: Choices): boolean {
  const limit = options.memory ?? usableBytes(cluster);
  return limit === undefined || peakOf(plan) <= roomyBytes(limit, preferencesOf(options, options.memory !== undefined));
}

/** That no plan leaves the headroom that is wanted, at its price. */
function tightNotes(best: FittingPlan, choices: Choices): readonly string[] {
  const { options, cluster } = choices;
  const limit = options.memory ?? usableBytes(cluster);
  if (limit === undefined || options.objective === 'memory' || leavesHeadroom(best, choices)) return [];
  const preferences = preferencesOf(options, options.memory !== undefined);
  const most = peakOf(best);
  const isAsked = options.headroom !== undefined;
  return [
    `no plan ${isAsked ? '' : `that takes up to ${shareWritten(preferences.headroomCost - 1)} longer `}leaves ` +
      `${shareWritten(preferences.headroom)} of the memory free: this one needs ${bytesWritten(most)} of ` +
      `${bytesWritten(limit)}${isAsked ? '' : ` (--headroom ${preferences.headroom} takes one that does, if there is one)`}`,
  ];
}

/** The plans with the one that is taken first, the others by what the objective wants little of. */
function taken(all: readonly FittingPlan[], { options, cluster }: Choices): readonly FittingPlan[] {
  const figure = figureOf(options);
  const sorted = [...all].sort((a, b) => figure(a) - figure(b));
  if (sorted.length === 0 || options.objective === 'memory') return sorted;
  const limit = options.memory ?? usableBytes(cluster) ?? null;
  const { taken: first } = preferred(
    sorted,
    (one) => ({
      seconds: stepSecondsOf(one),
      bytes: peakOf(one),
      degrees: one.planned.plan.degrees,
      isOffloaded: (one.planned.plan.requested?.offload ?? 'none') !== 'none',
      liftsRoles: one.axes === 'free',
    }),
    preferencesOf(options, options.memory !== undefined),
    limit,
  );
  return [first, ...sorted.filter((one) => one !== first)];
}

/**
 * dp and tp alone, at the micro-batches that are asked for.
 * @param deadline left out: nothing was planned before, and the time limit is all there
 */
async function planned(
  { options }: Choices,
  formed: Formed,
  memory: PlanOptions['memory'],
  deadline?: Deadline,
): Promise<FittingPlan> {
  await interruptible(options.signal);
  options.onProgress?.('planning');
  return { ...formed, planned: await plan(formed.imported, options, memory, deadline), priced: null };
}

/**
 * Proposals as lowered, the first few; where none of them fits, those for as much less memory as the lowered ones need more than
 * was estimated.
 */
async function lowerProposals(
  choices: Choices,
  deadline: Deadline,
  alone: FittingPlan | null,
): Promise<LoweredProposals> {
  const { options, training, cluster, read } = choices;
  options.onProgress?.('searching steps');
  // Half of the time is for proposing.
  const half = new Deadline(Number.isFinite(deadline.left()) ? deadline.left() / 2 : undefined, options.signal);
  const proposing = await proposer(options, training, read, half).catch(refusal);
  if (proposing instanceof AutoparError)
    return { fitting: [], others: [], searched: null, refusal: proposing, notes: [unproposedText(proposing)] };
  const limit = options.memory ?? usableBytes(cluster) ?? Number.POSITIVE_INFINITY;
  const fitting: FittingPlan[] = [];
  const others = new Map<string, ComparedPlan>();
  const notes: string[] = [];
  let searched: StepSearch | null = null;
  let unmade: AutoparError | null = null;
  let work = 0;
  const seen = new Set<string>();
  /** Of what was lowered. */
  const kinds = new Set<string>();
  // Of dp and tp alone the fastest is known, not the one with the least memory.
  const isTimed = options.objective !== 'memory';
  const within = (bytes: number) => (Number.isFinite(bytes) ? deviceBytes(bytes, cluster) : null);
  const { headroom } = preferencesOf(options, options.memory !== undefined);
  let asked = within(training ? Math.max(SAFE_SHARE, 1 - headroom) * limit : limit);
  let paired = alone;
  // How many times its estimate needs what is too large, or fits with memory saved alone: the least of what was lowered, with
  // stages and without.
  const excess = new Map<boolean, number>();
  const exceeds = (priced: PricedConfiguration, times: number) => {
    const known = excess.get(hasStages(priced)) ?? Number.POSITIVE_INFINITY;
    excess.set(hasStages(priced), Math.min(times, known));
  };
  // Where memory does not ask for a ZeRO level, what is cut of the state is found update by update. That is the least sum over
  // all stages, and a step waits for one of them: on accelerators, which hide messages of updates, the level makes it shorter.
  const isOpen = (priced: PricedConfiguration) =>
    options.zero === undefined &&
    (cluster.local || !hasStages(priced)) &&
    isOfUpdates(priced.configuration) &&
    bytesForTensors(proposing.wholeBytes(priced), cluster) <= limit;
  for (let round = 0; round < ROUNDS; round++) {
    const safe = await proposing.propose(asked).catch(refusal);
    // What fits nearly, or not at all, is proposed where nothing else is.
    const proposed =
      safe instanceof AutoparError && round === 0 ? await proposing.propose(within(limit)).catch(refusal) : safe;
    if (proposed instanceof AutoparError) {
      if (round === 0) {
        notes.push(unproposedText(proposed));
        unmade = proposed;
      }
      break;
    }
    const { proposals } = proposed;
    searched ??= { ...proposed.searched, fewer: await proposing.fewer(proposed.searched) };
    if (!paired?.priced) paired = withEstimate(alone, proposed.proposals);
    let least = Number.POSITIVE_INFINITY;
    let tried = 0;
    const waiting = new Set(proposals);
    while (waiting.size > 0 && tried < LOWERED) {
      const priced = isTimed ? likeliest(waiting, fitting) : [...waiting][0];
      if (!priced) break;
      waiting.delete(priced);
      const index = proposals.indexOf(priced);
      const key = JSON.stringify(priced.configuration);
      if (seen.has(key) || (isTimed && isSearched(priced, alone))) continue;
      seen.add(key);
      if (isTimed && !mayBeFaster(priced, paired ? [paired, ...fitting] : fitting)) {
        if (index < LOWERED) others.set(key, notTaken(priced, SLOWER));
        continue;
      }
      const { dp, sp, tp } = priced.configuration.degrees;
      const bytes = bytesForTensors(priced.bytes, cluster);
      if (bytes * (excess.get(hasStages(priced)) ?? 1) > limit) {
        if (index < LOWERED) others.set(key, notTaken(priced, LARGER));
        continue;
      }
      tried++;
      const [known] = [...fitting, ...(alone ? [alone] : [])];
      // Training graphs of a model have much the same operators, whatever its micro-batches.
      const ownWork = ({ imported }: Formed) => meshWork(imported.graph, dp * sp * tp);
      const mostWork = kinds.has(kindOf(priced)) ? MOST_WORK : MOST_WORK_OF_KINDS;
      const isLast = known !== undefined && work + ownWork(known) > mostWork;
      const unplanned = deadline.isOver() ? LATE : isLast ? TOO_LARGE : null;
      if (unplanned !== null) {
        others.set(key, notTaken(priced, unplanned));
        continue;
      }
      kinds.add(kindOf(priced));
      options.onProgress?.(`planning proposal ${tried} of ${Math.min(proposals.length, LOWERED)}`);
      const result = await lower(choices, priced, isOpen(priced), deadline).catch(refusal);
      const counted = known ?? (result instanceof AutoparError ? null : result);
      if (counted) work += ownWork(counted);
      if (!(result instanceof AutoparError)) {
        fitting.push(result);
        // Others that are estimated to need as much would pay time for memory too.
        if (result.planned.found.savesMemory) exceeds(priced, NEAR * (limit / bytes));
        continue;
      }
      others.set(key, notTaken(priced, result));
      if (!(result instanceof NothingFits)) continue;
      const own = result.figures.leastBytes / bytes;
      least = Math.min(least, own);
      exceeds(priced, own);
    }
    if (!Number.isFinite(least)) break;
    asked = within(limit / least);
  }
  const figure = figureOf(options);
  fitting.sort((a, b) => figure(a) - figure(b));
  return { fitting, others: [...others.values()], searched, refusal: unmade, notes };
}

/** The best of dp and tp alone with the estimate of its degrees, where both are there. */
function withEstimate(alone: FittingPlan | null, proposals: readonly PricedConfiguration[]): FittingPlan | null {
  if (!alone) return null;
  const { degrees } = alone.planned.plan;
  const isLike = ({ configuration }: PricedConfiguration) =>
    AXIS_ORDER.every((axis) => configuration.degrees[axis] === degrees[axis]);
  const priced = proposals.filter(isLike).sort((a, b) => a.seconds - b.seconds)[0] ?? null;
  return { ...alone, priced };
}

/**
 * Whether a proposal may be faster than what is lowered. Prices of sharded graphs are some factor above those of layers, much
 * the same of a model's plans of one kind, whose transfers and bubbles the factor has too: the least of theirs is taken. None is
 * known before one of them is lowered, nor of one that pays time for memory. What is as fast within the exactness of predictions
 * may be faster.
 */
function mayBeFaster(proposal: PricedConfiguration, lowered: readonly FittingPlan[]): boolean {
  const factor = factorOf(lowered, (priced) => kindOf(priced) === kindOf(proposal)) ?? 1;
  return lowered.every((one) => proposal.seconds * factor < NEAR * stepSecondsOf(one));
}

/** The least by which plans that proposals became are dearer, of some of them; null where none of these is lowered. */
function factorOf(lowered: readonly FittingPlan[], isLike: (priced: PricedConfiguration) => boolean): number | null {
  const factors = lowered.flatMap((one) =>
    one.priced && !one.planned.found.savesMemory && isLike(one.priced) ? [stepSecondsOf(one) / one.priced.seconds] : [],
  );
  return factors.length > 0 ? Math.min(...factors) : null;
}

function hasStages({ configuration }: PricedConfiguration): boolean {
  return configuration.degrees.pp > 1;
}

/**
 * The proposal that is least by its estimate, as much dearer as lowered ones of its kind are, else of those that have stages, or
 * none, like it.
 */
function likeliest(
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

/** Whether dp and tp alone were searched over all that a proposal asks for, and fit: its ZeRO level leaves fewer layouts. */
function isSearched({ configuration }: PricedConfiguration, alone: FittingPlan | null): boolean {
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

const SLOWER = 'not lowered: estimated to be no faster';
const LARGER = 'not lowered: estimated to be too large, by what another needs';
const LATE = 'not lowered before the time limit';
const TOO_LARGE = 'not lowered: the model has too many operators to plan several times';

/**
 * A proposal, planned operator by operator; or why it is not.
 * @param isOpen its ZeRO level is left open
 * @throws AutoparError where it has no plan, or none that fits
 */
async function lower(
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

/** Whether the ZeRO level of a step is about its updates alone: of one micro-batch level 2 is level 1. */
function isOfUpdates(configuration: StepConfiguration): boolean {
  return configuration.zero === 1 || (configuration.zero === 2 && microBatchCount(configuration) === 1);
}

/** What has no plan, to be compared with what has. @throws whatever is not the user's to mend */
function refusal(error: unknown): AutoparError {
  if (error instanceof AutoparError) return error;
  throw error;
}

function unproposedText(error: AutoparError): string {
  return `dp and tp alone were planned, since no other step could be proposed: ${error.message}`;
}
