/**
 * @file `--plan-only` leaves the program out and nothing else: the same plan.json, the same printed figures; and what a plan is
 * chosen by.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { autopar, workplace } from './autopar.js';

const FAMILY = 'gpt:layers=2,hidden=32,heads=4,seq=16,vocab=64';
const STEP = `compile --model ${FAMILY} --cluster 1x4:a100-sxm-80 --train --global-batch 8`;

const planIn = (folder: string): string => readFileSync(join(folder, 'plan.json'), 'utf8');

interface Answer {
  readonly degrees: Readonly<Record<string, number>>;
  readonly predicted: { readonly stepSeconds: number; readonly peakBytes: readonly number[] };
  readonly sizes?: readonly { readonly deviceSeconds: number }[];
  readonly cluster: { readonly nodes: number; readonly perNode: number };
}

const LINES: readonly string[] = [
  `${STEP} --init random`,
  `${STEP} --pp 2 --micro-batches 4 --schedule zero-bubble --init random`,
  'compile models/gpt-tiny.onnx --cluster 1x4:a100-sxm-80 --train --global-batch 4',
  'compile models/gpt-tiny.onnx --devices 2 --pp 2',
];

for (const line of LINES) {
  test(`the same plan with and without a program: ${line}`, async (t) => {
    const { folder, remove } = workplace();
    t.teardown(remove);
    const run = async (words: string) => {
      const { code, stdout, stderr } = await autopar(words.split(' '), { cwd: folder });
      t.is(code, 0, stderr);
      return stdout.split('\n').filter((one) => one !== '' && !/^(the plan is in|plan and program|next:)/.test(one));
    };
    const whole = await run(`${line} -o whole`);
    const alone = await run(`${line.replace(' --init random', '')} --plan-only -o alone`);
    t.deepEqual(alone, whole);
    t.is(planIn(join(folder, 'alone')), planIn(join(folder, 'whole')));
    t.deepEqual(
      ['whole', 'alone'].map((name) => existsSync(join(folder, name, 'program'))),
      [true, false],
    );
  });
}

test('the objective memory takes the least of what is compared, cost and devices a part of the cluster', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const answer = async (objective: string) => {
    const line = `${STEP} --plan-only --objective ${objective} -o out --force --json`;
    const { code, stdout, stderr } = await autopar(line.split(' '), { cwd: folder });
    t.is(code, 0, stderr);
    return JSON.parse(stdout) as Answer;
  };
  const [fast, small] = [await answer('time'), await answer('memory')];
  const peak = ({ predicted }: Answer) => Math.max(...predicted.peakBytes);
  t.true(peak(small) <= peak(fast) && small.predicted.stepSeconds >= fast.predicted.stepSeconds);
  const { cluster, sizes = [] } = await answer('devices --within 1000');
  t.deepEqual([cluster.nodes, cluster.perNode], [1, 1], 'one device is in time');
  t.deepEqual(sizes.length, 1);
  t.is((await answer('cost')).sizes?.length, 3);
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
  [`${STEP} --pp 9 --devices 9`, 'devices-do-not-match', 2, /--devices 9 contradicts --cluster/],
  [`${STEP} --zero 4`, 'bad-option', 2, /--zero/],
  [`${STEP} --objective devices`, 'bad-option', 2, /--objective devices wants a time/],
  [`${STEP} --objective memory --axes free`, 'bad-option', 2, /^--objective memory compares steps .* --axes says what/],
  [`${STEP} --objective devices --within 1e-9`, 'not-in-time', 4, /no part of the cluster makes a step in 1e-9 s/],
  [
    'compile models/mlp.onnx --micro-batches 2 --plan-only',
    'bad-option',
    2,
    /^--micro-batches is an option of training$/,
  ],
];

for (const [line, code, exit, says] of REFUSED) {
  test(`refused: ${line.replace(STEP, '…')}`, async (t) => {
    const { folder, remove } = workplace();
    t.teardown(remove);
    const result = await autopar([...line.split(' '), '--plan-only', '--json', '-o', 'out'], { cwd: folder });
    t.is(result.code, exit, result.stderr);
    const { error } = JSON.parse(result.stdout || result.stderr) as { error: { code: string; message: string } };
    t.is(error.code, code);
    t.regex(error.message, says);
    t.false(existsSync(join(folder, 'out')));
  });
}
