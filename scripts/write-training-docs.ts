/**
 * @file `npm run docs:training`: trains a GPT of a few million parameters on text made here, on one rank and as dp, tp and pp on
 * several, and writes the results into docs/training.md: the losses in one picture, the figures in a table. It takes minutes.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type CompileOptions, compile, plot, train } from '../src/api/index.js';
import { generatedFile } from '../src/api/models/generated.js';
import { profile } from '../src/api/profile.js';
import { readMetrics, type StepMetrics } from '../src/api/training-run/metrics.js';
import { uniform } from '../src/api/verification/numbers.js';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '../..');
const PAGE = join(ROOT, 'docs/training.md');
const PICTURE = 'pictures/losses.svg';
const [BEGIN, END] = ['<!-- npm run docs:training writes this -->\n', '<!-- end -->\n'];

const STEPS = 200;
/** Steps before rounding errors grow: AdamW divides gradients by their size, small ones too. */
const EARLY = 20;
const GPT = 'gpt:layers=4,hidden=256,heads=8,vocab=128,seq=64,batch=8';

const TRAINING: NonNullable<CompileOptions['training']> = {
  loss: { kind: 'cross_entropy' },
  optimizer: { kind: 'adamw', learningRate: 1e-3, schedule: { warmup: 20, shape: 'cosine', total: STEPS } },
};

const PLANS: Readonly<Record<string, Partial<CompileOptions>>> = {
  'one rank': { devices: 1 },
  'dp 4': { devices: 4, degrees: { dp: 4 } },
  'tp 2': { devices: 2, degrees: { dp: 1, tp: 2 } },
  'pp 2, 4 micro-batches': { devices: 2, degrees: { dp: 1, pp: 2 }, training: { ...TRAINING, microBatches: 4 } },
  'dp 2 · tp 2': { devices: 4, degrees: { dp: 2, tp: 2 } },
  'dp 2, ZeRO 3': { devices: 2, degrees: { dp: 2 }, zero: 3 },
  'sp 2': { devices: 2, degrees: { dp: 1, sp: 2 } },
};

const folder = mkdtempSync(join(tmpdir(), 'autopar-docs-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

const text = writtenText(120_000);
const data = join(folder, 'text.bin');
writeFileSync(
  data,
  Uint16Array.from(text, (letter) => letter.charCodeAt(0)),
);
const model = await generatedFile(GPT);
const { file: cluster } = await profile({ output: join(folder, 'profile.json'), quick: true });

interface Ran {
  readonly name: string;
  readonly directory: string;
  readonly predicted: number;
  readonly metrics: readonly StepMetrics[];
}

const runs: Ran[] = [];
for (const [name, options] of Object.entries(PLANS)) {
  const directory = join(folder, String(runs.length));
  const { plan } = await compile({
    model,
    output: directory,
    cluster,
    axes: 'roles',
    training: TRAINING,
    initRandom: true,
    ...options,
  });
  const { metricsFile } = await train({ directory, data: [data], steps: STEPS, seed: 1 });
  runs.push({ name, directory, predicted: plan.predicted.stepSeconds, metrics: await readMetrics(metricsFile) });
  console.log(name);
}
mkdirSync(join(ROOT, 'docs/pictures'), { recursive: true });
await plot({ runs: runs.map(({ name, directory }) => `${name}=${directory}`), output: join(ROOT, 'docs', PICTURE) });

const load = loadavg()[0]?.toFixed(0);
const one = runs[0]?.metrics ?? [];
const rows = runs.map(({ name, predicted, metrics }, index) => {
  const apart = metrics.map(({ loss }, step) => Math.abs(loss - (one[step]?.loss ?? Number.NaN)) / loss);
  const worst = (steps: number) => (index === 0 ? '' : Math.max(...apart.slice(0, steps)).toExponential(0));
  const seconds = Math.min(...metrics.map(({ stepSeconds }) => stepSeconds));
  const losses = [0, -1].map((step) => metrics.at(step)?.loss.toPrecision(5));
  const times = [seconds, predicted].map((own) => `${own.toPrecision(2)} s`);
  return `| ${[name, ...losses, worst(EARLY), worst(STEPS), ...times].join(' | ')} |`;
});
const shown = `A GPT of 4 layers × 256 and 3.2 million parameters, trained on ${text.length.toLocaleString('en')} letters like

> ${text.slice(0, 150).trim()} …

for ${STEPS} steps of 8 × 64 letters, on CPU ranks of a machine with two cores (${new Date().toISOString().slice(0, 10)}, \
load ${load}):

![losses of one rank and of ${runs.length - 1} plans, one above the other](${PICTURE})

| plan | first loss | last loss | apart from one rank in ${EARLY} steps | in ${STEPS} | a step, fastest | predicted |
|---|---|---|---|---|---|---|
${rows.join('\n')}

Losses part as far as other rounding brings them: sums over ranks are taken in another order, and AdamW divides by
gradients that are nearly 0. Steps are predicted by a quick [profile](clusters.md#this-machine) of the same minutes;
[accuracy](reference/accuracy.md#on-this-machine) has other models, on idle cores.
`;
const page = readFileSync(PAGE, 'utf8');
const [before = '', rest = ''] = page.split(BEGIN);
writeFileSync(PAGE, `${before}${BEGIN}\n${shown}\n${END}${rest.split(END)[1] ?? ''}`);

/** Sums in words and figures, which a model of letters learns to spell and then to begin to add. */
function writtenText(letters: number): string {
  const next = uniform(7);
  const pick = <T>(from: readonly T[]): T => from[Math.floor(next() * from.length)] as T;
  const things = ['ships', 'lamps', 'birds', 'stones', 'letters', 'clocks', 'boxes', 'trees'];
  const names = ['Ada', 'Ben', 'Cleo', 'Dan', 'Eve', 'Finn'];
  let written = '';
  while (written.length < letters) {
    const [a, b] = [Math.floor(next() * 10), Math.floor(next() * 10)];
    const [name, other, thing] = [pick(names), pick(names), pick(things)];
    written += `${name} has ${a} ${thing}. ${other} brings ${b} ${thing}, so there are ${a + b}. `;
  }
  return written.slice(0, letters);
}
