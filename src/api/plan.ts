/**
 * @file plan: finds the best plan of an imported model on a cluster, lowers it and checks it.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { withClones, withoutClones } from '../ir/autodiff/recompute.js';
import type { Graph } from '../ir/graph.js';
import { withRings, zigzagAttention } from '../ir/passes/order-sequence.js';
import { fixedParameters, withWeightsAsState } from '../ir/passes/state-weights.js';
import { withoutUndefined } from '../ir/without-undefined.js';
import { unevenHeads } from '../search/absent-factors.js';
import { attentionMethods } from '../search/attention-methods.js';
import { NothingFits } from '../search/nothing-fits.js';
import { meshSizes } from '../search/pipeline/mesh-layout.js';
import { type Pipeline, type PipelineRequest, pipelineOf } from '../search/pipeline/pipeline.js';
import { stagePins } from '../search/pipeline/stage-pins.js';
import { type PlanOptions, type PlanResult, plan as search } from '../search/plan.js';
import type { SearchMode, SolverName } from '../search/search-mode.js';
import type { Pin } from '../sharding-propagation/pin.js';
import type { AttentionMethod, SpMethod } from '../sharding-propagation/roles.js';
import { sizesText } from '../sharding-propagation/stage-meshes.js';
import { Deadline } from '../solver/deadline.js';
import { loadSolver } from '../solver/solve.js';
import type { Plan, PlanSequence } from '../strategy/plan.js';
import { planOf, type SearchResult } from '../strategy/plan-of.js';
import type { PlanRequest } from '../strategy/request.js';
import { asRun } from '../strategy/staged-graph.js';
import type { ImportedModel } from './models/import.js';
import { asNothingFits, fastestMethod, hasRing } from './planning/open-method.js';
import { type RecomputeEffect, recomputeEffect } from './planning/recompute-effect.js';
import { clusterSources } from './requests/cluster-sources.js';
import { type DecisionSources, type Decisions, decide } from './requests/decisions.js';
import {
  checkHalves,
  idleHalves,
  idleSequence,
  repeatingRanks,
  requestOf,
  unusedBucket,
  unusedServer,
  zeroNotes,
} from './requests/noted-request.js';
import { recomputedOperators } from './requests/recompute.js';
import { orderedGraph, refuseIdleOrder } from './requests/sequence-order.js';

export interface NestedPlanningOptions extends DecisionSources, PlanRequest {
  /** Bytes per device that a plan may need. */
  readonly memory?: number;
  /** `free` lets every axis shard every factor. */
  readonly axes?: 'roles' | 'free';
  /** How strategies without pins are completed: at least cost (the default), or only by propagation. */
  readonly complete?: 'search' | 'propagate';
  /** The search mode; `sharding_propagation` is the same as `complete: 'propagate'`. */
  readonly searchMode?: SearchMode;
  /** The solver of integer programs: HiGHS by default; the user has to install GLPK. */
  readonly solver?: SolverName;
  /** Seconds after which the search returns the best plan so far. */
  readonly timeLimit?: number;
  /** Number of best combinations of degrees to report. */
  readonly top?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

/** A model with its plan, which is all that `emit` needs. */
export interface PlannedModel {
  readonly imported: ImportedModel;
  readonly cluster: Cluster;
  readonly plan: Plan;
  readonly found: PlanResult;
  /** The planned pipeline; null without one. */
  readonly pipeline: Pipeline | null;
  /** Costs of recomputation and the memory that it frees; null if nothing recomputes. */
  readonly recompute: () => RecomputeEffect | null;
  /** Notes for the user on decisions from options and files, one line each. */
  readonly notes: readonly string[];
}

/**
 * Searches, writes the plan record and lowers it.
 * @param memory whether plans are searched within the memory, or only the cheapest plans are compared with it
 * @param deadline end of the time limit, if it started earlier; by default it starts now
 * @throws AutoparError (exit noPlan, usage) if nothing fits
 */
