/**
 * @file `--plan-only` leaves the program out and nothing else: the same plan.json and the same figures, which explain and
 * simulate give again; and what a plan is chosen by.
 */
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import fc from 'fast-check';
import { languageModel } from '../../models/language-model.js';
import { type CompileResult, compile, type NestedCompileOptions } from '../../src/api/compile.js';
import { simulatePlan } from '../../src/api/reports/simulate-plan.js';
import { resultJson } from '../../src/cli/compile-report.js';
import { degreesText } from '../../src/cli/degrees.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { gptSizes } from '../cost-model/step/sizes.js';
import { EVERYTHING, slowTests } from '../selection.js';
import { autopar, workplace } from './autopar.js';

const slow = slowTests(test);

const FAMILY = 'gpt:layers=2,hidden=32,heads=4,seq=16,vocab=64';
const STEP = `compile --model ${FAMILY} --cluster 1x4:a100-sxm-80 --train --global-batch 8`;
const TRAINING = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } } as const;

const planIn = (folder: string): string => readFileSync(join(folder, 'plan.json'), 'utf8');

/** The whole report without the fields about the program. */
function reported(result: CompileResult): unknown {
  const { directory: _, programWritten, programReason, notes, ...rest } = resultJson(result);
  return JSON.parse(JSON.stringify(rest));
}

slow(
  'drawn options: the same plan and figures with and without a program, and simulate gives them again',
  async (t) => {
    const { folder, remove } = workplace();
    t.teardown(remove);
    const model = join(folder, 'model.onnx');
    const sizes = gptSizes({ hidden: 16, heads: 2, sequence: 8, vocabulary: 32, layers: 2, batch: 8 });
    writeFileSync(model, writeOnnx(languageModel('gpt', sizes, 1)));
    const place = fc.constantFrom({ devices: 2 }, { cluster: '1x2:a100-sxm-80' }, { cluster: '2x2:h100-sxm-80' });
    const given = fc.constantFrom<Partial<NestedCompileOptions>>(
      {},
      { degrees: { pp: 2 } },
      { degrees: { tp: 2 }, prefer: 'fastest' },
      { degrees: { sp: 2 }, headroom: 0.5 },
    );
    const step = fc.constantFrom<Partial<NestedCompileOptions>>(
      {},
      { training: TRAINING },
      { training: { ...TRAINING, microBatches: 2 }, recompute: 'full' },
      { training: TRAINING, zero: 1, objective: 'memory' },
    );
    await fc.assert(
      fc.asyncProperty(place, given, step, async (on, pinned, trained) => {
        const { prefer: _, headroom: _room, ...degrees } = pinned;
        const wish = trained.objective === 'memory' ? degrees : pinned;
        const options = { model, force: true, ...on, ...wish, ...trained };
        const whole = await compile({ ...options, output: join(folder, 'whole'), initRandom: true });
        const alone = await compile({ ...options, output: join(folder, 'alone'), planOnly: true });
        t.is(planIn(join(folder, 'alone')), planIn(join(folder, 'whole')));
        t.deepEqual(reported(alone), reported(whole));
        t.deepEqual([whole.programWritten, alone.programWritten], [true, false]);
        t.false(existsSync(join(folder, 'alone', 'program')));
        const { prediction } = await simulatePlan(join(folder, 'alone'));
        t.deepEqual(JSON.parse(JSON.stringify(prediction)), JSON.parse(planIn(join(folder, 'alone'))).predicted);
      }),
      { numRuns: EVERYTHING ? 2 : 1, seed: 3 },
    );
  },
);

interface Answer {
  readonly degrees: Readonly<Record<string, number>>;
  readonly predicted: { readonly stepSeconds: number; readonly peakBytes: readonly number[] };
  readonly sizes?: readonly { readonly deviceSeconds: number }[];
  readonly cluster: { readonly nodes: number; readonly perNode: number };
  readonly proposals: { readonly verdicts: readonly Verdict[] };
}

interface Verdict {
  readonly kind: string;
  readonly degrees: Readonly<Record<string, number>>;
  readonly stepSeconds?: number;
  readonly atLeastSeconds?: number;
}

