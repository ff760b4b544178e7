/**
 * @file plan: an imported model and a cluster in, the best plan out, lowered and checked.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { type Graph, isBackward } from '../ir/graph.js';
import { checkSharded } from '../partition/check.js';
import type { ShardedGraph } from '../partition/sharded-graph.js';
import { type Pipeline, type PipelineRequest, pipelineOf } from '../search/pipeline/pipeline.js';
import { type PlanResult, plan as search } from '../search/plan.js';
import type { SearchMode, SolverName } from '../search/search-mode.js';
import { loadSolver } from '../search/solver/integer-solvers.js';
import type { Pin } from '../sharding-propagation/pin.js';
import type { Plan } from '../strategy/plan.js';
import { type Found, planOf } from '../strategy/plan-of.js';
import { type Request, requestIn } from '../strategy/request.js';
import { clusterSources } from './cluster-sources.js';
import { type DecisionSources, type Decisions, decide } from './decisions.js';
import type { ImportedModel } from './import.js';

export interface PlanningOptions extends DecisionSources, Request {
  /** Bytes per device that a plan may need. */
  readonly memory?: number;
  /** `free` lets every axis lie on every factor. */
  readonly axes?: 'roles' | 'free';
  /** How what pins leave open is completed: at least cost (the default), or by propagation alone. */
  readonly complete?: 'search' | 'propagate';
  /** How it is searched; `sharding_propagation` is what `complete: 'propagate'` says. */
  readonly searchMode?: SearchMode;
  /** Who solves integer programs: HiGHS unless told; GLPK is the user's to install. */
  readonly solver?: SolverName;
  /** Seconds after which the best plan so far is taken. */
  readonly timeLimit?: number;
  /** How many of the best combinations of degrees are told. */
  readonly top?: number;
  readonly signal?: AbortSignal;
}

/** A model with its plan, all that `emit` needs. */
export interface PlannedModel {
  readonly imported: ImportedModel;
  readonly cluster: Cluster;
  readonly plan: Plan;
  readonly found: PlanResult;
  /** The stages that were planned; null for one. */
  readonly pipeline: Pipeline | null;
  /** What the user should know of decisions that were taken over, a line each. */
  readonly notes: readonly string[];
}

/** Searches, writes the plan record and lowers it. @throws AutoparError (exit noPlan, usage) where nothing fits. */
export async function plan(imported: ImportedModel, options: PlanningOptions = {}): Promise<PlannedModel> {
  const {
    cluster,
    degrees,
    pipeline: request,
    pinsOn,
    allToAll,
    config,
    notes,
  } = decide(imported, {
    ...options,
    clusterHints: await clusterSources(options.cluster),
  });
  // What is not installed is told before the work.
  if (options.solver === 'glpk') await loadSolver('glpk');
  const pipeline = request && pipelineOf(imported.graph, cluster, request);
  const graph = pipeline?.graph ?? imported.graph;
  const requested: Request = { ...bucketsOf(config, graph), ...requestIn(options) };
  const found = await search(graph, cluster, {
    ...(pipeline ? { pipeline } : {}),
    degrees,
    allToAll,
    mode: searchModeOf(options, config),
    ...(options.solver ? { solver: options.solver } : {}),
    ...(options.timeLimit === undefined ? {} : { timeLimit: options.timeLimit }),
    ...(options.top === undefined ? {} : { top: options.top }),
    ...(pinsOn ? { operatorPins: (mesh) => pinsOn(mesh, graph) } : {}),
    ...(options.memory === undefined ? {} : { memoryBytes: options.memory }),
    ...(options.axes ? { axes: options.axes } : {}),
    request: requested,
    ...(options.signal ? { signal: options.signal } : {}),
  });
  const pins = pinsOn?.(found.assignment.mesh, graph) ?? [];
  for (const { sharded } of found.lowered) checkSound(sharded);
  return {
    imported,
    cluster,
    found,
    pipeline,
    plan: planOf(
      {
        ...found,
        ...keptPins(pins),
        requested,
        allToAll,
        ...(request && pipeline ? { pipeline, pins: [...pipelinePins(request), ...found.pins] } : {}),
      },
      { ...imported, graph },
      cluster,
    ),
    notes: [...notes, ...found.notes, ...unusedBucket(requested, found)],
  };
}

/** What a configuration says of buckets, where there are gradients. */
function bucketsOf(config: Decisions['config'], { nodes }: Graph): Request {
  const trains = nodes.some(({ phase }) => isBackward(phase));
  return trains && config?.gradientBuckets ? { bucketMembers: config.gradientBuckets } : {};
}

/** Says so where there is nothing that buckets hold. */
function unusedBucket({ bucket }: Request, { lowered, degrees: { dp } }: PlanResult): readonly string[] {
  const isUsed = lowered.some(({ sharded }) =>
    sharded.nodes.some((node) => node.kind === 'communicate' && node.bucket !== undefined),
  );
  if (bucket === undefined || isUsed) return [];
  return [`--bucket changes nothing: no gradient is reduced with dp ${dp}`];
}

/** What is asked for, else what a configuration's search_mode says. */
export function searchModeOf(
  { complete, searchMode }: Pick<PlanningOptions, 'complete' | 'searchMode'>,
  config: Decisions['config'],
): SearchMode {
  if (complete === 'propagate') return 'sharding_propagation';
  const configured = config?.searchMode ?? 'auto';
  const asked = searchMode ?? configured;
  return complete === 'search' && asked === 'sharding_propagation' ? 'auto' : asked;
}

/** What was asked of a pipeline, as the plan keeps it. */
function pipelinePins({ stages, schedule, virtualStages, layout }: PipelineRequest): readonly string[] {
  const given = { pp: stages, schedule, 'virtual-stages': virtualStages, stages: layout };
  return Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${value}`]));
}

/** Pins that decide no strategy and stay in the plan. */
function keptPins(pins: readonly Pin[]): Pick<Found, 'recompute' | 'places'> {
  const recompute = new Map<string, boolean>();
  const places = new Map<string, 'device' | 'host'>();
  for (const pin of pins) {
    if (pin.kind === 'recompute') recompute.set(pin.node, pin.recompute);
    if (pin.kind === 'place') places.set(pin.node, pin.place);
  }
  return { recompute, places };
}

/** @throws Error (a fault of ours) with what the checker has against a sharded graph */
function checkSound(sharded: ShardedGraph): void {
  const findings = checkSharded(sharded);
  if (findings.length > 0) {
    const first = findings.slice(0, 5).map((finding) => `${finding.node}: ${finding.problem}`);
    throw new Error(`the sharded graph is not sound (${findings.length} findings): ${first.join('; ')}`);
  }
}
