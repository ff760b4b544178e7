/**
 * @file Chooses the plan of a step: that of the best dp · tp at the given micro-batches, or one that a search over steps
 * proposes (lower-proposals.ts). The fastest lowered plan that fits is taken, unless one that is as fast is simpler.
 */
import { clusterSize } from '../../cost-model/cluster.js';
import { usableBytes } from '../../cost-model/predict.js';
import { AutoparError } from '../../ir/error.js';
import type { Graph } from '../../ir/graph.js';
import { interruptible } from '../../ir/interruption.js';
import { checkRoom } from '../../search/check-room.js';
import { bytesWritten, shareWritten } from '../../search/figures.js';
import type { PlanOptions } from '../../search/plan.js';
import { preferencesOf, preferred, roomyBytes } from '../../search/preference.js';
import { axesOfPins } from '../../sharding-propagation/annotations/idle-axes.js';
import { listedDegrees } from '../../sharding-propagation/roles.js';
import { Deadline } from '../../solver/deadline.js';
import { mixesSamples } from '../models/training.js';
import { type PlannedModel, plan } from '../plan.js';
import {
  alternativeOf,
  type Choices,
  type ComparedPlan,
  type FittingPlan,
  figureOf,
  type PreparedModel,
  peakOf,
  ranked,
  refusal,
  refusedPlan,
} from './compared-plans.js';
import { innerAxes } from './left-out.js';
import { lowerProposals, memoryOf, NOT_PROPOSED } from './lower-proposals.js';
import { MOST_WORK, MOST_WORK_WITHOUT_ROLES, meshWork, plainWork } from './planning-work.js';
import { asSearched, unproposed } from './proposals.js';
import { type StepSearch, stepRemedy } from './search-step.js';

export interface ChosenPlan extends PreparedModel {
  readonly planned: PlannedModel;
  /** `free`: axes of the plan may shard any factor; as requested where it is left out. */
  readonly axes?: 'free';
  /** The best first, then plans that do not fit; empty where no proposal could be made, null where none was looked for. */
  readonly compared: readonly ComparedPlan[] | null;
  /** The search by the price of layers before; null where no proposals were made. */
  readonly searched: StepSearch | null;
  readonly notes: readonly string[];
}

/**
 * The fastest plan that fits.
 * @throws AutoparError as `plan` does for dp and tp alone, where no proposal has a plan either
 */
export async function choosePlan(choices: Choices): Promise<ChosenPlan> {
  const { options, training, cluster } = choices;
  checkRoom(cluster, options.memory);
  const deadline = new Deadline(options.timeLimit, options.signal);
  // An objective may choose one device for a step in micro-batches; without an objective, one device runs the step as it is.
  const { objective = 'time' } = options;
  const isAlone = unproposed(options, training) !== null || (clusterSize(cluster) === 1 && objective === 'time');
  if (!isAlone) return beside(choices, deadline);
  const alone = await planned(choices, await choices.form(options, training), 'searched');
  return { ...alone, compared: null, searched: null, notes: [] };
}

/** The error of dp and tp alone, with the lowered proposal that is closest to fitting. */
function withProposals(alone: AutoparError, others: readonly ComparedPlan[]): AutoparError {
  const [nearest] = others
    .flatMap(({ peakBytes, ...other }) => (peakBytes === null ? [] : [{ ...other, peakBytes }]))
    .sort((a, b) => a.peakBytes - b.peakBytes);
  if (!nearest) return alone;
  const { degrees, microBatches, reason } = nearest;
  const steps = others.length === 1 ? 'step' : 'steps';
  const batches = microBatches > 1 ? ` with ${microBatches} micro-batches` : '';
  const shape = `${listedDegrees(degrees, []) || 'one device'}${batches}`;
  const smallest = `the smallest of ${others.length} proposed ${steps}, ${shape}`;
  return alone.reworded(`${alone.message}; ${smallest}, ${reason}`, alone.hint);
}

/** Errors that other degrees may fix; an unknown parameter, say, is one under all degrees. */
const OF_DEGREES: ReadonlySet<string> = new Set([
  ...['nothing-fits', 'no-combination', 'degrees-do-not-match-devices', 'degree-does-not-fit', 'too-many-stages'],
  ...['dp-does-not-divide-batch', 'batch-does-not-divide', 'micro-batch', 'micro-batches-uneven', 'bad-schedule'],
]);

/** Errors of pins and stages that are wrong whatever the degrees. */
const OF_REQUEST: ReadonlySet<string> = new Set(['bad-stages', 'pin-matches-nothing', 'annotated-degree']);

/** An error of degrees with the options that leave no step either. */
async function withRemedy(
  error: AutoparError,
  unmade: AutoparError | null,
  { options, training, read, cluster }: Choices,
): Promise<AutoparError> {
  if (!unmade || !OF_DEGREES.has(error.code)) return error;
  const remedy = await stepRemedy({ ...asSearched(options, training, read), on: cluster }, unmade);
  if (!remedy) return error;
  const hint = [remedy, error.hint].filter((one) => one).join('; else ');
  return error.reworded(error.message, hint);
}

