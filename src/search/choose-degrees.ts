/**
 * @file Which of the solved combinations of degrees is taken: the cheapest whose lowered plan fits the memory.
 *
 * Combinations are sorted by their costs without a memory limit, which are lower bounds on their costs within it. If the plan
 * of the first is too large, it is searched again within the limit, and is sorted in again at the cost of the plan found; so the
 * first that fits is cheaper than any that fits under other degrees. On ranks of this machine a step takes longer than the
 * searched cost, because of the runtime's overhead around operators: there all are lowered, and ranked by the time of the step.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { memoryOf, type Prediction, priceGraph } from '../cost-model/predict.js';
import { predictStages, stagesMemory } from '../cost-model/predict-stages.js';
import { type Graph, isBackward, runsPerStep } from '../ir/graph.js';
import { operatorOf } from '../ir/operator-of.js';
import { operatorEntry } from '../ir/ops/index.js';
import type { Liveness } from '../partition/liveness.js';
import { type LoweredStage, lowerStages } from '../partition/lower-stages.js';
import type { OffloadPlaces } from '../partition/offload.js';
import { partition } from '../partition/partition.js';
import { prepared } from '../partition/prepared.js';
import type { ShardedGraph } from '../partition/sharded-graph.js';
import { OutOfTime } from '../solver/deadline.js';
import { bucketLimit, isServed, type PlanRequest } from '../strategy/request.js';
import type { CompletedPlan } from './completion.js';
import type { MeshDegrees } from './degrees.js';
import { bytesWritten, multipleWritten, timesWritten } from './figures.js';
import type { PipelinedGraph } from './pipeline/pipeline.js';
import { withSentLayouts } from './pipeline/sent-layouts.js';
import { type ComparedAlternative, FASTEST, type Preferences, preferred } from './preference.js';
import type { UsedMode } from './search-mode.js';
import { usedDataAxes } from './zero.js';

/** One combination of degrees, solved. */
export interface SolvedDegrees extends CompletedPlan {
  readonly mode: UsedMode;
  readonly degrees: MeshDegrees;
}

/** A combination whose plan fits. */
export interface FittingDegrees {
  readonly solved: SolvedDegrees;
  /** The graph lowered under its assignment, stage by stage. */
  readonly lowered: readonly LoweredStage[];
  /** Memory of its ranks, by stage. */
  readonly memory: readonly Liveness[];
  readonly prediction: Prediction;
  /** Whether it was searched again within the memory limit, since the cheapest plan is too large. */
  readonly savesMemory: boolean;
}

/** Why a combination of degrees was not taken: in words, and the figure that rules it out. */
export type DegreesRuling = { readonly reason: string } & (
  | {
      readonly kind: 'slower';
      /** Time of the step, as predicted. */
      readonly stepNanoseconds: number;
      /** No plan of these degrees costs less. */
      readonly boundNanoseconds: number;
      /** Peak of the plan at that cost, per stage; null where it was not lowered: then it may not even fit. */
      readonly peakBytes: readonly number[] | null;
    }
  | {
      readonly kind: 'too-large';
      /** Bytes of the smallest plan found, and a lower bound over all plans. */
      readonly leastBytes: number;
      readonly atLeastBytes: number;
      readonly limitBytes: number;
    }
  /** The batch or pins leave no plan. */
  | { readonly kind: 'impossible' }
  /** The time limit was over before. */
  | { readonly kind: 'late' }
);

export interface DegreeChoice {
  /** The best that fit, the chosen one first; fewer than requested where no more fit, none where nothing does. */
  readonly ranked: readonly FittingDegrees[];
  /** Why each of the others was not taken. */
  readonly reasons: ReadonlyMap<MeshDegrees, DegreesRuling>;
  /** The least bytes per device that a plan was found to need; Infinity where all examined plans fit. */
  readonly leastBytes: number;
}

/**
 * @param limit bytes per device; undefined where none applies
 * @param pipeline whose stages the graph is cut into
 * @param places where offloaded tensors are kept
 * @param preferences which of those that fit is taken; the fastest by default
 * @param isSearched whether plans that are too large are searched again within the limit
 */
