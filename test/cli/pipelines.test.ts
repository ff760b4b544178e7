/**
 * @file Impossible pipelines are refused by their cause, with both values and a remedy, and leave nothing behind.
 */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { GraphBuilder } from '../../models/builder.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { writeModel } from '../pipelines/models.js';
import { slowTests } from '../selection.js';
import { autopar, workplace } from './autopar.js';

const slow = slowTests(test);

const { folder, remove } = workplace();
test.after.always(remove);

writeModel('batch-norm', join(folder, 'batch-norm.onnx'));
writeFileSync(join(folder, 'one.onnx'), writeOnnx(oneOperator()));
writeFileSync(
  join(folder, 'turned.yaml'),
  `version: 1
pins:
  - match: {node: /fc0/MatMul}
    stage: 1
  - match: {node: /fc2/MatMul}
    stage: 0
`,
);
writeFileSync(
  join(folder, 'gap.yaml'),
  `version: 1
pins:
  - match: {module: fc0}
    stage: 0
  - match: {module: fc1}
    stage: 2
`,
);

const MLP = 'models/mlp.onnx --train';
const GPT = 'models/gpt-tiny.onnx --train --pp 2 --stages';

/** Words behind `compile`, the exit code, what the message says, and the hint. Underlines stand for spaces in a word. */
const REFUSED: readonly (readonly [words: string, code: number, says: string, hint: string])[] = [
  [`${MLP} --bucket 0`, 2, 'error[bad-option]: --bucket 0: expected a size such as 80GB, 16GiB or 2e10', ''],
  [
    'models/mlp.onnx --bucket 25MB',
    2,
    'error[bad-option]: --bucket applies to gradients and to weights that --zero 3 shards, ' +
      'and neither --train nor --zero 3 is given',
    'add --train or --zero 3, or leave it out',
  ],
  [
    'models/mlp.onnx --gradient-sync parameter-server',
    2,
    'error[bad-option]: --gradient-sync parameter-server applies to training only',
    'add --train, or leave it out',
  ],
  [`${MLP} --interleave 3`, 2, 'error[bad-option]: --interleave 3: expected', ''],
  [
    'models/mlp.onnx --interleave 2',
    2,
    'error[bad-option]: --interleave 2 splits the micro-batches of training, and --train is not given',
    'add --train, or leave it out',
  ],
  [
    `${MLP} --micro-batches 8 --interleave 2`,
    2,
    'error[micro-batch]: --interleave 2 halves each micro-batch, and with --micro-batches 8 of a batch of 8 each has 1 sample',
    'take another --micro-batches, or a --global-batch that 16 divides',
  ],
  [
    `${MLP} --global-batch 1 --interleave 2`,
    2,
    'error[micro-batch]: --interleave 2 halves each micro-batch, and with 1 micro-batch of a batch of 1 each has 1 sample',
    'a --global-batch that 2 divides',
  ],
  [
    `${MLP} --dp 4 --micro-batches 4 --interleave 2`,
    2,
    'error[micro-batch]: --interleave 2 halves each micro-batch, and with --micro-batches 4 of a batch of 8 on dp 4 ' +
      'each has 0.5 samples per rank',
    'a --global-batch that 32 divides',
  ],
  [
    `${MLP} --dp 2 --gradient-sync parameter-server --zero 2`,
    2,
    'error[bad-option]: --gradient-sync parameter-server stores optimizer state on one rank, and --zero 2 shards it over all',
    '',
  ],
  [
    `${MLP} --pp 2 --meshes tp2|dp2 --gradient-sync parameter-server`,
    2,
    "error[bad-option]: --gradient-sync parameter-server updates on the same rank of each stage, and --meshes 'tp2|dp2' gives",
    '',
  ],
  [
    `${MLP} --gradient-sync ring`,
    2,
    'error[bad-option]: --gradient-sync ring is not a valid choice',
    'available: all-reduce, parameter-server',
  ],
  [
    `${MLP} --pp 2 --micro-batches 3`,
    2,
    'error[micro-batches-uneven]: a batch of 8 cannot be cut into 3 equal micro-batches',
    'take a number that divides 8',
  ],
  [
    `${MLP} --pp 2 --virtual-stages 2 --micro-batches 1`,
    2,
    'error[bad-schedule]: schedule interleaved-1f1b takes micro-batches in groups of its 2 stages, and 1 is ' +
      'not a multiple of 2',
    'give 2 micro-batches',
  ],
  [
    `${MLP} --pp 9`,
    2,
    'error[too-many-stages]: 9 stages, and the model has 8 operators to place',
    'take --pp 8 at most',
  ],
  [
    'one.onnx --pp 2',
    2,
    'error[too-many-stages]: 2 stages, and the model has 1 operator to place',
    'take --pp 1 at most',
  ],
  [
    `${MLP} --pp 2 --annotations turned.yaml`,
    2,
    'on stage 0, the second of which comes after the first in the model',
    'turned.yaml:6',
  ],
  [
    `${MLP} --pp 3 --annotations gap.yaml`,
    2,
    'pinned stages leave no cut into 3 stages: /fc0/MatMul on stage 0; /fc1/MatMul on stage 2',
    'gap.yaml:4',
  ],
  [`${MLP} --pp 2 --annotations gap.yaml`, 2, 'on stage 2, and the plan has 2 stages, counted from 0', 'give --pp 3'],
  [`${MLP} --pp 3 --devices 4`, 2, 'pp 3 does not divide the 4 devices', 'leave out --devices'],
  [`${GPT} E_t_|_t`, 2, 'error[bad-stages]: --stages "E t | t": it leaves out H', 'E t*2 H'],
  [`${GPT} E_|_t*2_|_H`, 2, 'it has 3 parts, and --pp · --virtual-stages is 2', 'E t*2 H'],
  [`${GPT} E_t*2_H_|`, 2, 'a stage has no units', 'E t*2 H'],
  [`${GPT} E_q_|_t_H`, 2, 'unit 1 of it is q, and the model has t (h.0)', 'E t*2 H'],
  [
    'models/gpt-tiny.onnx --pp 2 --schedule 1f1b',
    2,
    '--schedule 1f1b orders the micro-batches of training, and the program is for inference',
    'add --train',
  ],
  ['models/gpt-tiny.onnx --pp 2 --virtual-stages 2', 2, '--virtual-stages 2 orders the micro-batches', 'add --train'],
  [
    `${MLP} --devices 2 --pp 1 --schedule 1f1b`,
    2,
    '--schedule 1f1b needs a pipeline, and the plan has one stage',
    'add --pp N',
  ],
  ['batch-norm.onnx --train --pp 2 --micro-batches 2', 3, 'error[mixes-samples]', 'train with --micro-batches 1'],
];