/** Plans dp · tp alone, and proposals beside it. */
async function beside(choices: Choices, deadline: Deadline): Promise<ChosenPlan> {
  const { training, cluster, read, options } = choices;
  const isLarge = (graph: Graph) => training !== undefined && plainWork(cluster, graph, options.degrees) > MOST_WORK;
  const form = () => choices.form(options, training).catch(refusal);
  // Differentiating a large model takes seconds, and the operators of its forward alone may be too many.
  const early = isLarge(read.graph) ? null : await form();
  const isPlanned = early !== null && !(early instanceof AutoparError) && !isLarge(early.imported.graph);
  const checked = isPlanned ? await planned(choices, early, memoryOf(training), deadline).catch(refusal) : null;
  if (checked instanceof AutoparError && OF_REQUEST.has(checked.code)) throw checked;
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

/**
 * The best mesh of dp and tp alone with any axis on any factor: convolutions may shard the batch where fully connected layers
 * shard features (Krizhevsky 2014, "One weird trick"). Null where it does not fit, where a degree or pin says what is sharded,
 * beyond `MOST_WORK_WITHOUT_ROLES`, and on ranks of this machine, where it gained 1 % at most, which is less than the error of
 * prices, and took longer than everything else.
 */
async function withoutRoles(choices: Choices, alone: FittingPlan, deadline: Deadline): Promise<FittingPlan | null> {
  const { options, cluster } = choices;
  const { dp, tp, sp, ep } = alone.planned.plan.degrees;
  // Free axes support neither methods of sequence parallelism nor experts that are spread over ranks.
  if (cluster.local || options.axes !== undefined || Math.max(sp, ep) > 1) return null;
  if (Math.max(options.degrees?.dp ?? 1, options.degrees?.tp ?? 1) > 1) return null;
  if ((options.tpSequence ?? 'auto') !== 'auto' || (options.annotations && axesOfPins(options.annotations).size > 0))
    return null;
  if (meshWork(alone.imported.graph, clusterSize(cluster)) > MOST_WORK_WITHOUT_ROLES || deadline.isOver()) return null;
  const asked = { ...options, axes: 'free' as const, degrees: { ...options.degrees, dp, tp } };
  const lifted = await planned({ ...choices, options: asked }, alone, 'checked', deadline).catch(refusal);
  return lifted instanceof AutoparError ? null : { ...lifted, axes: 'free' };
}

/**
 * Whether nothing can be gained beside dp and tp. If neither sp nor ep shards the model, only stages are left. Where all samples
 * pass the stages at once, stages wait for each other and save only memory: in inference, and in training of models that mix the
 * samples of a batch (BatchNormalization), which have no micro-batches. Ranks of this machine may gain by sending less.
 */
function isAll(alone: FittingPlan, choices: Choices): boolean {
  const { options, training, read, cluster } = choices;
  const { imported, planned } = alone;
  if (options.objective === 'memory' || planned.plan.degrees.pp > 1) return false;
  if (!leavesHeadroom(alone, choices) || innerAxes(imported.graph).length > 0) return false;
  return training === undefined || (!cluster.local && mixesSamples(read, training));
}

/** Whether a plan leaves the wanted memory headroom; true if memory has no limit. */
function leavesHeadroom(plan: FittingPlan, { options, cluster }: Choices): boolean {
  const limit = options.memory ?? usableBytes(cluster);
  return limit === undefined || peakOf(plan) <= roomyBytes(limit, preferencesOf(options, options.memory !== undefined));
}

/** A note if no plan leaves the wanted headroom at the accepted cost. */
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

/** The plans: first the one that is taken, then the others by the figure that the objective minimises. */
function taken(all: readonly FittingPlan[], { options, cluster }: Choices): readonly FittingPlan[] {
  const figure = figureOf(options);
  const sorted = [...all].sort((a, b) => figure(a) - figure(b));
  if (sorted.length === 0 || options.objective === 'memory') return sorted;
  const limit = options.memory ?? usableBytes(cluster) ?? null;
  const { taken: first } = preferred(
    sorted,
    alternativeOf,
    preferencesOf(options, options.memory !== undefined),
    limit,
  );
  return [first, ...sorted.filter((one) => one !== first)];
}

/**
 * Plans dp and tp alone, at the requested micro-batches.
 * @param deadline left out if nothing was planned before: the whole time limit is available
 */
async function planned(
  { options }: Choices,
  formed: PreparedModel,
  memory: PlanOptions['memory'],
  deadline?: Deadline,
): Promise<FittingPlan> {
  await interruptible(options.signal);
  options.onProgress?.('planning');
  return { ...formed, planned: await plan(formed.imported, options, memory, deadline), priced: null };
}
