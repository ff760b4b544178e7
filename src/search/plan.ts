/**
 * @file The planner: chooses degrees, and under them a strategy for every operator.
 *
 * Every factorisation dp · sp · tp of the devices that the pins allow is solved; the cheapest that fits the memory wins
 * (choose-degrees.ts), and each of the others is kept with the reason, in figures.
 */
import { setImmediate } from 'node:timers/promises';
import { type Cluster, clusterSize } from '../cost-model/cluster.js';
import { memoryOf, usableBytes } from '../cost-model/predict.js';
import { AutoparError } from '../ir/error.js';
import type { Graph, Node } from '../ir/graph.js';
import { cutStages } from '../partition/cut-stages.js';
import { meshOfOperators } from '../partition/lower-stages.js';
import type { OffloadPlaces } from '../partition/offload.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import type { Pin } from '../sharding-propagation/pin.js';
import type { Propagation } from '../sharding-propagation/propagation/propagate.js';
import { innerMesh } from '../sharding-propagation/roles.js';
import { axisSizes } from '../sharding-propagation/stage-meshes.js';
import { Deadline, OutOfTime } from '../solver/deadline.js';
import type { SearchResult } from '../strategy/plan-of.js';
import { isServed, type PlanRequest } from '../strategy/request.js';
import { degreesThatShardNorms, refuseAbsentFactors, refuseIdleExperts, refuseRing } from './absent-factors.js';
import { BY_PROPAGATION } from './by-propagation.js';
import { bySearch } from './by-search.js';
import { checkRoom } from './check-room.js';
import {
  chooseDegrees,
  type DegreesRuling,
  type FittingDegrees,
  lowered,
  type SolvedDegrees,
  stepNanoseconds,
  tooLarge,
} from './choose-degrees.js';
import type { Completion } from './completion.js';
import { batchSize, degreesOf, type MeshDegrees, type Pins } from './degrees.js';
import { leastBytes } from './least-bytes.js';
import { memoryConflict } from './memory-conflict.js';
import { nothingCanFit, nothingFits, type RejectedDegrees } from './nothing-fits.js';
import { type OperatorFactsOf, operatorFactsOf } from './operator-facts.js';
import { outsideRemedies } from './outside-remedies.js';
import type { PipelinedGraph } from './pipeline/pipeline.js';
import { stagePins } from './pipeline/stage-pins.js';
import { preferencesOf } from './preference.js';
import { remedyOf } from './remedy.js';
import { requestedHosted, requestedParts } from './requested-places.js';
import { reshardOpTexts, servedOpTexts } from './reshard-texts.js';
import { kindByKind } from './ruling-order.js';
import type { SearchMode, SolverName, UsedMode } from './search-mode.js';
import { requestedZero } from './zero.js';

export interface PlanOptions {
  /** Degrees that are given; the others are chosen. */
  readonly degrees?: Pins;
  /** The user's request for every plan, in words. */
  readonly request?: PlanRequest;
  /** `roles`: axes shard the factors of their roles (roles.ts). `free`: any axis shards any factor. */
  readonly axes?: 'roles' | 'free';
  /** Bytes that a plan may take on each device; left out: the memory of a named accelerator, no limit on local ranks. */
  readonly memoryBytes?: number;
  /**
   * `searched` (the default): plans are searched within that memory, and remedies are named where none fits. `tried`: the same
   * without remedies. `checked`: only the cheapest plans are compared with it, without remedies.
   */
  readonly memory?: 'searched' | 'tried' | 'checked';
  /** The user's pins on operators and tensors, resolved on a mesh; every plan keeps them. */
  readonly operatorPins?: (mesh: Mesh) => readonly Pin[];
  /** Some of them place operators on the host. */
  readonly pinsHost?: boolean;
  /** Whether resharding may use all-to-all; it may by default. */
  readonly allToAll?: boolean;
  /** How pins are completed on one mesh; left out: as `mode` says. */
  readonly completion?: Completion;
  /** How everything that is not pinned is completed; `auto` by default. */
  readonly mode?: SearchMode;
  /** The solver of integer programs; HiGHS by default. */
  readonly solver?: SolverName;
  /** Seconds after which the best plan so far is taken: the result then depends on the machine. */
  readonly timeLimit?: number;
  /** The end of these seconds, where they began earlier. */
  readonly deadline?: Deadline;
  /** How many of the best combinations of degrees are lowered and reported; 1 by default. */
  readonly top?: number;
  readonly signal?: AbortSignal;
  /** Called before each combination of degrees, where there are several. */
  readonly onDegrees?: (index: number, count: number) => void;
  /** The stages that the graph is cut into; its devices are then those of one stage. The graph is the pipeline's own. */
  readonly pipeline?: PipelinedGraph;
}

