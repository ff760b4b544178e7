/**
 * @file `npm run bench:local`: step times predicted with `--cluster local` against measured ones, over plans of several models
 * for inference and training (`local-plans.ts`).
 *
 *     -- --profile FILE    a profile (`autopar profile -o`); else a quick one is made
 *     -- --models a,b      only these; --rounds N --steps N: how long each is measured
 *     -- --folder F        compiles into F, and reuses plans compiled there: after a run with --rounds 0, only steps remain
 *     -- --measured FILE   predicts again, against the measurements that an earlier run wrote with --json
 *     -- --json            everything for machines, with the parts of predictions and of measured steps
 *
 * Printed per plan: the predicted and the fastest measured step. Then the mean absolute percentage error, and Kendall's tau: how
 * often the prediction finds the faster of two plans of a model (aim: 0.8). Measurement cannot rank two plans that differ by less
 * than the rounds of one plan do: a second tau leaves such pairs out. Regret: how much slower the plan predicted fastest is than
 * the fastest one.
 */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { compile } from '../src/api/compile.js';
import { randomInputs } from '../src/api/execution/inputs.js';
import { profile } from '../src/api/profile.js';
import { openCompiled } from '../src/api/verify.js';
import type { ConstantTensor } from '../src/ir/graph.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';
import { type RunResult, runProgram } from '../src/runtime/run-program.js';
import { readPlan } from '../src/strategy/plan-json.js';
import { type BenchModel, MODELS, PLANS } from './local-plans.js';

interface Result {
  readonly model: string;
  readonly plan: string;
  readonly predictedSeconds: number;
  readonly parts: Readonly<Record<string, number>>;
  /** The fastest step of each round. */
  readonly roundSeconds: readonly number[];
  /** The fastest step of all rounds. */
  readonly measuredSeconds: number;
  /** Seconds of a step by activity, mean over ranks, in the fastest round. */
  readonly spent: Readonly<Record<string, number>>;
}

interface Planned {
  readonly model: BenchModel;
  readonly plan: string;
  readonly directory: string;
  readonly predicted: { readonly stepSeconds: number; readonly parts: Readonly<Record<string, number>> };
  readonly inputs: Readonly<Record<string, ConstantTensor>>;
}

const { values } = parseArgs({
  options: {
    profile: { type: 'string' },
    models: { type: 'string' },
    rounds: { type: 'string', default: '3' },
    steps: { type: 'string', default: '30' },
    folder: { type: 'string' },
    measured: { type: 'string' },
    json: { type: 'boolean', default: false },
  },
});
const [rounds, steps] = [Number(values.rounds), Number(values.steps)];
const models = MODELS.filter(({ id }) => values.models === undefined || values.models.split(',').includes(id));
if (models.length === 0 || !(rounds >= 0) || !(steps >= 1)) {
  console.error(`--models of ${MODELS.map(({ id }) => id).join(',')}, --steps of at least 1`);
  process.exit(2);
}

const folder = values.folder ?? mkdtempSync(join(tmpdir(), 'autopar-bench-'));
mkdirSync(folder, { recursive: true });
try {
  const file = values.profile ?? join(folder, 'profile.json');
  if (values.profile === undefined) await profile({ output: file, quick: true });
  const plans = await planAll(file);
  const results = values.measured === undefined ? await measured(plans) : remembered(plans, values.measured);
  if (results.length === 0) console.log(`${plans.length} plans in ${folder}`);
  else if (values.json)
    console.log(JSON.stringify({ schema: 'autopar-bench-local-v1', rounds, steps, results }, null, 1));
  else print(results);
} finally {
  if (values.folder === undefined) rmSync(folder, { recursive: true, force: true });
}

async function planAll(cluster: string): Promise<readonly Planned[]> {
  const planned: Planned[] = [];
  for (const model of models) {
    const file = join(folder, `${model.id}.onnx`);
    writeFileSync(file, writeOnnx(model.build()));
    for (const degrees of PLANS) {
      const { dp, tp } = degrees;
      const directory = join(folder, `${model.id}-dp${dp}-tp${tp}.autopar`);
      const training = model.training ? { training: model.training } : {};
      if (!existsSync(directory))
        await compile({
          ...{ model: file, output: directory, cluster, devices: dp * tp, degrees, axes: 'roles' },
          ...training,
        });
      const { imported } = await openCompiled(directory);
      const inputs = randomInputs(imported.graph, 0);
      const { predicted } = await readPlan(join(directory, 'plan.json'));
      planned.push({ model, plan: `dp ${dp} · tp ${tp}`, directory, predicted, inputs });
    }
  }
  return planned;
}

/** Runs the plans in turns, so that other work of the machine affects all alike. */
async function measured(plans: readonly Planned[]): Promise<readonly Result[]> {
  if (rounds === 0) return [];
  const runs = plans.map((): RunResult[] => []);
  for (let round = 0; round < rounds; round++) {
    console.error(`round ${round + 1} of ${rounds}, ${plans.length} plans`);
    for (const [index, { directory, inputs }] of plans.entries())
      runs[index]?.push(await runProgram(directory, inputs, { steps, warmup: 2 }));
  }
  return plans.map((plan, index) => resultOf(plan, runs[index] as readonly RunResult[]));
}

