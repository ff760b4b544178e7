/**
 * @file `node dist/bench/published/fit-step.js FILES.csv… [--rounds N] [--most N] [--rows] [--hold-out [--only-families
 * NAME,…]]`: fits the constants of training-step prediction to published runs (`robust-fit.ts`), each family by its weight;
 * prints them, and with --hold-out the error on each family when it is left out of the fit. Half a minute for each fit.
 */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import type { StepConstants } from '../../src/cost-model/step/constants.js';
import { priceStep } from '../../src/cost-model/step/step-price.js';
import type { ModelWork } from '../../src/cost-model/step/work.js';
import { groupBy } from '../../src/ir/group-by.js';
import { readCsv } from './csv.js';
import { PublishedPredictor } from './predictor.js';
import { robustFit } from './robust-fit.js';
import { type PublishedRun, publishedRun } from './run.js';

interface Sample {
  readonly run: PublishedRun;
  readonly work: ModelWork;
  readonly seconds: number;
}

type Tree = { readonly [name: string]: number | Tree };

/** Families with a claim in docs/reference/accuracy.md count more; a log of tuning attempts counts less. */
const WEIGHTS: Readonly<Record<string, number>> = {
  'megatron_sc21_table1.csv': 2.5,
  'megatron_sc21_table2_zero3_vs_ptd.csv': 1.5,
  'korthikanti_table5.csv': 2.5,
  'mlperf_llm.csv': 4,
  'vtrain_multi.csv': 4,
  'vtrain_single.csv': 4,
  'alephalpha_layouts.csv': 4,
  'mosaic_llm_foundry.csv': 4,
  'megatron_bridge.csv': 4,
  'bigscience_a100.csv': 0.5,
};

/** In no fit: most of these runs wait for the host, for which the catalogue has the figures of one paper. */
const UNSEEN: ReadonlySet<string> = new Set(['ml_engineering_h200_b200.csv']);

const ROUNDS = Number(argument('--rounds') ?? 10);
const MOST_PER_FAMILY = Number(argument('--most') ?? 150);
const ONLY = argument('--only')?.split(',');
/** Counted, or known from measurements of single operations: not fitted. */
const KNOWN: ReadonlySet<string> = new Set([
  'software.megatron-core.hostSeconds',
  'software.eager.hostSeconds',
  'software.compiled.hostSeconds',
  'attentionHalf',
  'attentionShare',
  'attentionEarlyShare',
  'attentionNativeShare',
  'scoreBytesForward',
  'scoreBytesBackward',
  'plainNormPasses',
  'castBytes',
  'contention',
  'optimizerBytes',
  'hostShare',
  'jitter',
]);

/** Small penalty for moving a constant far from its expected value, so that none takes the place of another. */
const STIFFNESS = 0.002;

const files = process.argv.slice(2).filter((text) => text.endsWith('.csv') && !UNSEEN.has(basename(text)));
const predictor = new PublishedPredictor();
const samples = (await Promise.all(files.map(samplesOf))).flat();
const families = groupBy(samples, ({ run }) => run.file);
/** Constants expected before any measurement of a training step: data sheets, microbenchmarks, round numbers. */
const EXPECTED: StepConstants = {
  software: {
    megatron: { hostSeconds: 5e-5, passes: 1 },
    'megatron-core': { hostSeconds: 1e-5, passes: 1 },
    eager: { hostSeconds: 1.2e-5, passes: 2 },
    compiled: { hostSeconds: 4e-6, passes: 1.5 },
  },
  hostPower: 3,
  exchangeSeconds: 5e-5,
  plainExchange: 1.3,
  expertSeconds: 5e-5,
  stepSeconds: 0.005,
  sustained: { ampere: 0.9, hopper: 0.8, blackwell: 0.75, blackwellUltra: 0.75 },
  attentionShare: 0.73,
  attentionEarlyShare: 0.5,
  attentionHalf: 800,
  attentionPortableShare: 0.3,
  attentionNativeShare: 0.65,
  attentionNativeHalf: 1500,
  scoreBytesForward: 10,
  scoreBytesBackward: 21,
  plainNormPasses: 17,
  castBytes: 4,
  fp4Gain: 1.7,
  ringHopSeconds: 3e-6,
  hiddenTensor: 0.8,
  hiddenExperts: 0.8,
  hiddenData: 0.6,
  contention: 0.15,
  optimizerBytes: 32,
  hostShare: 0.5,
  jitter: 0.002,
};

const allPaths = pathsOf(EXPECTED as unknown as Tree);
const paths = allPaths.filter((path) => (!ONLY || ONLY.some((part) => path.includes(part))) && !KNOWN.has(path));

const fitted = fitTo([...families.values()]);
console.log(JSON.stringify(fitted, null, 2));
report('all families in the fit', fitted);
if (process.argv.includes('--hold-out')) {
  const asked = argument('--only-families')?.split(',');
  for (const [name, own] of families) {
    if (asked && !asked.includes(basename(name, '.csv'))) continue;
    const without = fitTo([...families].filter(([other]) => other !== name).map(([, list]) => list));
    console.log(`${name.padEnd(42)} left out: ${(100 * deviation(own, without)).toFixed(1)} %`);
    if (process.argv.includes('--constants')) console.log(JSON.stringify(without));
  }
}