export interface PlanResult
  extends Pick<SearchResult, 'assignment' | 'costNanoseconds' | 'boundNanoseconds' | 'viewSteps' | 'pins'>,
    Omit<FittingDegrees, 'solved'> {
  readonly degrees: MeshDegrees;
  /** Every other combination of degrees, and why it was not taken. */
  readonly rejected: readonly RejectedDegrees[];
  /** The best combinations of degrees that fit, the chosen one first: as many as requested, if there are. */
  readonly top: readonly RankedDegrees[];
  /** Operators that could not use a pinned degree. */
  readonly exceptions: readonly { readonly operator: string; readonly reason: string }[];
  readonly mode: UsedMode;
  /** Notes for the user on how it was found, a line each. */
  readonly notes: readonly string[];
  /** Where propagation made the plan: the causes of each of its layouts. */
  readonly propagation?: Propagation;
  /** Whether the time limit was over before the search ended: equal requests may have other answers. */
  readonly isTimeLimited: boolean;
}

export interface RankedDegrees {
  readonly degrees: MeshDegrees;
  /** Time of the step, as predicted. */
  readonly stepNanoseconds: number;
  readonly boundNanoseconds: number;
  /** Per stage. */
  readonly peakBytes: readonly number[];
  /** Why it was not taken; null for the one that was. */
  readonly reason: string | null;
}

const GATHERS_AGAIN = 'to fit memory, ranks store shards of activations, and the backward gathers them again';

/** Errors of pins that hold for one combination of degrees only. */
export const OF_THIS_MESH: ReadonlySet<string> = new Set([
  'pin-cannot-be-kept',
  'pin-does-not-fit',
  'pins-contradict',
  'pins-leave-no-plan',
]);

/** Operators of a graph: more would take minutes, and gigabytes. Rewrites (a Gemm is two operators) add to a file's nodes. */
const MOST_OPERATORS = 200_000;

/**
 * Plans a graph for a cluster.
 * @throws AutoparError (usage) for degrees that are not positive numbers or do not multiply to the devices; (noPlan) where
 * a pinned dp does not divide the batch, pins leave no plan, or nothing fits the memory
 */