export async function plan(
  imported: ImportedModel,
  options: NestedPlanningOptions = {},
  memory: PlanOptions['memory'] = 'searched',
  deadline = new Deadline(options.timeLimit, options.signal),
): Promise<PlannedModel> {
  const clusterHints = options.clusterHints ?? (await clusterSources(options.cluster));
  const decided = decide(imported, { ...options, clusterHints });
  const { degrees, pipeline, config } = decided;
  const mode = searchModeOf(options, config);
  const request = requestOf(options, config, imported, mode);
  const { spMethod = 'auto' } = request.requested;
  // Stages with meshes of their own have no common sequence order.
  const sp = pipeline?.meshes ? 1 : (degrees.sp ?? 1);
  refuseIdleOrder(sp, request.requested);
  const asked = { decided, request, mode, sp };
  const planned = (method?: AttentionMethod) => plannedAs(imported, options, { memory, deadline }, asked, method);
  if (sp === 1 || spMethod !== 'auto' || mode === 'sharding_propagation') return planned();
  const zigzag = zigzagAttention(imported.graph, sp);
  const rings = 'attention' in zigzag ? zigzag.attention : new Set<string>();
  // This search does not look for remedies if nothing fits; planning each method alone does so later.
  const within = { memory: memory === 'searched' ? 'tried' : memory, deadline } as const;
  const found = await plannedAs(imported, options, within, asked, undefined, rings).catch(asNothingFits);
  // A proposal that does not fit is made again with less memory.
  if (found instanceof NothingFits && memory === 'checked') throw found;
  const isValid = !(found instanceof NothingFits) && (rings.size === 0 || !hasRing(found.plan));
  return isValid ? found : fastestMethod(planned);
}

/** The requirements of a plan, from options and files. */
interface PlanRequirements {
  readonly decided: Decisions;
  readonly request: ReturnType<typeof requestOf>;
  readonly mode: SearchMode;
  /** Number of ranks over which the sequence is sharded. */
  readonly sp: number;
}

/**
 * The plan with an attention method, in the method's order of positions; by default with the requested method.
 * @param rings attention whose ring is priced as in zig-zag order: a plan that contains a ring is not valid for the graph
 */