slowTests(test)('the report has what was compared, and explain, which compares again, the same verdicts', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const run = async (line: string) => {
    const { code, stdout, stderr } = await autopar(line.split(' '), { cwd: folder });
    t.is(code, 0, stderr);
    return stdout;
  };
  const { proposals, predicted } = JSON.parse(await run(`${STEP} --plan-only -o out --json`)) as Answer;
  t.true(proposals.verdicts.length > 5);
  rmSync(join(folder, 'out', 'compared.json'));
  const explained = JSON.parse(await run('explain out --rejected --sensitivity --json')) as {
    verdicts: Answer['proposals']['verdicts'];
    sensitivities: readonly unknown[];
    stepSeconds: number;
  };
  const by = (verdicts: readonly Verdict[]) => new Map(verdicts.map((one) => [degreesText(one.degrees), one]));
  const priced = by(explained.verdicts);
  t.deepEqual([...priced.keys()].sort(), [...by(proposals.verdicts).keys()].sort());
  for (const [degrees, one] of by(proposals.verdicts)) {
    const other = priced.get(degrees);
    if (other?.kind === one.kind) t.deepEqual(other, one, degrees);
    else {
      const [slower, whole] = one.kind === 'slower' ? [one, other] : [other, one];
      t.is(slower?.kind, 'slower', degrees);
      t.true((whole?.stepSeconds ?? 0) >= (slower?.atLeastSeconds ?? Number.POSITIVE_INFINITY), degrees);
    }
  }
  t.is(explained.stepSeconds, predicted.stepSeconds);
  t.true(explained.sensitivities.length >= 4);
});

/** The plan for an objective. */
async function answered(t: ExecutionContext, folder: string, step: string, objective: string): Promise<Answer> {
  const line = `${step} --plan-only --objective ${objective} -o out --force --json`;
  const { code, stdout, stderr } = await autopar(line.split(' '), { cwd: folder });
  t.is(code, 0, stderr);
  return JSON.parse(stdout) as Answer;
}

slow('the objective memory takes the least of what is compared', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const [fast, small] = [await answered(t, folder, STEP, 'time'), await answered(t, folder, STEP, 'memory')];
  const peak = ({ predicted }: Answer) => Math.max(...predicted.peakBytes);
  t.true(peak(small) <= peak(fast) && small.predicted.stepSeconds >= fast.predicted.stepSeconds);
});

slow('the objectives cost and devices take a part of the cluster', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const { cluster, sizes = [] } = await answered(t, folder, STEP, 'devices --within 1000');
  t.deepEqual([cluster.nodes, cluster.perNode], [1, 1], 'one device is in time');
  t.deepEqual(sizes.length, 1);
  t.is((await answered(t, folder, STEP, 'cost')).sizes?.length, 3);
});

test('the plan of a training step of earlier versions says to plan again', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  await autopar('compile models/mlp.onnx --dp 2 --plan-only -o out'.split(' '), { cwd: folder });
  const file = join(folder, 'out', 'plan.json');
  const plan = JSON.parse(readFileSync(file, 'utf8')) as object;
  writeFileSync(file, JSON.stringify({ ...plan, step: { zero: 1 } }));
  const { code, stderr } = await autopar('explain out'.split(' '), { cwd: folder });
  t.is(code, 3);
  t.regex(stderr, /^error\[plan-older\][\s\S]*hint: plan again/);
});

const REFUSED: readonly (readonly [line: string, code: string, exit: number, says: RegExp])[] = [
  [`${STEP} --dp 3`, 'degrees-do-not-match-devices', 2, /dp 3/],
  [`${STEP} --objective devices`, 'bad-option', 2, /--objective devices needs a step time/],
  [`${STEP} --objective memory --axes free`, 'bad-option', 2, /^--objective memory compares steps .* --axes fixes/],
  [`${STEP} --objective devices --within 1e-9`, 'not-in-time', 4, /no device subset takes at most 1e-9 s/],
  [
    `${STEP} --dp 2 --micro-batch 64 --zero 1`,
    'micro-batch',
    2,
    /batch of 8 .* micro-batch 64[\s\S]*--micro-batch 64 leaves? no combination/,
  ],
];