export async function plan(graph: Graph, cluster: Cluster, options: PlanOptions = {}): Promise<PlanResult> {
  if (graph.nodes.length > MOST_OPERATORS) throw tooManyOperators(graph.nodes.length);
  checkRoom(cluster, options.memoryBytes);
  const { meshes } = options.pipeline?.layout ?? {};
  const asked = requestedDegrees(options);
  const [pins = {}] = asked;
  refuseAbsentFactors(graph, asked, options.request);
  const batch = batchSize(graph);
  const { pipeline } = options;
  if (pipeline && meshes && asked.some(({ ep = 1 }) => ep > 1))
    refuseIdleExperts(cutStages(graph, pipeline.layout.placeOf, pipeline.layout.stages).stages, asked);
  const devices = stageDevices(cluster, pipeline);
  const possible = (own: Pins) =>
    degreesThatShardNorms(
      graph,
      degreesOf(devices, own, batch, graph.microBatches?.count, pipeline?.layout.stages),
      options.request,
    );
  const { tried, rejected } = possible(pins);
  for (const own of asked.slice(1)) possible(own);
  const limit = options.memoryBytes ?? usableBytes(cluster);
  const parts = requestedParts(graph, cluster, options.request ?? {});
  const least = leastOnDevice(graph, devices, parts, options);
  if (limit !== undefined && least > limit) {
    const large = [
      ...rejected.map(impossible),
      ...tried.map((degrees) => ({ degrees, ...tooLarge(least, least, limit) })),
    ];
    throw nothingCanFit(cluster, large, least, limit);
  }
  const solving = new SolvingDegrees(graph, cluster, options);
  await solving.solve(tried);
  const [first] = solving.solved;
  const hosted = requestedHosted(graph, cluster, (first && options.operatorPins?.(first.assignment.mesh)) ?? []);
  const choice = await chooseDegrees(
    graph,
    cluster,
    solving.solved,
    limit,
    options.top ?? 1,
    pipeline,
    { parts, hosted },
    options.request,
    options.memory !== 'checked',
    preferencesOf(options.request ?? {}, options.memoryBytes !== undefined),
  );
  const [best] = choice.ranked;
  const others = [
    ...rejected.map(impossible),
    ...[...solving.reasons, ...choice.reasons].map(([degrees, ruling]): RejectedDegrees => ({ degrees, ...ruling })),
  ].sort((a, b) => a.degrees.tp - b.degrees.tp);
  if (!best) {
    if (options.memory === 'tried' || options.memory === 'checked')
      throw nothingFits(graph, cluster, others, choice, limit ?? 0, options.timeLimit !== undefined, []);
    // Alternatives to a pipeline that would fit are not searched.
    if (pipeline)
      throw nothingFits(graph, cluster, others, choice, limit ?? 0, options.timeLimit !== undefined, [
        'use more stages (--pp)',
      ]);
    const all = await otherDegrees(graph, cluster, options, solving.solved);
    const remedies = [
      await pinsTooLarge(graph, cluster, options, tried, solving.solved),
      await remedyOf(graph, cluster, limit ?? 0, solving.solved, all),
      ...outsideRemedies(graph, cluster, limit ?? 0, solving.solved, { parts, hosted }),
    ];
    throw nothingFits(graph, cluster, others, choice, limit ?? 0, options.timeLimit !== undefined, remedies);
  }
  const pinTexts = (mesh: Mesh) => (options.operatorPins?.(mesh) ?? []).map((pin) => pin.source.text);
  const { cost, bound, resharder, within: _, isCut, mode, ...found } = best.solved;
  return {
    ...found,
    costNanoseconds: cost,
    boundNanoseconds: bound,
    lowered: best.lowered,
    memory: best.memory,
    prediction: best.prediction,
    savesMemory: best.savesMemory,
    rejected: kindByKind(others, ['slower', 'late', 'too-large', 'impossible'], (ruling) =>
      ruling.kind === 'slower' ? ruling.stepNanoseconds : ruling.kind === 'too-large' ? ruling.leastBytes : 0,
    ),
    top: choice.ranked.map(({ solved, prediction }) => ({
      degrees: solved.degrees,
      stepNanoseconds: stepNanoseconds({ prediction }),
      boundNanoseconds: solved.bound,
      peakBytes: prediction.peakBytes,
      reason: choice.reasons.get(solved.degrees)?.reason ?? null,
    })),
    viewSteps: servedOpTexts(
      reshardOpTexts(graph, found.assignment, resharder, pipeline?.layout),
      found.assignment,
      best.lowered,
    ),
    mode,
    notes: [...solving.notes(isCut ?? false), ...(found.assignment.gathersAgain ? [GATHERS_AGAIN] : [])],
    isTimeLimited: solving.isOver(),
    pins: [
      ...Object.entries(meshes ? {} : pins).flatMap(([axis, size]) => (size === undefined ? [] : [`${axis}=${size}`])),
      ...new Set((meshes?.stages ?? [found.assignment.mesh]).flatMap(pinTexts)),
    ],
  };
}

/**
 * The bytes that no plan of any degrees needs less than on the fullest device; 0 where plans with remedies are wanted if nothing
 * fits, or where tensors may be kept elsewhere.
 */
function leastOnDevice(
  graph: Graph,
  devices: number,
  parts: OffloadPlaces['parts'],
  { memory = 'searched', pipeline, pinsHost = false, request }: PlanOptions,
): number {
  const isElsewhere = isServed(request) || pinsHost || Object.keys(parts).length > 0;
  return memory === 'searched' || pipeline || isElsewhere ? 0 : leastBytes(graph) / devices;
}

/** Solves combinations that the pins rule out: one of them may fit instead. */
async function otherDegrees(
  graph: Graph,
  cluster: Cluster,
  options: PlanOptions,
  solved: readonly SolvedDegrees[],
): Promise<readonly SolvedDegrees[]> {
  const isTried = ({ dp, tp }: MeshDegrees) => solved.some(({ degrees }) => degrees.dp === dp && degrees.tp === tp);
  const { sp, ep } = options.degrees ?? {};
  const { tried } = degreesOf(clusterSize(cluster), { sp, ep }, batchSize(graph), graph.microBatches?.count);
  const others = tried.filter((degrees) => !isTried(degrees));
  if (others.length === 0 || options.timeLimit !== undefined) return [];
  const solving = new SolvingDegrees(graph, cluster, { ...options, degrees: { sp, ep } });
  try {
    await solving.solve(others);
  } catch (error) {
    // Degrees that cannot be solved are not a remedy.
    if (!(error instanceof AutoparError)) throw error;
  }
  return solving.solved;
}

