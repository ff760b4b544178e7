/**
 * @file The planner: which degrees, and under them which strategy for every operator.
 *
 * Every factorisation dp · tp of the devices that the pins allow is solved exactly; the cheapest that fits the memory
 * wins, and each of the others is kept with the reason, in figures.
 */
import { setImmediate } from 'node:timers/promises';
import { type Cluster, clusterSize } from '../cost-model/cluster.js';
import { memoryOf, type Prediction, predict, priceGraph, usableBytes } from '../cost-model/predict.js';
import { AutoparError } from '../ir/error.js';
import { type Graph, runsPerStep } from '../ir/graph.js';
import { entryOf, unknownEntry } from '../ir/ops/index.js';
import { viewOf } from '../ir/view.js';
import type { Assignment } from '../partition/assignment.js';
import { partition } from '../partition/partition.js';
import type { ShardedGraph } from '../partition/sharded-graph.js';
import { type TensorKind, tensorKinds } from '../partition/tensor-kinds.js';
import { type Mesh, makeMesh } from '../sharding-propagation/mesh.js';
import type { Pin } from '../sharding-propagation/pin.js';
import type { Propagation } from '../sharding-propagation/propagation/propagate.js';
import type { Redistributor } from '../sharding-propagation/redistribution.js';
import { batchSize, type Degrees, degreesOf, type Pins } from './degrees.js';
import { type OperatorQuestions, operatorQuestions } from './operator-questions.js';
import { searchPins } from './pinned.js';
import { type MeshSolution, solveMesh } from './solve-mesh.js';
import { viewSteps } from './view-steps.js';

export interface PlanOptions {
  /** Degrees that are given; the others are chosen. */
  readonly degrees?: Pins;
  /** `roles`: dp on the batch, tp on everything else. `free`: any axis on any factor. */
  readonly axes?: 'roles' | 'free';
  /** Bytes that a plan may take on each device; left out: what a named accelerator has, no limit on local ranks. */
  readonly memoryBytes?: number;
  /** What the user has decided about operators and tensors, resolved on a mesh; kept by every plan. */
  readonly operatorPins?: (mesh: Mesh) => readonly Pin[];
  /** Whether redistributions may be all-to-alls; they may unless told. */
  readonly allToAll?: boolean;
  readonly signal?: AbortSignal;
}

export interface PlanResult {
  readonly assignment: Assignment;
  /** The graph lowered under the assignment. */
  readonly sharded: ShardedGraph;
  readonly prediction: Prediction;
  readonly degrees: Degrees;
  /** What was minimised; equal to the price of the lowered graph. */
  readonly costNanoseconds: number;
  /** No assignment under these degrees costs less; equal to the cost where the optimum is proven. */
  readonly boundNanoseconds: number;
  /** Every other combination of degrees, and why it was not taken. */
  readonly rejected: readonly { readonly degrees: Degrees; readonly reason: string }[];
  /** Operators that could not use a pinned degree. */
  readonly exceptions: readonly { readonly operator: string; readonly reason: string }[];
  /** Per view of the assignment: its redistribution's steps, such as `all-gather(tp)`. */
  readonly viewSteps: readonly (readonly string[])[];
  readonly mode: 'dynamic_programming' | 'sharding_propagation';
  /** Where propagation made the plan: what led to each of its layouts. */
  readonly propagation?: Propagation;
  /** What the user pinned, such as `tp=2`. */
  readonly pins: readonly string[];
}

/** How what pins leave open is completed on a mesh: by search, or by propagation (propagated.ts). */
export interface Completion {
  readonly mode: PlanResult['mode'];
  readonly solve: (
    graph: Graph,
    mesh: Mesh,
    cluster: Cluster,
    options: CompletionOptions,
  ) => MeshSolution & Pick<PlanResult, 'propagation'>;
}

/** What a completion is told of one mesh. */
export interface CompletionOptions {
  /** Axes whose degree the user gave. */
  readonly pinned: ReadonlySet<string>;
  readonly questions: OperatorQuestions;
  readonly pins: readonly Pin[];
  readonly axes: 'roles' | 'free';
  readonly allToAll: boolean;
}

const BY_SEARCH: Completion = {
  mode: 'dynamic_programming',
  solve: (graph, mesh, cluster, { pins, ...options }) =>
    solveMesh(graph, mesh, cluster, { ...options, pins: searchPins(graph, pins) }),
};

/** Errors of pins that say nothing about other degrees. */
const OF_THIS_MESH: ReadonlySet<string> = new Set(['pin-cannot-be-kept', 'pin-does-not-fit', 'pins-contradict']);