export async function chooseDegrees(
  graph: Graph,
  cluster: Cluster,
  all: readonly SolvedDegrees[],
  limit: number | undefined,
  count: number,
  pipeline?: PipelinedGraph,
  places: OffloadPlaces = { parts: {}, hosted: new Set() },
  request: PlanRequest = {},
  isSearched = true,
  preferences: Preferences = FASTEST,
): Promise<DegreeChoice> {
  // `asked`: the memory limit of its last search; `tries`: how often it was searched again.
  const waiting = all.map((solved) => ({ solved, tries: 0, asked: Number.POSITIVE_INFINITY }));
  // For a pipeline, the search minimises the work of the stages, not the time of the step.
  const most = cluster.local || pipeline ? Number.POSITIVE_INFINITY : Math.max(count, PRICED_AGAIN);
  const ranked: FittingDegrees[] = [];
  const reasons = new Map<MeshDegrees, DegreesRuling>();
  let leastBytes = Infinity;
  const flops = unshardedFlops(graph);
  // The search models the memory of the whole graph on the device, one micro-batch at a time.
  const isScaled =
    pipeline !== undefined ||
    request.interleave === 2 ||
    isServed(request) ||
    Object.keys(places.parts).length > 0 ||
    places.hosted.size > 0;
  const trains = graph.nodes.some(({ phase }) => isBackward(phase));
  const mostTries = !isSearched ? 0 : isScaled ? TRIES : 1;
  while (waiting.length > 0 && ranked.length < most) {
    waiting.sort((a, b) => a.solved.cost - b.solved.cost || a.solved.degrees.tp - b.solved.degrees.tp);
    const { solved, tries, asked } = waiting.shift() as (typeof waiting)[number];
    const staged = pipeline ? sentByPrice(solved, pipeline, cluster) : solved;
    const whole = pipeline ? stagesOf(staged, pipeline) : [{ graph, sharded: lowered(graph, cluster, solved) }];
    const server = isServed(request) ? usedDataAxes(solved.assignment.mesh) : [];
    const { interleave } = request;
    const stages = prepared(whole, { buckets: bucketLimit(request), interleave, server, places });
    const schedule = pipeline?.schedule ?? null;
    const memory = stagesMemory(stages, schedule, cluster);
    const need = Math.max(...memory.map(({ peakBytes }) => peakBytes));
    if (limit === undefined || need <= limit) {
      const prediction = predictStages(stages, schedule, cluster, flops, memory);
      ranked.push({ solved: staged, lowered: stages, memory, prediction, savesMemory: tries > 0 });
      continue;
    }
    if (trains && !solved.assignment.gathersAgain) {
      waiting.push({ solved: gatheringAgain(solved), tries, asked });
      continue;
    }
    const isLast = tries === mostTries;
    const bytes = isScaled && !isLast ? wholeLimit(graph, cluster, solved, { need, limit, asked }) : limit;
    const fitting = isLast ? undefined : await within(solved, bytes);
    if (fitting?.completed)
      waiting.push({ solved: { ...solved, ...fitting.completed }, tries: tries + 1, asked: bytes });
    else {
      const least = Math.min(need, isScaled ? need : (fitting?.least ?? need));
      leastBytes = Math.min(leastBytes, least);
      reasons.set(solved.degrees, tooLarge(least, isScaled ? 0 : (fitting?.atLeast ?? 0), limit));
    }
  }
  ranked.sort((a, b) => stepNanoseconds(a) - stepNanoseconds(b) || a.solved.degrees.tp - b.solved.degrees.tp);
  if (ranked.length > 0) {
    const { taken } = preferred(ranked, alternativeOf(request), preferences, limit ?? null);
    ranked.splice(0, ranked.length, taken, ...ranked.filter((one) => one !== taken));
  }
  const [best, ...others] = ranked;
  if (best) {
    const least = stepNanoseconds(best);
    for (const other of others)
      reasons.set(other.solved.degrees, slower(stepNanoseconds(other), other.solved.bound, least, other.prediction));
    for (const { solved } of waiting)
      reasons.set(solved.degrees, slower(solved.cost, solved.bound, best.solved.cost, null));
  }
  return { ranked: ranked.slice(0, count), reasons, leastBytes };
}

/**
 * No search counts overlap or the host's overhead: this many of the cheapest plans are priced again and ranked by the step.
 */
const PRICED_AGAIN = 4;

/** How often stages, or a graph with offloading, are searched again within less memory. */
const TRIES = 4;

/**
 * The search models the memory of the whole graph, without stages or offloading: its limit is lowered in proportion to how much
 * the fullest stage is too large.
 */
