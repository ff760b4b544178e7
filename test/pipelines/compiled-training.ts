/**
 * @file A model trained as a pipeline on ranks of this machine, compiled as a user would; and the same on one rank.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compile, type Training } from '../../src/api/index.js';
import { randomInputs } from '../../src/api/inputs.js';
import { labelBounds } from '../../src/api/labels.js';
import { openCompiled } from '../../src/api/verify.js';
import type { Program } from '../../src/program/program.js';
import { runProgram } from '../../src/runtime/run-program.js';
import type { ScheduleKind } from '../../src/schedule/schedule.js';
import type { Plan } from '../../src/strategy/plan.js';
import type { Left } from './difference.js';
import { type ModelName, writeModel } from './models.js';

/** What a pipeline is to be, or the mesh of one stage. */
export interface Pipeline {
  /** Left out for one stage. */
  readonly kind?: ScheduleKind;
  readonly stages: number;
  readonly chunks?: number;
  readonly dp?: number;
  readonly tp?: number;
  /** As `--recompute` has it. */
  readonly recompute?: string;
  /** Bytes that a rank may hold. */
  readonly memory?: number;
}

/** What is trained. */
export interface Task {
  readonly model: ModelName;
  readonly microBatches: number;
  readonly training?: Partial<Training>;
}

/** What a run leaves. */
export interface Trained extends Left {
  readonly program: Program;
  readonly plan: Plan;
  /** Bytes of the fullest moment, by stage. */
  readonly peaks: { readonly predicted: readonly number[]; readonly counted: readonly number[] };
  /** Bytes that recompute is predicted to free of them, by stage; none where nothing recomputes. */
  readonly freed: readonly number[];
}

/** Samples of a step: enough for 8 micro-batches on two replicas. */
const BATCH = 16;

/**
 * Clipping is active from the first step on. Momentum and weights are linear in gradients, so that they tell an error of one as
 * it is, and of the norm; Adam would make a step of full size of the rounding of a gradient that is zero.
 */
const TRAINING: Training = {
  loss: { kind: 'mse' },
  optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.1, clipNorm: 0.05 },
};

/** Compiles and runs `steps` steps on one rank, or as a pipeline. */
export async function train(
  { model, microBatches, training = {} }: Task,
  steps: number,
  pipeline?: Pipeline,
): Promise<Trained> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    const file = join(folder, `${model}.onnx`);
    const directory = join(folder, 'out');
    writeModel(model, file);
    const { kind, stages = 1, chunks = 1, dp = 1, tp = 1, recompute, memory } = pipeline ?? {};
    const { plan, recompute: effect } = await compile({
      model: file,
      output: directory,
      globalBatch: BATCH,
      devices: stages * dp * tp,
      ...{ pp: stages, dp, tp },
      training: { ...TRAINING, ...training, microBatches },
      ...(kind ? { schedule: kind } : {}),
      ...(chunks > 1 ? { virtualStages: chunks } : {}),
      ...(recompute === undefined ? {} : { recompute }),
      ...(memory === undefined ? {} : { memory }),
    });
    const { imported, program } = await openCompiled(directory);
    const pairs = program.state ?? [];
    const inputs = randomInputs(imported.graph, 1, labelBounds(imported.training));
    const run = await runProgram(directory, inputs, { steps, collect: [...new Set(pairs.map(({ from }) => from))] });
    const [losses = []] = Object.values(run.history);
    const state = pairs.flatMap(({ from, to }) => (run.tensors[from] ? [[to, run.tensors[from]] as const] : []));
    const perStage = run.ranks.length / stages;
    const counted = Array.from({ length: stages }, (_, stage) =>
      Math.max(...run.ranks.slice(stage * perStage, (stage + 1) * perStage).map(({ peakBytes }) => peakBytes)),
    );
    const peaks = { predicted: plan.predicted.peakBytes, counted };
    return { losses, state: Object.fromEntries(state), program, plan, peaks, freed: effect?.freedBytes ?? [] };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
