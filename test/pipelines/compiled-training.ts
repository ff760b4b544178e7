/**
 * @file A model trained as a pipeline on ranks of this machine, compiled as a user would; and the same on one rank.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { labelBounds } from '../../src/api/execution/labels.js';
import { type CompileOptions, compile, type Training } from '../../src/api/index.js';
import { type LoweredPlan, lowerPlan } from '../../src/api/planning/lower-plan.js';
import { openCompiled } from '../../src/api/verify.js';
import { communicatedBytes } from '../../src/cost-model/price.js';
import type { Graph } from '../../src/ir/graph.js';
import { runsInStep } from '../../src/partition/except-last.js';
import type { LoweredStage } from '../../src/partition/lower-stages.js';
import { localBytes } from '../../src/partition/partition.js';
import type { ShardedGraph, ShardedTensor } from '../../src/partition/sharded-graph.js';
import type { Program } from '../../src/program/program.js';
import { programFolder } from '../../src/program/reader.js';
import type { ConstantTensor } from '../../src/program/values.js';
import { eachStep, scalarIn } from '../../src/runtime/run-program.js';
import { type StepResult, startSession, type UnshardedTensors } from '../../src/runtime/session.js';
import { meanStatistics, type RankStatistics, sumOf } from '../../src/runtime/statistics.js';
import type { ScheduleKind } from '../../src/schedule/schedule.js';
import type { InnerDegrees, SpMethod } from '../../src/sharding-propagation/roles.js';
import type { Plan } from '../../src/strategy/plan.js';
import type { PlanRequest } from '../../src/strategy/request.js';
import type { Left } from './difference.js';
import { type ModelName, writeModel } from './models.js';

/** A pipeline to train; of one stage if it has no schedule. */
export interface Pipeline extends InnerDegrees {
  readonly kind?: ScheduleKind;
  readonly stages: number;
  readonly chunks?: number;
  readonly spMethod?: SpMethod;
  readonly zero?: CompileOptions['zero'];
  /** The mesh of each stage, where they differ. */
  readonly meshes?: string;
  /** As `--recompute` has it. */
  readonly recompute?: string;
  /** Further requests, in words. */
  readonly request?: PlanRequest;
  /** Bytes that a rank may hold. */
  readonly memory?: number;
}

/** Requests in words: offload, and annotations. */
export type Asked = Pick<CompileOptions, 'offload' | 'annotations'>;

/** The most that any of a stage's ranks counts, by memory. */
export type Outside = NonNullable<RankStatistics['outside']>;

/** A model to train, and its training. */
export interface Task {
  readonly model: ModelName;
  readonly microBatches: number;
  readonly training?: Partial<Training>;
  /** How tokens reach experts. */
  readonly sent?: Pick<CompileOptions, 'dispatch' | 'capacityFactor'>;
}

/** Results of a run. */
export interface Trained extends Left {
  /** Results of its first step: with plain SGD, momentum is the gradient. */
  readonly first: Left;
  readonly program: Program;
  readonly plan: Plan;
  /** Bytes that each rank sends in a step. */
  readonly sentByRank: readonly number[];
  /** Permutes that each rank runs in a step. */
  readonly permutesByRank: readonly number[];
  /** Bytes of each rank's fullest moment. */
  readonly peakByRank: readonly number[];
  /** The schedule that a pipeline's stages run. */
  readonly schedule: LoweredPlan['schedule'];
  /** Bytes of the fullest moment, by stage. */
  readonly peaks: PerStage;
  /** Bytes that a rank sends in a step, by stage. */
  readonly sent: PerStage;
  readonly lowered: readonly LoweredStage[];
  /** Memory and transfers outside of the devices: predicted by stage, counted by rank. */
  readonly outside: { readonly predicted: readonly Outside[]; readonly counted: readonly Outside[] };
  /** Bytes that recompute is predicted to free of the peaks, by stage; none where nothing recomputes. */
  readonly freed: readonly number[];
}

interface PerStage {
  readonly predicted: readonly number[];
  readonly counted: readonly number[];
}