function wholeLimit(
  graph: Graph,
  cluster: Cluster,
  solved: SolvedDegrees,
  { need, limit, asked }: { readonly need: number; readonly limit: number; readonly asked: number },
): number {
  const whole = Math.min(asked, memoryOf(lowered(graph, cluster, solved), cluster).peakBytes);
  return Math.floor((whole * limit) / need);
}

/** The cheapest way to save memory: the same plan, whose backward gathers again what its forward gathered. */
function gatheringAgain(solved: SolvedDegrees): SolvedDegrees {
  return { ...solved, assignment: { ...solved.assignment, gathersAgain: true } };
}

/** The figure by which plans are ranked and which reports give. */
export function stepNanoseconds({ prediction }: Pick<FittingDegrees, 'prediction'>): number {
  return Math.round(prediction.stepSeconds * 1e9);
}

/** The figures by which degrees are compared. Where offloading is requested, it applies to all of them. */
function alternativeOf({ offload = 'none' }: PlanRequest): (fitted: FittingDegrees) => ComparedAlternative {
  return ({ solved, prediction }) => ({
    seconds: prediction.stepSeconds,
    bytes: Math.max(...prediction.peakBytes),
    degrees: solved.degrees,
    isOffloaded: offload !== 'none',
    liftsRoles: false,
  });
}

async function within(
  solved: SolvedDegrees,
  limit: number,
): Promise<Awaited<ReturnType<NonNullable<CompletedPlan['within']>>> | undefined> {
  try {
    return await solved.within?.(limit);
  } catch (error) {
    if (error instanceof OutOfTime) return undefined;
    throw error;
  }
}

/**
 * The graph lowered under an assignment. @throws Error (internal error) where its cost differs from the search's cost, which does
 * not include repeated gathers
 */
export function lowered(graph: Graph, cluster: Cluster, { assignment, resharder, cost }: SolvedDegrees): ShardedGraph {
  const sharded = partition(graph, assignment, resharder);
  const price = priceGraph(sharded, cluster);
  if (price !== cost && !assignment.gathersAgain)
    throw new Error(`the lowered graph costs ${price} ns, and the search computed ${cost} ns`);
  return sharded;
}

/** Chooses by price the layouts in which stages of different meshes send tensors to each other. */
function sentByPrice(solved: SolvedDegrees, { graph, layout }: PipelinedGraph, cluster: Cluster): SolvedDegrees {
  const { assignment, resharder } = solved;
  return { ...solved, assignment: withSentLayouts(graph, assignment, resharder, layout, cluster) };
}

/** The graph lowered stage by stage. */
function stagesOf(
  { assignment, resharder }: SolvedDegrees,
  { graph, layout }: PipelinedGraph,
): readonly LoweredStage[] {
  return lowerStages(graph, assignment, resharder, layout);
}

/** Work of the unsharded graph. */
export function unshardedFlops(graph: Graph): number {
  return graph.nodes.reduce((sum, node) => {
    const operator = operatorOf(graph, node);
    const { flops } = operatorEntry(node).work(operator);
    return sum + runsPerStep(node.phase, graph) * flops;
  }, 0);
}

function slower(cost: number, bound: number, best: number, prediction: Prediction | null): DegreesRuling {
  // As many digits as it takes to tell the two apart.
  const digits = [3, 4, 5, 6].find((count) => cost.toPrecision(count) !== best.toPrecision(count)) ?? 3;
  const [written, bestWritten] = timesWritten([cost, best], digits);
  const figures = `${written} against ${bestWritten}`;
  const others = cost < best ? ', and not as simple or with less memory free' : '';
  const reason =
    cost === best ? `no faster (${figures})` : `${multipleWritten(cost / best, 'as long')} (${figures})${others}`;
  return {
    kind: 'slower',
    reason,
    stepNanoseconds: cost,
    boundNanoseconds: bound,
    peakBytes: prediction?.peakBytes ?? null,
  };
}

/** @param atLeast no plan needs less */
export function tooLarge(least: number, atLeast: number, limit: number): DegreesRuling {
  const [proven, found, allowed] = [atLeast, least, limit].map(bytesWritten);
  const reason =
    atLeast > limit
      ? `needs at least ${proven} of ${allowed} on each device`
      : `needs ${found} of ${allowed} on each device, the smallest found`;
  return { kind: 'too-large', reason, leastBytes: least, atLeastBytes: atLeast, limitBytes: limit };
}
