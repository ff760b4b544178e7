/**
 * @file Plans of whole steps on the command line: searched, written, explained; and what is refused.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { explainStep } from '../../src/api/explain-step.js';
import { type SimulateOptions, simulate } from '../../src/api/simulate.js';
import { AutoparError } from '../../src/ir/error.js';
import { autopar, workplace } from './autopar.js';

const MODEL = 'gpt:layers=4,hidden=1024,heads=16,seq=512,vocab=1024';
const SEARCH = `compile --model ${MODEL} --cluster 2x4:a100-sxm-80 --train --plan-only --global-batch 64`;

interface Plan {
  readonly degrees: Readonly<Record<string, number>>;
  readonly stages: readonly { readonly devices: number }[];
  readonly layerClasses: readonly { readonly instances: readonly string[]; readonly stages?: readonly number[] }[];
  readonly operators: Readonly<Record<string, { readonly strategy: Readonly<Record<string, readonly string[]>> }>>;
  readonly schedule: Readonly<Record<string, unknown>>;
  readonly step: Readonly<Record<string, unknown>>;
  readonly search: { readonly mode: string; readonly gap: number; readonly costSeconds: number };
}

const planIn = (folder: string): string => readFileSync(join(folder, 'plan.json'), 'utf8');

test('a step is searched over every dimension, twice to the same bytes', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const run = (line: string) => autopar(line.split(' '), { cwd: folder });
  const first = await run(`${SEARCH} -o one`);
  t.is(first.code, 0, first.stderr);
  t.regex(first.stdout, /optimal under the cost model|no configuration is more than [\d.]+ % better/);
  t.regex(first.stdout, /runners-up/);
  await run(`${SEARCH} -o two`);
  t.is(planIn(join(folder, 'one')), planIn(join(folder, 'two')));
  const plan = JSON.parse(planIn(join(folder, 'one'))) as Plan;
  const { dp = 0, tp = 0, pp = 0, sp = 0 } = plan.degrees;
  t.is(dp * tp * pp * sp, 8);
  t.is(plan.search.mode, 'step');
  t.true(plan.search.gap >= 0 && plan.search.gap < 1, `${plan.search.gap}`);
  t.false(existsSync(join(folder, 'one', 'program')));
});

test('a time limit that is over before any plan takes what fits first, marked; one that is long enough changes nothing', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const over = await autopar(`${SEARCH} --time-limit 0 -o over`.split(' '), { cwd: folder });
  t.is(over.code, 0, over.stderr);
  t.regex(over.stderr, /was over before any plan was found: this is the first that fits, compared with no other/);
  t.regex(over.stdout, /, 1 configuration priced; cut off by the time limit: /);
  const { search } = JSON.parse(planIn(join(folder, 'over'))) as Plan;
  t.like(search, { mode: 'step', timeLimited: true, uncompared: true });
  t.true(search.gap > 0);
  const explained = await autopar('explain over --memory'.split(' '), { cwd: folder });
  t.is(explained.code, 0, explained.stderr);
  const none = await autopar(`${SEARCH} --time-limit 0 --memory 1GB -o none`.split(' '), { cwd: folder });
  t.is(none.code, 4);
  t.regex(none.stderr, /the time limit was over before any plan was found: nothing fits/);
  t.false(existsSync(join(folder, 'none')));
  const ample = await autopar(`${SEARCH} --time-limit 500 -o ample`.split(' '), { cwd: folder });
  t.is(ample.code, 0, ample.stderr);
  t.is(ample.stderr, '');
  t.false(planIn(join(folder, 'ample')).includes('timeLimited'));
});

test('what is given is kept: a pipeline with its stages, layers and strategies', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const pinned = '--pp 2 --tp 2 --schedule 1f1b --zero 1 --recompute full --micro-batch 2';
  const { code, stderr } = await autopar(`${SEARCH} ${pinned} -o out`.split(' '), { cwd: folder });
  t.is(code, 0, stderr);
  const plan = JSON.parse(planIn(join(folder, 'out'))) as Plan;
  t.like(plan.degrees, { pp: 2, tp: 2, dp: 2, sp: 1 });
  t.deepEqual(plan.schedule, { kind: '1f1b', microBatches: 16, microBatch: 2 });
  t.like(plan.step, { zero: 1, recompute: 'full', globalBatch: 64, precision: 'bf16' });
  t.deepEqual(
    plan.stages.map(({ devices }) => devices),
    [4, 4],
  );
  t.like(plan.layerClasses[0], {
    instances: ['layers.0', 'layers.1', 'layers.2', 'layers.3'],
    stages: [0, 0, 1, 1],
  });
  const axisOf = (operator: string) => Object.keys(plan.operators[`/layers.0/${operator}`]?.strategy ?? {});
  t.deepEqual(axisOf('feed_forward/up/MatMul'), ['n'], "Megatron's columns");
  t.deepEqual(axisOf('feed_forward/down/MatMul'), ['k'], 'and rows');
});

test('micro-batches of inference are kept, where whole steps are searched', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const line = `compile --model ${MODEL},batch=16 --cluster 2x4:a100-sxm-80 --plan-only --pp 2 --micro-batches 4`;
  const { code, stdout, stderr } = await autopar(`${line} -o out`.split(' '), { cwd: folder });
  t.is(code, 0, stderr);
  t.like(JSON.parse(planIn(join(folder, 'out'))) as Plan, { schedule: { microBatches: 4 }, step: { globalBatch: 16 } });
  t.regex(stdout, /predicted .* per step in bf16 \(simulated\), /);
  t.notRegex(stdout, /recomputed/);
});

test('the objective can be memory', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const peak = async (objective: string) => {
    const { stdout } = await autopar(`${SEARCH} --objective ${objective} -o ${objective} --json`.split(' '), {
      cwd: folder,
    });
    const { predicted } = JSON.parse(stdout) as { predicted: { stepSeconds: number; peakBytes: number[] } };
    return { seconds: predicted.stepSeconds, bytes: Math.max(...predicted.peakBytes) };
  };
  const [fast, small] = [await peak('time'), await peak('memory')];
  t.true(small.bytes < fast.bytes);
  t.true(small.seconds > fast.seconds);
});

test('with the objective memory bytes rule the others out, as simulate has them, and the proof is of what was searched', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const run = async (line: string) => {
    const { code, stdout, stderr } = await autopar(line.split(' '), { cwd: folder });
    t.is(code, 0, stderr);
    return stdout;
  };
  const report = await run(`${SEARCH} --objective memory -o out`);
  t.regex(
    report,
    /optimal under the cost model, with nothing on the host, the usual order of the axes, stages cut evenly and no naive schedule\n/,
  );
  t.regex(report, /degrees +with +memory +more +step\n/);
  t.notRegex(report, /slower|-\d[\d.]* %/);
  const said = await run('explain out --rejected');
  const [, chosen = ''] = /: ([\d.]+ GB) on stage \d+, .* per step in bf16\n/.exec(said) ?? [];
  t.true(report.includes(`memory     ${chosen} of 80 GB`), said);
  t.regex(said, /needs [\d.]+ GB on stage \d+, 1\.\d{3} times as much; takes [\d.]+ m?s/);
  t.notRegex(said, /as long/);
  interface Step {
    readonly peakBytes: number;
    readonly timesAsMuch: number;
    readonly configuration: SimulateOptions & { readonly degrees: Partial<SimulateOptions> };
  }
  const { predicted, search, runnersUp } = JSON.parse(
    await run(`${SEARCH} --objective memory -o out --force --json`),
  ) as { predicted: { peakBytes: number[] }; search: { with: string[] }; runnersUp: Step[] };
  t.is(search.with[0], 'nothing on the host');
  const least = Math.max(...predicted.peakBytes);
  t.true(runnersUp.length > 3);
  for (const { peakBytes, timesAsMuch, configuration } of runnersUp) {
    t.true(timesAsMuch >= 1 && Math.abs(timesAsMuch / (peakBytes / least) - 1) < 1e-6, `${timesAsMuch}`);
    const { degrees, globalBatch, microBatch, zero, recompute, schedule, virtualStages } = configuration;
    const { stages } = await simulate({
      ...{ generate: MODEL, cluster: '2x4:a100-sxm-80', loss: { kind: 'cross_entropy' }, ...degrees, globalBatch },
      ...{ microBatch, zero, recompute, virtualStages, ...(schedule ? { schedule } : {}) },
    } as SimulateOptions);
    t.is(Math.max(...stages.map(({ total }) => total)), peakBytes);
  }
  const explained = JSON.parse(await run('explain out --rejected --json')) as {
    objective: string;
    verdicts: { kind: string; timesAsMuch?: number; best?: { bytes: number } }[];
  };
  t.is(explained.objective, 'memory');
  const priced = explained.verdicts.filter(({ kind }) => kind === 'priced');
  const first = priced[0]?.best?.bytes ?? 0;
  for (const { timesAsMuch, best } of priced) t.is(timesAsMuch, (best?.bytes ?? 0) / first);
  const pinned = await run(`${SEARCH} --objective memory --offload all --mesh-order tp,pp,dp,sp --pp 1 -o all`);
  t.regex(pinned, /optimal under the cost model\n/);
});

test('a part of a cluster that is one device has no other degrees, and explain says where the other parts are told', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const run = (line: string) => autopar(line.split(' '), { cwd: folder });
  const compiled = await run(`${SEARCH} --objective devices --within 1000 -o out`);
  t.regex(compiled.stdout, /parts of the cluster\n/);
  const { code, stdout } = await run('explain out --rejected');
  t.is(code, 0);
  t.regex(
    stdout,
    /: .* per step in bf16\n\nno other degrees are possible on this cluster; .* the other parts are in its report\n$/,
  );
});

test('explain says why the others were not taken, and what more memory or faster links would bring', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const run = (line: string) => autopar(line.split(' '), { cwd: folder });
  await run(`${SEARCH} -o out`);
  const { search } = JSON.parse(planIn(join(folder, 'out'))) as Plan;
  const rejected = await run('explain out --rejected --json');
  t.is(rejected.code, 0, rejected.stderr);
  const { verdicts } = JSON.parse(rejected.stdout) as { verdicts: { kind: string; best?: { seconds: number } }[] };
  t.is(verdicts[0]?.best?.seconds, search.costSeconds);
  t.true(verdicts.length > 10);
  const sensitive = await run('explain out --sensitivity --json');
  const { sensitivities } = JSON.parse(sensitive.stdout) as { sensitivities: { change: string; ratio: number }[] };
  t.deepEqual(
    sensitivities.map(({ change }) => change),
    [
      '1 GB more memory per device',
      'twice the memory',
      'half the memory',
      'twice the network between nodes',
      'twice the links inside a node',
    ],
  );
  for (const { change, ratio } of sensitivities) t.true(change === 'half the memory' ? ratio >= 1 : ratio <= 1, change);
  const text = await run('explain out --rejected --sensitivity');
  t.regex(text.stdout, /because/);
  t.regex(text.stdout, /twice the network/);
});

test('explain says what the stages of a step hold, and where its axes lie, as simulate does', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const run = async (line: string) => {
    const { code, stdout, stderr } = await autopar([...line.split(' '), '--json'], { cwd: folder });
    t.is(code, 0, stderr);
    return JSON.parse(stdout) as { stepSeconds: number; stages: readonly unknown[]; mesh: readonly unknown[] };
  };
  const pinned = '--pp 2 --tp 2 --zero 1 --recompute full --micro-batch 2 --mesh-order pp,dp,sp,tp --tp-sequence on';
  const found = await run(`${SEARCH} ${pinned} --schedule 1f1b -o out`);
  const { stages } = await run('explain out --memory');
  const { mesh } = await run('explain out --mesh');
  const simulated = await run(
    `simulate --model ${MODEL} --cluster 2x4:a100-sxm-80 --train --global-batch 64 ${pinned}`,
  );
  t.is(stages.length, 2);
  t.deepEqual(stages, simulated.stages);
  t.deepEqual(mesh, simulated.mesh);
  t.is(found.stepSeconds, simulated.stepSeconds);
});

test('the report says how norms lie over tp', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  for (const [said, how] of [
    ['on', 'sequence parallelism over tp'],
    ['off', 'norms whole over tp'],
  ]) {
    const line = `${SEARCH} --tp 4 --pp 1 --tp-sequence ${said} -o ${said}`;
    const { stdout } = await autopar(line.split(' '), { cwd: folder });
    t.regex(stdout, new RegExp(`with .*, ${how}$`, 'm'));
  }
});

const REFUSED: readonly (readonly [line: string, code: string, exit: number, says: RegExp])[] = [
  [
    `${SEARCH} --memory 1GB`,
    'nothing-fits',
    4,
    /least is needed by pp .* GB on stage [^+]* of the [\d.]+ [GT]B on a host/,
  ],
  [`${SEARCH} --dp 3`, 'degrees-do-not-match-devices', 2, /^dp 3 does not divide the 8 devices$/],
  [
    `${SEARCH} --tp 3 --pp 2`,
    'degrees-do-not-match-devices',
    2,
    /^pp 2 · tp 3 is 6, which does not divide the 8 devices$/,
  ],
  [`${SEARCH} --ep 2`, 'degrees-do-not-match-devices', 2, /^ep 2 spreads experts over ranks, and the model has none$/],
  [`${SEARCH} --within 3`, 'bad-option', 2, /^--within 3 is the time that --objective devices allows/],
  [`${SEARCH} --pp 8`, 'no-combination', 4, /pp 8 needs 8 layers, and the model has 4/],
  [`${SEARCH.replace('64', '7')} --dp 8`, 'no-combination', 4, /dp 8 does not divide the global batch of 7/],
  [
    `${SEARCH} --pp 4 --dp 2 --micro-batch 64 --zero 1`,
    'no-combination',
    4,
    /the micro-batches asked for do not divide/,
  ],
  [`${SEARCH} --zero 4`, 'bad-option', 2, /--zero/],
  [`${SEARCH} --zero 1 --axes free`, 'bad-option', 2, /--zero contradicts --axes free/],
  [
    `${SEARCH} --zero 1 --search-mode dynamic_programming`,
    'bad-option',
    2,
    /^--zero contradicts --search-mode dynamic/,
  ],
  [`${SEARCH} --objective memory --search-mode ilp`, 'bad-option', 2, /^--objective contradicts --search-mode ilp/],
  [`${SEARCH} --offload all --sp-method gather`, 'bad-option', 2, /^--offload contradicts --sp-method gather/],
  [
    `${SEARCH} --sp 2 --mode data`,
    'degree-in-data-mode',
    2,
    /^mode data shards the batch alone, and sp 2 is asked for/,
  ],
  [`${SEARCH} --ep 2 --complete propagate`, 'degree-does-not-fit', 2, /^--ep 2 shards experts, and .* has none/],
  ['compile models/mlp.onnx --micro-batches 2', 'bad-option', 2, /^--micro-batches is an option of training$/],
  ['compile models/mlp.onnx --recompute full', 'bad-option', 2, /is of training, and this program infers/],
  [
    `${SEARCH} --recompute full:0-1`,
    'bad-option',
    2,
    /names layers, and a training step is planned with a kind for all/,
  ],
];

for (const [line, code, exit, says] of REFUSED) {
  test(`refused: ${line.replace(SEARCH, '…')}`, async (t) => {
    const { folder, remove } = workplace();
    t.teardown(remove);
    const result = await autopar([...line.split(' '), '--json', '-o', 'out'], { cwd: folder });
    t.is(result.code, exit, result.stderr);
    const { error } = JSON.parse(result.stdout || result.stderr) as {
      error: { code: string; message: string; hint: string };
    };
    t.is(error.code, code);
    t.regex(error.message, says);
    if (line.endsWith('--memory 1GB')) t.regex(error.hint, /more of them do not help: 2.00 GB of each/);
    if (line.endsWith('--zero 1'))
      t.regex(
        error.hint,
        /^--dp 2 and --micro-batch 64 leave no combination of degrees, .*: leave one of them out; else /,
      );
    t.false(existsSync(join(folder, 'out')));
  });
}

test('every option of whole steps that stands beside one of operators is refused by what to leave out, which is enough', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const search = SEARCH.replace(MODEL, 'gpt:layers=2,hidden=64,heads=4,seq=32,vocab=64');
  const ofSteps = [
    ...['--zero 1', '--recompute full', '--within 2', '--offload all'],
    ...['--tp-sequence off', '--mesh-order dp,pp,sp,tp', '--objective memory', '--software eager', '--attention parts'],
  ];
  const ofOperators = [
    '--search-mode ilp',
    '--axes free',
    '--mode data',
    '--complete propagate',
    '--annotations none.yaml',
  ];
  for (const [at, option] of ofSteps.entries()) {
    const operators = ofOperators[at % ofOperators.length] ?? '';
    const line = `${search} ${option} ${operators} -o out`;
    const { code, stderr } = await autopar(line.split(' '), { cwd: folder });
    t.is(code, 2, line);
    const [step] = option.split(' ');
    t.true(stderr.startsWith(`error[bad-option]: ${step} contradicts ${operators}: `), stderr);
    t.true(stderr.includes(`leave out ${operators} to search whole steps, or ${step} to search operators`), stderr);
  }
  const both = await autopar(`${search} --zero 1 --recompute full --axes free --search-mode ilp -o out`.split(' '), {
    cwd: folder,
  });
  t.regex(
    both.stderr,
    /leave out --axes free and --search-mode ilp to search whole steps, or --zero and --recompute to /,
  );
  for (const line of [`${search} --pp 2 --zero 1 -o out`, `${search} --axes free --search-mode ilp -o out --force`]) {
    const { code, stderr } = await autopar(line.split(' '), { cwd: folder });
    t.is(code, 0, stderr);
  }
});

test('what needs a plan alone says how to ask for one', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const line = `compile --model ${MODEL} --cluster 2x4:a100-sxm-80 --train --global-batch 64 -o out`;
  for (const option of ['--within 2', '--software eager', '--software eager --axes free']) {
    const { code, stderr } = await autopar(`${line} ${option}`.split(' '), { cwd: folder });
    t.is(code, 2);
    t.regex(stderr, /hint: add --plan-only --cluster NxM:ID/, stderr);
    t.is(stderr.includes('without --axes free'), option.includes('--axes'), stderr);
  }
});

test('an operator of a whole step has no choice to explain, and a plan of operators no steps', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  await autopar(`${SEARCH} -o step`.split(' '), { cwd: folder });
  const { code, stderr } = await autopar('explain step --pins'.split(' '), { cwd: folder });
  t.is(code, 2);
  t.regex(stderr, /^error\[not-of-operators\]: .*searched over whole steps/);
  await autopar('compile models/mlp.onnx --dp 2 --plan-only -o out'.split(' '), { cwd: folder });
  const error = await t.throwsAsync(explainStep(join(folder, 'out'), { sensitivity: false }), {
    instanceOf: AutoparError,
  });
  t.is(error?.code, 'not-a-step');
  t.regex(error?.message ?? '', /not searched over whole steps/);
});