function resultOf({ model, plan, predicted }: Planned, runs: readonly RunResult[]): Result {
  const roundSeconds = runs.map(({ stepSeconds }) => Math.min(...stepSeconds));
  const measuredSeconds = Math.min(...roundSeconds);
  const { ranks } = runs[roundSeconds.indexOf(measuredSeconds)] as RunResult;
  const mean = (pick: (rank: (typeof ranks)[number]) => number) =>
    ranks.reduce((sum, rank) => sum + pick(rank), 0) / ranks.length;
  return {
    model: model.title,
    plan,
    predictedSeconds: predicted.stepSeconds,
    parts: predicted.parts,
    roundSeconds,
    measuredSeconds,
    spent: {
      compute: mean(({ computeSeconds }) => computeSeconds),
      communicate: mean(({ communicateSeconds }) => communicateSeconds),
      wait: mean(({ waitSeconds }) => waitSeconds),
      feed: mean(({ feedSeconds }) => feedSeconds),
    },
  };
}

/** Measurements of an earlier run with the predictions of this one. */
function remembered(plans: readonly Planned[], file: string): readonly Result[] {
  const { results } = JSON.parse(readFileSync(file, 'utf8')) as { readonly results: readonly Result[] };
  return plans.flatMap(({ model, plan, predicted }) => {
    const found = results.find((result) => result.model === model.title && result.plan === plan);
    return found ? [{ ...found, predictedSeconds: predicted.stepSeconds, parts: predicted.parts }] : [];
  });
}

function print(results: readonly Result[]): void {
  console.log(`${availableParallelism()} cores, load ${loadavg()[0]?.toFixed(1)}, Node ${process.version}`);
  for (const { title } of models) {
    console.log(`\n${title}`);
    for (const { model, plan, predictedSeconds, measuredSeconds, roundSeconds } of results) {
      if (model !== title) continue;
      const error = `${(100 * (predictedSeconds / measuredSeconds - 1)).toFixed(0)} %`.padStart(6);
      const spread = `${((Math.max(...roundSeconds) / measuredSeconds - 1) * 100).toFixed(0)} %`.padStart(5);
      console.log(
        `  ${plan}  predicted ${milliseconds(predictedSeconds)} ms  measured ${milliseconds(measuredSeconds)} ms ` +
          `${error}  rounds differ by ${spread}`,
      );
    }
  }
  console.log();
  for (const { title } of models)
    summary(
      title,
      results.filter(({ model }) => model === title),
    );
  summary('all', results);
}

function summary(name: string, results: readonly Result[]): void {
  const errors = results.map((result) => Math.abs(result.predictedSeconds / result.measuredSeconds - 1));
  const mean = errors.reduce((sum, error) => sum + error, 0) / errors.length;
  const pairs = pairsOf(results);
  const told = pairs.filter(([a, b]) => areApart(a, b));
  console.log(
    `${name.padEnd(46)} ${String(results.length).padStart(2)} plans  MAPE ${(100 * mean).toFixed(1).padStart(5)} %` +
      `  tau ${tau(pairs)}  of the ${told.length} pairs of ${pairs.length} beyond noise ${tau(told)}  regret ` +
      `${(100 * regret(results)).toFixed(1).padStart(4)} %`,
  );
}

/** How much slower the plan predicted fastest is than the fastest one; the mean over models. */
function regret(results: readonly Result[]): number {
  const names = [...new Set(results.map(({ model }) => model))];
  const each = names.map((name) => {
    const own = results.filter(({ model }) => model === name);
    const chosen = own.reduce((best, result) => (result.predictedSeconds < best.predictedSeconds ? result : best));
    return chosen.measuredSeconds / Math.min(...own.map(({ measuredSeconds }) => measuredSeconds)) - 1;
  });
  return each.reduce((sum, value) => sum + value, 0) / each.length;
}

type Pair = readonly [Result, Result];

/** Pairs of plans of one model: a user never chooses between two models. */
function pairsOf(results: readonly Result[]): readonly Pair[] {
  return results.flatMap((a, index) =>
    results.slice(index + 1).flatMap((b): readonly Pair[] => (a.model === b.model ? [[a, b]] : [])),
  );
}

/** Whether all rounds of one plan were faster than all of the other. */
function areApart({ roundSeconds: a }: Result, { roundSeconds: b }: Result): boolean {
  return Math.max(...a) < Math.min(...b) || Math.max(...b) < Math.min(...a);
}

/** Kendall's tau: concordant less discordant pairs, over all pairs. */
function tau(pairs: readonly Pair[]): string {
  const sum = pairs.reduce(
    (total, [a, b]) =>
      total + Math.sign(a.predictedSeconds - b.predictedSeconds) * Math.sign(a.measuredSeconds - b.measuredSeconds),
    0,
  );
  return pairs.length === 0 ? '   –' : (sum / pairs.length).toFixed(2).padStart(5);
}

function milliseconds(seconds: number): string {
  return (seconds * 1000).toFixed(2).padStart(7);
}