/** Operators of a graph: more would take minutes, and gigabytes. Rewrites (a Gemm is two operators) add to a file's nodes. */
const MOST_OPERATORS = 200_000;

/** One combination of degrees, solved. */
interface Solved extends Omit<PlanResult, 'rejected' | 'mode' | 'pins' | 'prediction' | 'sharded' | 'viewSteps'> {
  readonly redistributor: Redistributor;
}

/**
 * Plans a graph for a cluster.
 * @throws AutoparError (usage) for degrees that are no positive numbers or do not multiply to the devices; (noPlan) where
 * a pinned dp does not divide the batch, or nothing fits the memory
 */
export async function plan(
  graph: Graph,
  cluster: Cluster,
  options: PlanOptions = {},
  completion: Completion = BY_SEARCH,
): Promise<PlanResult> {
  if (graph.nodes.length > MOST_OPERATORS) throw tooManyOperators(graph.nodes.length);
  const pins = options.degrees ?? {};
  const batch = batchSize(graph);
  const { tried, rejected } = degreesOf(clusterSize(cluster), pins, batch, graph.microBatches?.count);
  const limit = options.memoryBytes ?? usableBytes(cluster);
  const questions = operatorQuestions(graph);
  const solved: Solved[] = [];
  const unpinnable: { readonly degrees: Degrees; readonly error: AutoparError }[] = [];
  for (const degrees of tried) {
    // The search itself never waits: between two of them an interruption gets its turn.
    await setImmediate();
    options.signal?.throwIfAborted();
    try {
      solved.push(solve(graph, cluster, degrees, options, questions, completion));
    } catch (error) {
      // What a user asks for may be impossible under some degrees and possible under others.
      if (!(error instanceof AutoparError) || !OF_THIS_MESH.has(error.code)) throw error;
      unpinnable.push({ degrees, error });
    }
  }
  const [impossible] = unpinnable;
  if (impossible && solved.length === 0) throw impossible.error;
  solved.sort((a, b) => a.costNanoseconds - b.costNanoseconds || a.degrees.tp - b.degrees.tp);
  const reasons = new Map([
    ...rejected.map((entry) => [entry.degrees, entry.reason] as const),
    ...unpinnable.map(({ degrees, error }) => [degrees, error.message] as const),
  ]);
  let best: { readonly found: Solved; readonly sharded: ShardedGraph; readonly prediction: Prediction } | undefined;
  for (const found of solved) {
    if (best) {
      reasons.set(found.degrees, slower(found.costNanoseconds, best.found.costNanoseconds));
      continue;
    }
    const sharded = lowered(graph, cluster, found);
    const prediction = predict(sharded, cluster, wholeFlops(graph));
    const need = Math.max(...prediction.peakBytes);
    if (limit !== undefined && need > limit) reasons.set(found.degrees, tooLarge(need, limit));
    else best = { found, sharded, prediction };
  }
  const others = [...reasons].map(([degrees, reason]) => ({ degrees, reason }));
  if (!best) throw nothingFits(others, cluster, remedyOf(graph, cluster, options, completion, solved));
  const { redistributor, ...found } = best.found;
  return {
    ...found,
    sharded: best.sharded,
    prediction: best.prediction,
    rejected: others.sort((a, b) => a.degrees.tp - b.degrees.tp),
    viewSteps: viewSteps(graph, found.assignment, redistributor),
    mode: completion.mode,
    pins: [
      ...Object.entries(pins).flatMap(([axis, size]) => (size === undefined ? [] : [`${axis}=${size}`])),
      ...new Set((options.operatorPins?.(found.assignment.mesh) ?? []).map((pin) => pin.source.text)),
    ],
  };
}

function solve(
  graph: Graph,
  cluster: Cluster,
  degrees: Degrees,
  options: PlanOptions,
  questions: OperatorQuestions,
  completion: Completion,
): Solved {
  const mesh = makeMesh([
    ['dp', degrees.dp],
    ['tp', degrees.tp],
  ]);
  const pinned = new Set(
    Object.entries(options.degrees ?? {}).flatMap(([axis, size]) => (size === undefined ? [] : [axis])),
  );
  const { cost, bound, ...found } = completion.solve(graph, mesh, cluster, {
    axes: options.axes ?? 'roles',
    pinned,
    questions,
    allToAll: options.allToAll ?? true,
    pins: options.operatorPins?.(mesh) ?? [],
  });
  return { ...found, degrees, costNanoseconds: cost, boundNanoseconds: bound };
}

