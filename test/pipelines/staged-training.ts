/**
 * @file A model trained as a pipeline on ranks of this machine: cut into stages of about as many forward operators each, planned
 * on a stage's mesh, lowered stage by stage, run under a schedule; and the same on one rank.
 */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { importModel } from '../../src/api/models/import.js';
import { type Training, trainedModel } from '../../src/api/models/training.js';
import { emitProgram } from '../../src/codegen/emit.js';
import { type GeneratedProgram, programOf } from '../../src/codegen/program-of.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { stepPrice } from '../../src/cost-model/price.js';
import { reshardBound } from '../../src/cost-model/reshard-bound.js';
import { operatorsOfKind, repeatedLayers } from '../../src/ir/autodiff/recompute-kinds.js';
import type { RecomputeKind } from '../../src/ir/autodiff/recompute-names.js';
import type { Graph } from '../../src/ir/graph.js';
import { checkStages } from '../../src/partition/check.js';
import { accumulatedApart, type StagePlace, withStageClones } from '../../src/partition/cut-stages.js';
import { type LoweredStage, lowerStages } from '../../src/partition/lower-stages.js';
import { actionsOf } from '../../src/partition/placed-actions.js';
import { rankMemory } from '../../src/partition/rank-memory.js';
import type { Program } from '../../src/program/program.js';
import type { ConstantTensor } from '../../src/program/values.js';
import { type RunOptions, runProgram } from '../../src/runtime/run-program.js';
import { makeSchedule } from '../../src/schedule/make-schedule.js';
import { placeOfPart } from '../../src/schedule/parts.js';
import { type Schedule, type ScheduleKind, splitsBackward } from '../../src/schedule/schedule.js';
import { meshSizes, readMeshes } from '../../src/search/pipeline/mesh-layout.js';
import { plan } from '../../src/search/plan.js';
import { makeResharder } from '../../src/sharding-propagation/resharding.js';
import { stageMeshes } from '../../src/sharding-propagation/stage-meshes.js';
import type { Left } from './difference.js';

/** A pipeline to train. */
export interface Pipeline {
  readonly kind: ScheduleKind;
  readonly stages: number;
  readonly microBatches: number;
  readonly chunks?: number;
  readonly dp?: number;
  readonly tp?: number;
  /** The mesh of each stage, where they differ. */
  readonly meshes?: string;
  /** Recomputation of the repeated layers; in a model without any, of the whole model. */
  readonly recompute?: RecomputeKind;
}

/** Results of a run. */
export interface Trained extends Left {
  readonly program: Program;
  /** Per stage, bytes at the fullest moment of a rank. */
  readonly peaks: { readonly predicted: readonly number[]; readonly counted: readonly number[] };
}

/**
 * Clipping is active from the first step on. Momentum and weights are linear in gradients, so that they show an error of one as
 * it is; Adam would make a step of full size of the rounding of a gradient that is zero.
 */
const TRAINING: Training = {
  loss: { kind: 'cross_entropy' },
  optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.1, clipNorm: 0.5 },
};

/** The training graph of a shipped model, or of a file, and its inputs. */
export async function trainingStep(
  model: string,
  microBatches: number,
  more: Partial<Training> = {},
): Promise<{ readonly graph: Graph; readonly inputs: Readonly<Record<string, ConstantTensor>> }> {
  const file = model.endsWith('.onnx') ? model : `models/${model}.onnx`;
  const at = (globalBatch: number | undefined) => importModel(file, globalBatch === undefined ? {} : { globalBatch });
  const training = { ...TRAINING, ...more, ...(microBatches > 1 ? { microBatches } : {}) };
  const { graph } = await trainedModel(await importModel(file), training, at);
  return { graph, inputs: randomInputs(ofWholeBatch(graph), 1) };
}

/** Runs `steps` steps on one rank, or as a pipeline. */
export async function train(
  { graph, inputs }: Awaited<ReturnType<typeof trainingStep>>,
  steps: number,
  pipeline?: Pipeline,
  options: RunOptions = {},
): Promise<Trained> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    const { lowered, program } = await written(folder, graph, pipeline);
    const pairs = lowered.flatMap(({ sharded }) => sharded.state);
    const run = await runProgram(folder, inputs, { ...options, steps, collect: pairs.map(({ from }) => from) });
    const [losses = []] = Object.values(run.history);
    const state = pairs.flatMap(({ from, to }) => (run.tensors[from] ? [[to, run.tensors[from]] as const] : []));
    const perStage = run.ranks.length / lowered.length;
    const counted = lowered.map((_, stage) =>
      Math.max(...run.ranks.slice(stage * perStage, (stage + 1) * perStage).map(({ peakBytes }) => peakBytes)),
    );
    const actions = actionsOf(lowered, scheduledFor(pipeline));
    const predicted = lowered.map(({ sharded }, stage) => rankMemory(sharded, actions[stage]).peakBytes);
    const peaks = { predicted, counted };
    return { losses, state: Object.fromEntries(state), program, peaks };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Writes the program of a graph, on one rank or as a pipeline, to `program` in a folder. */