async function plannedAs(
  imported: ImportedModel,
  options: NestedPlanningOptions,
  within: Pick<PlanOptions, 'memory' | 'deadline'>,
  { decided, request: { requested: asked, notes: requestNotes }, mode, sp }: PlanRequirements,
  method?: AttentionMethod,
  rings: ReadonlySet<string> = new Set(),
): Promise<PlannedModel> {
  const { cluster, degrees, pipeline: request, pinsOn, recomputePins, allToAll, notes } = decided;
  const { solver, timeLimit, top, axes, signal } = options;
  const requested: PlanRequest = method ? { ...asked, spMethod: method } : asked;
  // A solver that is not installed is refused before any work.
  if (solver === 'glpk') await loadSolver('glpk');
  checkHalves(requested, imported.graph);
  // With dp = 1 there are no shards to gather: weights are loaded whole.
  const isCut = requested.zero === 3 && degrees.dp !== 1;
  const held = isCut ? withWeightsAsState(imported.graph, fixedParameters(imported.graph)) : imported.graph;
  const ordered = orderedGraph(held, sp, requested);
  const { sequence, notes: orderNotes } = ordered;
  const whole = withRings(ordered.graph, rings, sp);
  const recompute = recomputedOperators(whole, requested.recompute, recomputePins, requested.interleave);
  const pipeline =
    request && pipelineOf(whole, cluster, { ...request, interleave: requested.interleave ?? 1 }, recompute);
  const cloned = pipeline?.graph ?? withClones(whole, recompute);
  const graph = asRun(cloned, { requested, training: imported.training ?? null });
  // Recompute clones follow their originals; pins do not apply to them.
  const plain = withoutClones(graph);
  const found = await search(graph, cluster, {
    ...(pipeline ? { pipeline: { ...pipeline, graph } } : {}),
    degrees,
    allToAll,
    mode,
    ...withoutUndefined({ solver, timeLimit, top, axes, signal, memoryBytes: options.memory }),
    ...(pinsOn ? { operatorPins: (mesh) => pinsOn(mesh, plain) } : {}),
    pinsHost: options.annotations?.pins.some(({ place }) => place === 'host') ?? false,
    ...within,
    request: requested,
    onDegrees: (index, count) => options.onProgress?.(`planning degrees ${index + 1} of ${count}`),
  });
  const { lowered, prediction } = found;
  const pins = pinsOn ? stagePins(graph, pipeline?.layout, found.assignment.mesh, (mesh) => pinsOn(mesh, plain)) : [];
  const record = planOf(
    {
      ...found,
      ...placePins(pins),
      requested: asked,
      ...(sequence ? { sequence: { ...sequence, ...methodsIn(graph, found, requested.spMethod) } } : {}),
      recomputed: recompute,
      allToAll,
      ...(request && pipeline ? { pipeline, pins: [...pipelinePins(request), ...found.pins] } : {}),
    },
    { ...imported, graph },
    cluster,
  );
  return {
    imported,
    cluster,
    found,
    pipeline,
    recompute: () => recomputeEffect(graph, { lowered, schedule: pipeline?.schedule ?? null }, prediction, cluster),
    plan: record,
    notes: [
      ...notes,
      ...requestNotes,
      ...orderNotes,
      ...recompute.notes,
      ...unevenHeads(graph, degrees.tp ?? 1),
      ...zeroNotes(requested, pipeline?.layout.meshes?.stages ?? [found.assignment.mesh]),
      ...idleSequence(requested, pipeline?.layout.meshes?.stages ?? [found.assignment.mesh]),
      ...unusedServer(requested, [found.assignment.mesh]),
      ...(pipeline?.layout.meshes ? [] : repeatingRanks(found.assignment, pipeline?.schedule.stages ?? 1)),
      ...found.notes,
      ...unusedBucket(requested, found.lowered),
      ...idleHalves(requested, found.lowered),
    ],
  };
}

/** The common method of all attention (the requested one if there is no attention), and the number of attentions by method. */
function methodsIn(
  graph: Graph,
  { assignment }: PlanResult,
  asked: SpMethod = 'auto',
): Pick<PlanSequence, 'method' | 'attentions'> {
  const attentions = attentionMethods(graph, assignment);
  const [only, ...others] = Object.keys(attentions) as AttentionMethod[];
  return { method: others.length > 0 ? 'auto' : (only ?? asked), attentions };
}

/** The requested search mode, or else that of the configuration's search_mode. */
export function searchModeOf(
  { complete, searchMode }: Pick<NestedPlanningOptions, 'complete' | 'searchMode'>,
  config: Decisions['config'],
): SearchMode {
  if (complete === 'propagate') return 'sharding_propagation';
  const configured = config?.searchMode ?? 'auto';
  const asked = searchMode ?? configured;
  return complete === 'search' && asked === 'sharding_propagation' ? 'auto' : asked;
}

/** The requested options of a pipeline, in the form of the plan's pins. */
function pipelinePins({ stages, schedule, virtualStages, layout, meshes }: PipelineRequest): readonly string[] {
  const written = meshes && meshSizes(meshes).map(sizesText).join(' | ');
  const given = { pp: stages, schedule, 'virtual-stages': virtualStages, stages: layout, meshes: written };
  return Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${value}`]));
}

/** Pins that do not determine a strategy and stay in the plan. */
function placePins(pins: readonly Pin[]): Pick<SearchResult, 'places'> {
  const places = new Map<string, 'device' | 'host'>();
  for (const pin of pins) {
    if (pin.kind === 'place') places.set(pin.node, pin.place);
  }
  return { places };
}
