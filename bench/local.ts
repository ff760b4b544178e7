/**
 * @file `npm run bench:local`: step times predicted with `--cluster local` against measured ones, over plans of three models
 * for inference and training. `-- PROFILE.json` takes a profile (`autopar profile -o`); else a quick one is made.
 *
 * Printed per plan: predicted, the fastest measured step, and the processor time of a step for each core that has ranks, which tells
 * what a step would take where nothing else runs and nobody waits. Then the mean absolute percentage error, and Kendall's tau over
 * all plans and within each model: how often the prediction tells the faster of two plans (aim: 0.8).
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { llama } from '../models/llama.js';
import { mlp } from '../models/mlp.js';
import { compile } from '../src/api/compile.js';
import { randomInputs } from '../src/api/inputs.js';
import { profile } from '../src/api/profile.js';
import type { Training } from '../src/api/training.js';
import { openCompiled } from '../src/api/verify.js';
import type { ConstantTensor, Graph } from '../src/ir/graph.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';
import { runProgram } from '../src/runtime/run-program.js';

const ROUNDS = 6;
const STEPS = 20;

interface Model {
  readonly name: string;
  readonly build: () => Graph;
  readonly training?: Training;
}

const SQUARES: Training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 1e-3 } };

const MODELS: readonly Model[] = [
  {
    name: 'mlp 4 × 1024, batch 256',
    build: () => mlp('mlp', { batch: 256, widths: [1024, 1024, 1024, 1024, 1024] }, 1),
  },
  {
    name: 'llama 2 layers × 256, 8 × 64 tokens',
    build: () =>
      llama(
        'llama',
        { batch: 8, sequence: 64, layers: 2, width: 256, heads: 8, keyHeads: 4, feedForward: 688, vocabulary: 1024 },
        1,
      ),
  },
  {
    name: 'mlp 4 × 512, batch 128, training',
    build: () => mlp('mlp', { batch: 128, widths: [512, 512, 512, 512, 512] }, 1),
    training: SQUARES,
  },
];

const PLANS = [
  { ranks: 1, degrees: { dp: 1, tp: 1 } },
  { ranks: 2, degrees: { dp: 2, tp: 1 } },
  { ranks: 2, degrees: { dp: 1, tp: 2 } },
  { ranks: 4, degrees: { dp: 4, tp: 1 } },
  { ranks: 4, degrees: { dp: 2, tp: 2 } },
  { ranks: 4, degrees: { dp: 1, tp: 4 } },
] as const;

interface Result {
  readonly model: string;
  readonly predicted: number;
  readonly measured: number;
}

interface Planned {
  readonly model: string;
  readonly title: string;
  readonly directory: string;
  readonly predicted: number;
  readonly inputs: Readonly<Record<string, ConstantTensor>>;
  readonly ranks: number;
  /** Seconds of every step so far. */
  readonly seconds: number[];
  /** Of every round, the processor's seconds in a step for each core that its ranks have. */
  readonly processor: number[];
}

const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
try {
  const file = process.argv[2] ?? join(folder, 'profile.json');
  if (process.argv[2] === undefined) await profile({ output: file, quick: true });
  const plans = await planAll(file);
  // In turn: what else the machine does then touches all plans alike.
  for (let round = 0; round < ROUNDS; round++) {
    for (const { directory, inputs, seconds, processor, ranks } of plans) {
      const { stepSeconds, processorSeconds } = await runProgram(directory, inputs, { steps: STEPS, warmup: 2 });
      seconds.push(...stepSeconds);
      processor.push(processorSeconds / Math.min(ranks, availableParallelism()));
    }
  }
  console.log(`${availableParallelism()} cores, load ${loadavg()[0]?.toFixed(1)}, Node ${process.version}`);
  console.log(`fastest of ${ROUNDS} × ${STEPS} steps, plans in turn`);
  const results = plans.map(({ seconds, processor, ...plan }) => ({
    ...plan,
    measured: Math.min(...seconds),
    processor: Math.min(...processor),
  }));
  for (const { name } of MODELS) {
    console.log(`\n${name}`);
    for (const { model, title, predicted, measured, processor } of results) {
      if (model !== name) continue;
      const against = (seconds: number) =>
        `${milliseconds(seconds)} ms ${`${(100 * (predicted / seconds - 1)).toFixed(0)} %`.padStart(6)}`;
      console.log(
        `  ${title}  predicted ${milliseconds(predicted)} ms  measured ${against(measured)}  processor ${against(processor)}`,
      );
    }
  }
  for (const [what, own] of [
    ['fastest step', results],
    ['processor time per core', results.map((result) => ({ ...result, measured: result.processor }))],
  ] as const) {
    console.log(`\nagainst the ${what}`);
    for (const { name } of MODELS)
      summary(
        name,
        own.filter(({ model }) => model === name),
      );
    summary('all', own);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

async function planAll(cluster: string): Promise<readonly Planned[]> {
  const planned: Planned[] = [];
  for (const { name, build, training } of MODELS) {
    const model = join(folder, 'model.onnx');
    writeFileSync(model, writeOnnx(build()));
    for (const { ranks, degrees } of PLANS) {
      const directory = join(folder, `${planned.length}`);
      const given = { model, output: directory, cluster, devices: ranks, degrees };
      const { plan } = await compile({ ...given, ...(training ? { training } : {}) });
      const { imported } = await openCompiled(directory);
      planned.push({
        model: name,
        title: `dp ${degrees.dp} · tp ${degrees.tp}`,
        directory,
        predicted: plan.predicted.stepSeconds,
        inputs: randomInputs(imported.graph, 0),
        ranks,
        seconds: [],
        processor: [],
      });
    }
  }
  return planned;
}

function summary(name: string, results: readonly Result[]): void {
  const errors = results.map(({ predicted, measured }) => Math.abs(predicted / measured - 1));
  const mean = errors.reduce((sum, error) => sum + error, 0) / errors.length;
  console.log(
    `${name.padEnd(36)} ${results.length} plans  MAPE ${(100 * mean).toFixed(1)} %  tau ${tau(results).toFixed(2)}`,
  );
}

/** Kendall's tau: concordant less discordant pairs, over all pairs. */
function tau(results: readonly Result[]): number {
  let sum = 0;
  let pairs = 0;
  for (const [index, a] of results.entries()) {
    for (const b of results.slice(index + 1)) {
      sum += Math.sign(a.predicted - b.predicted) * Math.sign(a.measured - b.measured);
      pairs++;
    }
  }
  return sum / pairs;
}

function milliseconds(seconds: number): string {
  return (seconds * 1000).toFixed(2).padStart(7);
}