/**
 * The pins that leave no plan that fits, in words; null where pins are not the cause, or there is a time limit.
 * @param solved those of `tried` that the pins allow
 */
async function pinsTooLarge(
  graph: Graph,
  cluster: Cluster,
  options: PlanOptions,
  tried: readonly MeshDegrees[],
  solved: readonly SolvedDegrees[],
): Promise<string | null> {
  const { operatorPins, timeLimit } = options;
  if (!operatorPins || timeLimit !== undefined) return null;
  const limit = options.memoryBytes ?? usableBytes(cluster) ?? 0;
  const pins = solved.flatMap(({ degrees }) => operatorPins(innerMesh(degrees)));
  return memoryConflict(graph, cluster, limit, pins, async (isKept) => {
    const solving = new SolvingDegrees(graph, cluster, {
      ...options,
      operatorPins: (mesh) => operatorPins(mesh).filter(isKept),
    });
    await solving.solve(tried);
    return solving.solved;
  });
}

/** Devices that a graph's operators are sharded over: for a pipeline, those of one stage. */
function stageDevices(cluster: Cluster, pipeline: PipelinedGraph | undefined): number {
  return clusterSize(cluster) / (pipeline?.layout.stages ?? 1);
}

function completionOf({ completion, mode = 'auto', solver = 'highs' }: PlanOptions): Completion {
  if (completion) return completion;
  return mode === 'sharding_propagation' ? BY_PROPAGATION : bySearch(mode, solver);
}

/** Solves combinations of degrees one after the other, until the time is over. */
class SolvingDegrees {
  readonly solved: SolvedDegrees[] = [];
  /** Why combinations were not solved. */
  readonly reasons = new Map<MeshDegrees, DegreesRuling>();
  private readonly completion: Completion;
  private readonly deadline: Deadline;
  private readonly factsOf: OperatorFactsOf;
  private readonly meshOf: ((node: Node) => Mesh) | null;
  private isPropagated = false;

  constructor(
    private readonly graph: Graph,
    private readonly cluster: Cluster,
    private readonly options: PlanOptions,
  ) {
    this.completion = completionOf(options);
    this.deadline = options.deadline ?? new Deadline(options.timeLimit, options.signal);
    const asked = requestedDegrees(options);
    const most = (axis: 'sp' | 'ep') => Math.max(...asked.map((own) => own[axis] ?? 1));
    const { spMethod = 'auto', tpSequence = 'auto' } = options.request ?? {};
    this.factsOf = operatorFactsOf(graph, { sp: most('sp'), ep: most('ep'), spMethod, tpSequence });
    this.meshOf = options.pipeline ? meshOfOperators(graph, options.pipeline.layout) : null;
    const ranksOf = ({ sp = 1 }: Pins) => sp;
    const spOf = (node: Node) => (this.meshOf ? ranksOf(degreesIn(this.meshOf(node))) : ranksOf(asked[0] ?? {}));
    if (spMethod === 'ring') refuseRing(graph, this.factsOf, spOf);
  }

  async solve(tried: readonly MeshDegrees[]): Promise<void> {
    let impossible: AutoparError | undefined;
    const late: MeshDegrees[] = [];
    for (const [index, degrees] of tried.entries()) {
      if (tried.length > 1) this.options.onDegrees?.(index, tried.length);
      // Between two of them an interruption can be handled, however short they are.
      await setImmediate();
      this.options.signal?.throwIfAborted();
      try {
        if (this.deadline.isOver()) late.push(degrees);
        else this.solved.push(await this.complete(degrees, this.completion, this.deadline));
      } catch (error) {
        if (error instanceof OutOfTime) late.push(degrees);
        // The user's request may be impossible under some degrees and possible under others.
        else if (error instanceof AutoparError && OF_THIS_MESH.has(error.code)) {
          impossible ??= error;
          this.reasons.set(degrees, { kind: 'impossible', reason: error.message });
        } else throw error;
      }
    }
    for (const degrees of late)
      this.reasons.set(degrees, { kind: 'late', reason: 'the time limit ended before it was searched' });
    if (this.solved.length > 0) return;
    // Propagation does not choose among layouts, so it cannot keep a ZeRO level.
    if (late.length > 0 && this.options.request?.zero !== undefined) throw outOfTime(this.options.timeLimit ?? 0);
    if (late.length > 0) await this.propagate(late);
    else if (impossible) throw impossible;
  }

