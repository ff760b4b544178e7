/**
 * @file plan: an imported model and a cluster in, the best plan out, lowered and checked.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { AutoparError } from '../ir/error.js';
import { type Graph, isBackward } from '../ir/graph.js';
import { fixedParameters, withHeldWeights } from '../ir/passes/held-weights.js';
import { checkSharded } from '../partition/check.js';
import type { ShardedGraph } from '../partition/sharded-graph.js';
import { type Pipeline, type PipelineRequest, pipelineOf } from '../search/pipeline/pipeline.js';
import { type PlanResult, plan as search } from '../search/plan.js';
import type { SearchMode, SolverName } from '../search/search-mode.js';
import { loadSolver } from '../search/solver/integer-solvers.js';
import { dataAxes } from '../search/zero.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
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
  const mode = searchModeOf(options, config);
  const { requested, notes: requestNotes } = requestOf(options, config, mode);
  // Without another rank to take parts from, weights are loaded as they are.
  const isCut = requested.zero === 3 && degrees.dp !== 1;
  const whole = isCut ? withHeldWeights(imported.graph, fixedParameters(imported.graph)) : imported.graph;
  const pipeline = request && pipelineOf(whole, cluster, request);
  const graph = pipeline?.graph ?? whole;
  const found = await search(graph, cluster, {
    ...(pipeline ? { pipeline } : {}),
    degrees,
    allToAll,
    mode,
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
    notes: [...notes, ...requestNotes, ...zeroNotes(requested, found.assignment.mesh, graph), ...found.notes],
  };
}

/**
 * What is asked in words: by options, else by the configuration. ZeRO is a choice among layouts, which propagation does not make.
 * @throws AutoparError (usage) `bad-option` where an option asks for a level and nothing is searched
 */
function requestOf(
  options: PlanningOptions,
  config: Decisions['config'],
  mode: SearchMode,
): { readonly requested: Request; readonly notes: readonly string[] } {
  const asked = requestIn(options);
  if (mode !== 'sharding_propagation')
    return { requested: { ...(config?.zero == null ? {} : { zero: config.zero }), ...asked }, notes: [] };
  if (asked.zero !== undefined) throw zeroWithoutSearch(asked.zero, options);
  const left = config?.zero ? ['enable_parallel_optimizer is left out: propagation chooses no layouts'] : [];
  return { requested: asked, notes: left };
}

function zeroWithoutSearch(level: number, { complete }: PlanningOptions): AutoparError {
  const other = complete === 'propagate' ? '--complete propagate' : '--search-mode sharding_propagation';
  return new AutoparError(
    'bad-option',
    'usage',
    `--zero ${level} restricts what the search chooses, and ${other} searches nothing`,
    {},
    `leave out one of the two`,
  );
}

/** Where a level asked for changes nothing. */
function zeroNotes({ zero }: Request, mesh: Mesh, graph: Graph): readonly string[] {
  if (zero === undefined) return [];
  if (dataAxes(mesh).length === 0)
    return [`--zero ${zero} changes nothing: dp is 1, so that no rank shares its parameters`];
  const trains = graph.nodes.some(({ phase }) => isBackward(phase));
  return trains || zero === 3
    ? []
    : [`--zero ${zero} changes nothing: optimizer state and gradients are of training, and this program infers`];
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