/** Samples of a step: enough for 8 micro-batches on two replicas, or two for each micro-batch if these do not divide it. */
function batchOf(microBatches: number): number {
  return 16 % microBatches === 0 ? 16 : 2 * microBatches;
}

/** Experts that choose tokens, and slots of experts, are of all tokens of the file. */
const OF_THEIR_BATCH: ReadonlySet<ModelName> = new Set(['moe', 'capacity-experts']);

/**
 * Clipping is active from the first step on. Momentum and weights are linear in gradients, so that they show an error of one as
 * it is, and of the norm; Adam would make a step of full size of the rounding of a gradient that is zero.
 */
const TRAINING: Training = {
  loss: { kind: 'mse' },
  optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.1, clipNorm: 0.05 },
};

const references = new Map<string, Promise<Left & Pick<Trained, 'first'>>>();

/** Results of steps on one rank: run once for all comparisons with them. */
export function alone(task: Task, steps: number): Promise<Left & Pick<Trained, 'first'>> {
  const key = JSON.stringify([task, steps]);
  const known =
    references.get(key) ?? train(task, steps).then(({ losses, state, first }) => ({ losses, state, first }));
  references.set(key, known);
  return known;
}

/** Compiles and runs `steps` steps on one rank, or on those of a plan. */
export async function train(
  { model, microBatches, training = {}, sent: dispatch = {} }: Task,
  steps: number,
  pipeline?: Partial<Pipeline>,
  asked: Asked = {},
): Promise<Trained> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    const file = join(folder, `${model}.onnx`);
    const directory = join(folder, 'out');
    writeModel(model, file);
    const { kind, stages = 1, chunks = 1, dp = 1, sp = 1, tp = 1, ep = 1, ...words } = pipeline ?? {};
    const { spMethod, zero, meshes, recompute, memory, request = {} } = words;
    const { plan, recompute: effect } = await compile({
      model: file,
      output: directory,
      ...(OF_THEIR_BATCH.has(model) ? {} : { globalBatch: batchOf(microBatches) }),
      ...(meshes === undefined
        ? { devices: stages * dp * sp * tp, degrees: { pp: stages, dp, tp, sp, ep }, axes: 'roles' as const }
        : { meshes, pp: stages }),
      ...(spMethod ? { spMethod } : {}),
      initRandom: true,
      ...dispatch,
      ...request,
      training: { ...TRAINING, ...training, microBatches },
      ...(kind ? { schedule: kind } : {}),
      ...(chunks > 1 ? { virtualStages: chunks } : {}),
      ...(zero === undefined ? {} : { zero }),
      ...asked,
      ...(recompute === undefined ? {} : { recompute }),
      ...(memory === undefined ? {} : { memory }),
    });
    const { imported, program, planned } = await openCompiled(directory);
    const { lowered, schedule } = lowerPlan(plan, planned.graph);
    const pairs = program.state ?? [];
    const inputs = randomInputs(imported.graph, 1, labelBounds(imported.training));
    const run = await counted(program, directory, inputs, steps);
    const stateOf = ({ tensors }: StepResult) =>
      Object.fromEntries(
        pairs.flatMap(({ from, to }) => (tensors[from] ? inParts(imported.graph, to, tensors[from]) : [])),
      );
    const perStage = run.ranks.length / stages;
    const fullest = (of: (rank: (typeof run.ranks)[number]) => number) =>
      Array.from({ length: stages }, (_, stage) =>
        Math.max(...run.ranks.slice(stage * perStage, (stage + 1) * perStage).map(of)),
      );
    const peaks = { predicted: plan.predicted.peakBytes, counted: fullest(({ peakBytes }) => peakBytes) };
    const sent = {
      predicted: lowered.map(({ sharded }) => sentBytes(sharded)),
      counted: fullest(({ bytesCommunicated }) => bytesCommunicated),
    };
    const outside = {
      predicted: plan.predicted.outside ?? [],
      counted: run.ranks.flatMap((rank) => rank.outside ?? []),
    };
    const sentByRank = run.ranks.map(({ bytesCommunicated }) => bytesCommunicated);
    const freed = effect?.freedBytes ?? [];
    return {
      losses: run.losses,
      state: stateOf(run.last),
      first: { losses: run.losses.slice(0, 1), state: stateOf(run.first) },
      program,
      peaks,
      sentByRank,
      permutesByRank: run.ranks.map(({ byKind }) => byKind['permute']?.count ?? 0),
      peakByRank: run.ranks.map(({ peakBytes }) => peakBytes),
      schedule,
      freed,
      outside,
      sent,
      plan,
      lowered,
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

interface Counted {
  readonly losses: readonly number[];
  readonly first: StepResult;
  readonly last: StepResult;
  /** In a step, on average. */
  readonly ranks: readonly RankStatistics[];
}

/** Runs steps on the same inputs; reads the state after the first and after the last. */
async function counted(program: Program, directory: string, inputs: UnshardedTensors, steps: number): Promise<Counted> {
  const collect = [...new Set((program.state ?? []).map(({ from }) => from))];
  const numbers = program.outputs.filter(({ shape }) => shape.every((size) => size === 1)).map(({ name }) => name);
  const results: StepResult[] = [];
  const session = await startSession(program, await programFolder(directory), {});
  try {
    await eachStep(session, {
      first: 0,
      last: steps,
      feed: (step) => (step === 0 ? inputs : null),
      options: (step) => ({ outputs: numbers, collect: step === 0 || step === steps - 1 ? collect : [] }),
      after: (_, result) => void results.push(result),
    });
  } finally {
    await session.close();
  }
  const perStep = results.map(({ ranks }) => ranks);
  const sums = perStep.reduce((sum, own) => sum.map((rank, at) => sumOf(rank, own[at] as RankStatistics)));
  return {
    losses: results.flatMap(({ outputs }) => Object.values(outputs).slice(0, 1).map(scalarIn)),
    first: results[0] as StepResult,
    last: results.at(-1) as StepResult,
    ranks: sums.map((sum) => meanStatistics(sum, steps)),
  };
}

/** State of stacked weights under the names that each of their rows has in the file. */
function inParts(
  { initial }: Graph,
  name: string,
  { dtype, shape, data }: ConstantTensor,
): readonly (readonly [string, ConstantTensor])[] {
  const [weight, { file } = {}] =
    [...(initial ?? [])].find(([each, { file }]) => file?.parts && (name === each || name.startsWith(`${each}/`))) ??
    [];
  if (!weight || !file?.parts || shape[0] !== file.parts.length) return [[name, { dtype, shape, data }]];
  const length = data.byteLength / file.parts.length;
  return file.parts.map((part, row) => [
    `${part.weight}${name.slice(weight.length)}`,
    { dtype, shape: shape.slice(1), data: data.slice(row * length, (row + 1) * length) },
  ]);
}

/**
 * Bytes that a rank of a stage sends in a step; for a reduce or broadcast, those that pass through it.
 * @param behind axes on which it is not the first rank
 */
export function sentBytes(stage: ShardedGraph, behind: ReadonlySet<string> = new Set()): number {
  const holds = (name: string) => !(stage.tensors.get(name)?.first ?? []).some((axis) => behind.has(axis));
  const runsOf = runsInStep(stage);
  const collectives = stage.nodes.reduce((sum, node) => {
    if (node.kind !== 'communicate' || !(holds(node.input) || holds(node.output))) return sum;
    const isStar = node.collective.kind === 'reduce' || node.collective.kind === 'broadcast';
    const isServed = isStar && node.axes.some((axis) => behind.has(axis));
    const bytes = isServed
      ? localBytes(stage.tensors.get(node.input) as ShardedTensor)
      : communicatedBytes(node, stage);
    return sum + runsOf(node) * bytes;
  }, 0);
  const sends = (stage.pipeline?.sends ?? []).reduce((sum, { tensor, when }) => {
    const type = holds(tensor) ? stage.tensors.get(tensor) : undefined;
    return sum + (when === 'micro' ? (stage.microBatches?.count ?? 1) : 1) * (type ? localBytes(type) : 0);
  }, 0);
  return collectives + sends;
}