  isOver(): boolean {
    return this.deadline.isOver();
  }

  /** @param isCut the chosen plan's search was ended by the time limit */
  notes(isCut: boolean): readonly string[] {
    const { timeLimit } = this.options;
    if (timeLimit === undefined) return [];
    const over = `the time limit of ${timeLimit} s ended`;
    if (this.isPropagated) return [`${over} before any plan was found: propagation of the pins made this plan`];
    const late = [...this.reasons.values()].filter(({ kind }) => kind === 'late').length;
    if (isCut) return [`${over} the search: this is the best plan so far`];
    return late > 0 ? [`${over} before all degrees were searched: this is the best plan so far`] : [];
  }

  /** The time is over and there is no plan: completes degrees by propagation, until a plan fits. */
  private async propagate(late: readonly MeshDegrees[]): Promise<void> {
    let impossible: unknown;
    for (const degrees of late) {
      try {
        const solved = await this.complete(degrees, BY_PROPAGATION, new Deadline(undefined, this.options.signal));
        this.solved.push(solved);
        this.reasons.delete(degrees);
        this.isPropagated = true;
        if (this.fits(solved)) return;
      } catch (error) {
        if (!(error instanceof AutoparError) || !OF_THIS_MESH.has(error.code)) throw error;
        this.reasons.set(degrees, { kind: 'impossible', reason: error.message });
        impossible ??= error;
      }
    }
    if (this.solved.length === 0) throw impossible;
  }

  private fits(solved: SolvedDegrees): boolean {
    const limit = this.options.memoryBytes ?? usableBytes(this.cluster);
    const need = () => memoryOf(lowered(this.graph, this.cluster, solved), this.cluster).peakBytes;
    return limit === undefined || need() <= limit;
  }

  private async complete(degrees: MeshDegrees, completion: Completion, deadline: Deadline): Promise<SolvedDegrees> {
    const { options, meshOf: ofStage } = this;
    const { meshes } = options.pipeline?.layout ?? {};
    const mesh = meshes?.common ?? innerMesh(degrees);
    const pinned = new Set(
      requestedDegrees(options).flatMap((own) =>
        Object.entries(own).flatMap(([axis, size]) => (size === undefined ? [] : [axis])),
      ),
    );
    const completed = await completion.solve(this.graph, mesh, this.cluster, {
      axes: options.axes ?? 'roles',
      pinned,
      factsOf: this.factsOf,
      allToAll: options.allToAll ?? true,
      pins: options.operatorPins ? stagePins(this.graph, options.pipeline?.layout, mesh, options.operatorPins) : [],
      ...requestedZero(options.request),
      ...(ofStage ? { meshOf: ofStage } : {}),
      deadline,
    });
    return { mode: completion.mode, ...completed, degrees };
  }
}

function outOfTime(seconds: number): AutoparError {
  return new AutoparError(
    'out-of-time',
    'noPlan',
    `the time limit of ${seconds} s ended before a plan with the requested ZeRO level was found`,
    {},
    'give more seconds (--time-limit), or leave out --zero',
  );
}

/** The given degrees: one per stage where stages have meshes of their own, else one for all. */
function requestedDegrees({ degrees = {}, pipeline }: PlanOptions): readonly Pins[] {
  return pipeline?.layout.meshes?.stages.map(degreesIn) ?? [degrees];
}

function degreesIn(mesh: Mesh): Pins {
  return Object.fromEntries(axisSizes(mesh));
}

function impossible(degrees: { readonly degrees: MeshDegrees; readonly reason: string }): RejectedDegrees {
  return { ...degrees, kind: 'impossible' };
}

function tooManyOperators(count: number): AutoparError {
  return new AutoparError(
    'too-many-nodes',
    'input',
    `the model has ${count} operators; autopar plans models of up to ${MOST_OPERATORS}`,
    {},
    'simplify the model with ONNX Runtime first, or plan a part of it',
  );
}