function lowered(graph: Graph, cluster: Cluster, found: Solved): ShardedGraph {
  const sharded = partition(graph, found.assignment, found.redistributor);
  const price = priceGraph(sharded, cluster);
  if (price !== found.costNanoseconds) {
    throw new Error(`the lowered graph costs ${price} ns, the search said ${found.costNanoseconds} ns`);
  }
  return sharded;
}

/** Work of the unsharded graph. */
function wholeFlops(graph: Graph): number {
  return graph.nodes.reduce((sum, node) => {
    const view = viewOf(graph, node);
    const { flops } = (entryOf(node.op, node.domain) ?? unknownEntry(node.op, node.domain)).work(view);
    return sum + runsPerStep(node.scope, graph) * flops;
  }, 0);
}

function slower(cost: number, best: number): string {
  const times = `${(cost / 1e6).toPrecision(3)} ms against ${(best / 1e6).toPrecision(3)} ms`;
  return cost === best ? `no faster (${times})` : `${(cost / best).toPrecision(3)} times slower (${times})`;
}

function tooLarge(need: number, limit: number): string {
  return `needs ${gigabytes(need)} of ${gigabytes(limit)} on each device, ${gigabytes(need - limit)} too much`;
}

function gigabytes(bytes: number): string {
  return bytes >= 1e9 ? `${(bytes / 1e9).toPrecision(3)} GB` : `${(bytes / 1e6).toPrecision(3)} MB`;
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

function nothingFits(rejected: PlanResult['rejected'], cluster: Cluster, remedy: string | null): AutoparError {
  const reasons = rejected.map(({ degrees, reason }) => `dp ${degrees.dp} tp ${degrees.tp}: ${reason}`).join('; ');
  const others =
    'use more devices (--devices), devices with more memory (--cluster, --memory), or other degrees (--dp, --tp)';
  return new AutoparError(
    'nothing-fits',
    'noPlan',
    `no combination of degrees for ${clusterSize(cluster)} devices is possible: ${reasons}`,
    {},
    remedy === null ? others : `${remedy}; else ${others}`,
  );
}

/**
 * The cheapest change that makes a plan fit: other degrees where some were given, the fastest of those that fit; else
 * micro-batches, where what they make smaller is enough. Null where neither helps.
 */
function remedyOf(
  graph: Graph,
  cluster: Cluster,
  options: PlanOptions,
  completion: Completion,
  tried: readonly Solved[],
): string | null {
  const limit = options.memoryBytes ?? usableBytes(cluster);
  if (limit === undefined) return null;
  const isTried = ({ dp, tp }: Degrees) => tried.some((found) => found.degrees.dp === dp && found.degrees.tp === tp);
  const { tried: all } = degreesOf(clusterSize(cluster), {}, batchSize(graph), graph.microBatches?.count);
  const questions = operatorQuestions(graph);
  const fitting = all.flatMap((degrees) => {
    if (isTried(degrees)) return [];
    const found = attempt(() => solve(graph, cluster, degrees, { ...options, degrees }, questions, completion));
    if (!found || memoryOf(lowered(graph, cluster, found), cluster).peakBytes > limit) return [];
    return [found];
  });
  const [fastest] = fitting.sort((a, b) => a.costNanoseconds - b.costNanoseconds);
  if (fastest) {
    const { degrees, costNanoseconds } = fastest;
    return `--dp ${degrees.dp} --tp ${degrees.tp} fits, at ${(costNanoseconds / 1e6).toPrecision(3)} ms a step`;
  }
  if (graph.microBatches || !graph.nodes.some(({ phase }) => phase === 'backward')) return null;
  for (const found of tried) {
    const sharded = lowered(graph, cluster, found);
    const { peakBytes, held } = memoryOf(sharded, cluster);
    const kinds = tensorKinds(sharded);
    const shrinking = [...held()].reduce((sum, [name, bytes]) => sum + (BY_SAMPLE.has(kinds.get(name)) ? bytes : 0), 0);
    const times = [2, 4, 8, 16].find((count) => peakBytes - shrinking * (1 - 1 / count) <= limit);
    if (times !== undefined) {
      const { dp, tp } = found.degrees;
      return `--dp ${dp} --tp ${tp} --micro-batches ${times} may fit: ${gigabytes(shrinking)} grow with the samples taken at once`;
    }
  }
  return null;
}

/** Kinds whose bytes follow the samples of a micro-batch. */
const BY_SAMPLE: ReadonlySet<TensorKind | undefined> = new Set<TensorKind>(['activation', 'temporary', 'input']);

/** What a degree cannot give is no remedy. */
function attempt<Result>(make: () => Result): Result | null {
  try {
    return make();
  } catch (error) {
    if (error instanceof AutoparError) return null;
    throw error;
  }
}