for (const [line, code, exit, says] of REFUSED) {
  test(`refused: ${line.replace(STEP, '…')}`, async (t) => {
    const { folder, remove } = workplace();
    t.teardown(remove);
    const result = await autopar([...line.split(' '), '--plan-only', '--json', '-o', 'out'], { cwd: folder });
    t.is(result.code, exit, result.stderr);
    const { error } = JSON.parse(result.stdout || result.stderr) as {
      error: { code: string; message: string; hint: string };
    };
    t.is(error.code, code);
    t.regex(`${error.message}\n${error.hint}`, says);
    t.false(existsSync(join(folder, 'out')));
  });
}

slow('of a family: the note names it, explain --mesh has its experts, strategy show what was asked', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  for (const training of [[], ['--train', '--loss', 'mse']]) {
    const words = ['compile', '--model', 'mlp', '--devices', '2', '-o', 'mlp', ...training];
    const made = await autopar(words, { cwd: folder });
    t.regex(made.stderr + made.stdout, /8 weights have no values, as --model mlp gives none/);
  }

  const moe = 'moe:layers=2,hidden=64,heads=4,kv_heads=4,ffn=64,experts=4,seq=32,vocab=128';
  const spread = `compile --model ${moe} --cluster 1x8:a100-sxm-80 --train --global-batch 32 --plan-only`;
  const degrees = ['--dp', '4', '--tp', '2', '--ep', '2', '-o', 'moe'];
  t.is((await autopar([...spread.split(' '), ...degrees], { cwd: folder })).code, 0);
  const { stdout: mesh } = await autopar(['explain', 'moe', '--mesh'], { cwd: folder });
  t.regex(mesh, /^ +ep +2 /m);
  const { stdout: shown } = await autopar(['strategy', 'show', 'moe', '--all'], { cwd: folder });
  t.regex(shown, /dp 4 · tp 2 · ep 2/);
  t.regex(shown, /dp 2 of 4/);
  t.notRegex(shown, /\b[dt]p\.\d/);
  for (const question of [
    '--op /layers.0/experts/up/MatMul',
    '--tensor layers.0.experts.up.weight',
    '--report p.html',
  ]) {
    const { stdout } = await autopar(['explain', 'moe', ...question.split(' ')], { cwd: folder });
    const page = question.includes('html') ? readFileSync(join(folder, 'p.html'), 'utf8') : '';
    const read = stdout + page.replaceAll(/<script.*?<\/script>/gs, '');
    t.regex(read, /dp 2 of 4/, question);
    t.notRegex(read, /\b[dt]p\.\d/, question);
  }

  const staged = await autopar([...STEP.split(' '), '--pp', '2', '--plan-only', '-o', 'gpt'], { cwd: folder });
  const stages = /^ {2}stages .*$/m.exec(staged.stdout)?.[0] ?? '';
  t.regex(stages, /E t/);
  t.true((await autopar(['explain', 'gpt'], { cwd: folder })).stdout.includes(stages));
  const show = (await autopar(['strategy', 'show', 'gpt'], { cwd: folder })).stdout;
  t.regex(show, /^ {2}pinned +pp=2$/m);
  t.regex(show, /layers\.0 stands for 2 layers, on stages 0 and 1/);
});

test('16 bits on ranks of this machine are reported as held in fp32, by compile and explain', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const words = ['compile', '--model', 'mlp', '--plan-only', '--force', '-o', 'out'];
  const line = async (...options: string[]) => {
    const { stdout, code, stderr } = await autopar([...words, ...options], { cwd: folder });
    t.is(code, 0, stderr);
    return /^ {2}precision .*$/m.exec(stdout)?.[0];
  };
  const said = await line('--devices', '2', '--precision', 'bf16', '--train', '--loss', 'mse');
  t.regex(said ?? '', /^ {2}precision {2}bf16 is held in fp32, in which ranks of this machine compute/);
  t.true((await autopar(['explain', 'out'], { cwd: folder })).stdout.includes(said ?? ''));
  t.is(await line('--devices', '2', '--precision', 'bf16'), said);
  t.is(await line('--devices', '2', '--train', '--loss', 'mse'), undefined);
  t.is(await line('--cluster', '1x2:h100-sxm-80', '--precision', 'bf16'), undefined);
});