export async function written(
  folder: string,
  graph: Graph,
  pipeline?: Pipeline,
  secondsOf?: Parameters<typeof programOf>[3],
): Promise<{ readonly lowered: readonly LoweredStage[]; readonly program: Program }> {
  const { lowered, generated } = await generate(graph, pipeline, secondsOf);
  mkdirSync(join(folder, 'program'), { recursive: true });
  await emitProgram(join(folder, 'program'), generated, lowered);
  return { lowered, program: generated.program };
}

/** The program of a graph, on one rank or as a pipeline. */
export async function generate(
  graph: Graph,
  pipeline?: Pipeline,
  secondsOf?: Parameters<typeof programOf>[3],
): Promise<{ readonly lowered: readonly LoweredStage[]; readonly generated: GeneratedProgram }> {
  const lowered = await lower(graph, pipeline);
  const model = { name: 'trained', fingerprint: '0' };
  return { lowered, generated: programOf(lowered, model, scheduledFor(pipeline), secondsOf) };
}

/** The graph on one rank, or as the pipeline's stages. */
export async function lower(graph: Graph, pipeline?: Pipeline): Promise<readonly LoweredStage[]> {
  const { stages = 1, chunks = 1, kind, dp = 1, tp = 1, meshes, recompute = 'none' } = pipeline ?? {};
  const degrees = meshes === undefined ? [{ dp, tp }] : readMeshes(meshes);
  const [first = { dp, tp }] = degrees;
  const cluster = parseCluster(undefined, (meshes === undefined ? 1 : stages) * first.dp * first.tp);
  const placeOf = evenly(graph, kind ?? '1f1b', stages, chunks);
  const layers = repeatedLayers(graph);
  const operators = operatorsOfKind(graph, recompute, new Set(layers.length === 0 ? [null] : layers));
  const again = { operators, acrossLayers: recompute === 'stage', exceptLast: false };
  const apart = pipeline ? withStageClones(accumulatedApart(graph, placeOf), again, placeOf) : graph;
  const layout = { stages, chunks, splitsBackward: kind !== undefined && splitsBackward(kind), placeOf };
  if (pipeline && meshes) {
    const cut = {
      graph: apart,
      layout: { ...layout, meshes: stageMeshes(meshSizes(degrees)) },
      schedule: makeSchedule({ ...pipeline, virtualStages: chunks }),
    };
    return checked((await plan(apart, cluster, { degrees: first, pipeline: cut })).lowered);
  }
  const { assignment, lowered: whole } = await plan(apart, cluster, { degrees: first });
  if (!pipeline) return whole;
  const price = stepPrice(cluster, assignment.mesh);
  const bound = reshardBound(cluster, assignment.mesh, price);
  const resharder = makeResharder(assignment.mesh, price, bound, { allToAll: true });
  return checked(lowerStages(apart, assignment, resharder, layout));
}

function checked(lowered: readonly LoweredStage[]): readonly LoweredStage[] {
  const findings = checkStages(lowered);
  if (findings.length > 0) throw new Error(`not sound: ${findings[0]?.node} ${findings[0]?.problem}`);
  return lowered;
}

/** Per stage, what its schedule runs in order. */
export function scheduledFor(pipeline?: Pipeline): Schedule['actions'] {
  if (!pipeline) return [];
  const { kind, stages, microBatches, chunks = 1 } = pipeline;
  return makeSchedule({ kind, stages, microBatches, virtualStages: chunks }).actions;
}

/** Forward operators in their order, as many on each part. */
function evenly(graph: Graph, kind: ScheduleKind, stages: number, chunks: number): ReadonlyMap<string, StagePlace> {
  const forward = graph.nodes.filter(({ phase }) => phase === 'forward');
  const parts = stages * chunks;
  return new Map(
    forward.map(({ name }, index) => [name, placeOfPart(kind, Math.floor((index * parts) / forward.length), stages)]),
  );
}

/** The graph's data inputs at the size of the whole batch. */
function ofWholeBatch(graph: Graph): Graph {
  const { microBatches } = graph;
  if (!microBatches) return graph;
  const tensors = new Map(
    [...graph.tensors].map(([name, type]) => {
      const cut = microBatches.cut.get(name);
      const shape = type.shape.map((size, axis) => (axis === cut ? size * microBatches.count : size));
      return [name, { ...type, shape }];
    }),
  );
  return { ...graph, tensors, inputs: graph.inputs.filter((name) => name !== microBatches.index) };
}