async function samplesOf(file: string): Promise<readonly Sample[]> {
  const runs = readCsv(readFileSync(file, 'utf8'))
    .map((row) => publishedRun(row, basename(file)))
    .filter((run): run is PublishedRun => typeof run !== 'string' && run.seconds !== null && run.formatStated);
  const step = Math.max(1, Math.floor(runs.length / MOST_PER_FAMILY));
  const taken = runs.filter((_, index) => index % step === 0);
  return Promise.all(taken.map(async (run) => ({ run, work: await predictor.work(run), seconds: run.seconds ?? 0 })));
}

/** Mean |predicted / measured − 1|. */
function deviation(list: readonly Sample[], constants: StepConstants): number {
  const sum = list.reduce((total, { run, work, seconds }) => {
    const predicted = priceStep(work, run.configuration, run.cluster, constants).stepSeconds;
    return total + Math.abs(predicted / seconds - 1);
  }, 0);
  return sum / list.length;
}

function fitTo(lists: readonly (readonly Sample[])[], rounds = ROUNDS): StepConstants {
  const weights = lists.map((list) => WEIGHTS[list[0]?.run.file ?? ''] ?? Math.min(2, Math.sqrt(list.length / 4)));
  const all = weights.reduce((sum, weight) => sum + weight, 0);
  const constantsOf = (values: readonly number[]) =>
    paths.reduce((constants, path, index) => withValue(constants, path, values[index] ?? 0), EXPECTED);
  const flat = lists.flat();
  const residuals = (values: readonly number[]) => {
    const constants = constantsOf(values);
    return Float64Array.from(flat, ({ run, work, seconds }) =>
      Math.log(priceStep(work, run.configuration, run.cluster, constants).stepSeconds / seconds),
    );
  };
  const { values, loss } = robustFit(
    paths.map((path) => ({ expected: valueAt(EXPECTED, path), most: isShare(path) ? 0.99 : Number.POSITIVE_INFINITY })),
    residuals,
    lists.flatMap((list, index) => list.map(() => (weights[index] ?? 0) / all / list.length)),
    STIFFNESS,
    rounds,
  );
  console.error(`loss ${loss.toFixed(4)}`);
  return constantsOf(values.map((value) => Number(value.toPrecision(3))));
}

function valueAt(constants: StepConstants, path: string): number {
  return path
    .split('.')
    .reduce<number | Tree>(
      (tree, name) => (tree as Tree)[name] as number | Tree,
      constants as unknown as Tree,
    ) as number;
}

function report(title: string, constants: StepConstants): void {
  console.log(title);
  for (const [name, list] of families) {
    console.log(
      `${name.padEnd(42)} ${String(list.length).padStart(4)}  ${(100 * deviation(list, constants)).toFixed(1)} %`,
    );
    if (!process.argv.includes('--rows')) continue;
    for (const { run, work, seconds } of list) {
      const { stepSeconds, parts } = priceStep(work, run.configuration, run.cluster, constants);
      const { tp, pp, dp, sp, ep } = run.configuration.degrees;
      const shares = Object.entries(parts).flatMap(([part, value]) =>
        value / stepSeconds > 0.005 ? [`${part} ${((100 * value) / stepSeconds).toFixed(0)}`] : [],
      );
      const { configuration, sizes } = run;
      console.log(
        `  ${run.row['row_id']} ${run.row['gpu_type']?.slice(0, 6)} ${run.row['model']} s${sizes.sequence} ` +
          `tp${tp} pp${pp} v${configuration.virtualStages} dp${dp} cp${sp} ep${ep} mb${configuration.microBatch} ` +
          `gb${configuration.globalBatch} ${configuration.recompute} ${configuration.precision} ` +
          `${configuration.attention} z${configuration.zero} ${run.row['attn']?.slice(0, 20)}: ` +
          `${seconds.toFixed(3)} ${stepSeconds.toFixed(3)} ${(100 * (stepSeconds / seconds - 1)).toFixed(1)} % | ` +
          `${shares.join(' ')}`,
      );
    }
  }
}

/** Dotted paths of all numbers in a record. */
function pathsOf(tree: Tree, prefix = ''): readonly string[] {
  return Object.entries(tree).flatMap(([name, value]) =>
    typeof value === 'number' ? [prefix + name] : pathsOf(value, `${prefix}${name}.`),
  );
}

/** Shares stay below one. */
function isShare(path: string): boolean {
  return /Share|hidden|sustained/.test(path);
}

function withValue(constants: StepConstants, path: string, to: number): StepConstants {
  const change = (tree: Tree, [name = '', ...rest]: readonly string[]): Tree => {
    const value = tree[name];
    return { ...tree, [name]: typeof value === 'number' ? to : change(value as Tree, rest) };
  };
  return change(constants as unknown as Tree, path.split('.')) as unknown as StepConstants;
}

function argument(name: string): string | undefined {
  const at = process.argv.indexOf(name);
  return at < 0 ? undefined : process.argv[at + 1];
}