for (const [words, code, says, hint] of REFUSED) {
  test.serial(`compile ${words} is refused`, async (t) => {
    const { code: exit, stderr } = await autopar(
      ['compile', ...words.split(' ').map((word) => word.replaceAll('_', ' ')), '-o', 'out'],
      { cwd: folder },
    );
    t.is(exit, code, stderr);
    t.true(stderr.includes(says), stderr);
    t.true(stderr.includes(hint), stderr);
    t.false(existsSync(join(folder, 'out')));
  });
}

slow('stages that share no batch statistics train with one micro-batch, said or not', async (t) => {
  for (const micro of ['--dp 2 --micro-batches 1 --verify', '--devices 2 --plan-only']) {
    const words = `compile batch-norm.onnx --train --pp 2 ${micro} -o norm --force`.split(' ');
    const { code, stdout, stderr } = await autopar(words, { cwd: folder });
    t.is(code, 0, stderr);
    t.regex(stdout, /stages +\S.* \| .*1 micro-batch\n/, micro);
  }
});

for (const [schedule, model, said] of [
  ['1f1b', MLP, '1f1b'],
  ['zbv', '--model gpt:layers=4,hidden=32,heads=2,seq=8,vocab=32,batch=4 --train', 'zbv, .*, 2 chunks a stage'],
] as const) {
  test.serial(`an order of stages alone has a plan in stages: ${schedule}`, async (t) => {
    const words = `compile ${model} --devices 2 --schedule ${schedule} -o ordered --force --plan-only`.split(' ');
    const { code, stdout, stderr } = await autopar(words, { cwd: folder });
    t.is(code, 0, stderr);
    t.regex(stdout, new RegExp(`degrees +.* pp 2\\n +stages +\\S.* \\| .*, ${said}`));
  });
}

test.serial('buckets on one replica change nothing, and compile says so', async (t) => {
  const words = `compile ${MLP} --tp 2 --dp 1 --bucket 1MB -o alone`.split(' ');
  const { code, stderr } = await autopar(words, { cwd: folder });
  t.is(code, 0, stderr);
  t.true(stderr.includes('note: --bucket changes nothing: no gradient is reduced over several ranks'), stderr);
});

test.serial('halves that have nothing to hide run one after the other, and compile says so', async (t) => {
  const words = `compile ${MLP} --tp 1 --dp 2 --interleave 2 --verify -o idle`.split(' ');
  const { code, stderr } = await autopar(words, { cwd: folder });
  t.is(code, 0, stderr);
  t.true(
    stderr.includes('note: --interleave 2 hides nothing: the ranks communicate only scalars within a micro-batch'),
    stderr,
  );
});

test.serial('a server of one replica changes nothing, and compile says so', async (t) => {
  const words = `compile ${MLP} --tp 2 --dp 1 --gradient-sync parameter-server -o unserved`.split(' ');
  const { code, stderr } = await autopar(words, { cwd: folder });
  t.is(code, 0, stderr);
  t.true(stderr.includes('note: --gradient-sync parameter-server changes nothing: dp is 1'), stderr);
});

function oneOperator() {
  const builder = new GraphBuilder('one', 1);
  const input = builder.input('x', 'float32', [4, 8]);
  builder.output('y', builder.operator('MatMul', [input, builder.parameter('weight', [8, 8])]));
  return builder.build();
}
