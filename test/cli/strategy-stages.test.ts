/**
 * @file Stages in every notation of a plan, through the command line: exported plans compile to the same stages again, and
 * pins that contradict the stages are refused with both values.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import type { Program } from '../../src/program/program.js';
import type { Plan } from '../../src/strategy/plan.js';
import { slowTests } from '../selection.js';
import { autopar, autoparLine, workplace } from './autopar.js';

const slow = slowTests(test);

const { folder, remove } = workplace();
test.after.always(remove);

const GPT = 'models/gpt-tiny.onnx';
const STEP = '--train --loss cross_entropy --optimizer sgd';
const run = (line: string) => autoparLine(`autopar ${line} --quiet`, { cwd: folder });
const planOf = (name: string) => JSON.parse(readFileSync(join(folder, name, 'plan.json'), 'utf8')) as Plan;

/** The stage and chunk of every operator, and the mesh. */
const stagesOf = (name: string) => {
  const { operators, layerClasses, mesh, stages, schedule } = planOf(name);
  return {
    operators: Object.entries(operators).map(([operator, { stage, chunk = 0 }]) => [operator, stage, chunk]),
    layers: layerClasses.map(({ instances, stages: of, chunks }) => [instances, of, chunks]),
    ...{ mesh, stages, virtualStages: schedule.virtualStages },
  };
};

for (const [isSlow, name, degrees, step] of [
  [true, 'training', '--devices 8 --pp 2 --dp 2 --tp 2', `${STEP} --micro-batches 2`],
  [true, 'three', '--devices 3 --pp 3 --dp 1 --tp 1', STEP],
  [false, 'inference', '--devices 4 --pp 2 --dp 1 --tp 2', ''],
  [false, 'chunks', '--devices 2 --pp 2 --dp 1 --tp 1 --virtual-stages 2', STEP],
] as const)
  slowTests(test, isSlow)(`stages survive every notation: ${name}`, async (t) => {
    const done = async (line: string) => {
      const { code, stderr } = await run(line);
      t.is(code, 0, `${line}: ${stderr}`);
    };
    const devices = degrees.split(' --pp')[0];
    await done(`compile ${GPT} ${degrees} ${step} --plan-only -o ${name}`);
    await done(`strategy export ${name} --pins ${name}.yaml --mindspore ${name}.ckpt --onnx ${name}.onnx`);
    await done(`strategy import ${name}.onnx -o ${name}.back.plan.json`);
    t.is(
      readFileSync(join(folder, `${name}.back.plan.json`), 'utf8'),
      readFileSync(join(folder, name, 'plan.json'), 'utf8'),
    );
    const { pp, dp, tp } = planOf(name).degrees;
    await done(`strategy import ${name}.ckpt --model ${GPT} --dp ${dp} --tp ${tp} -o ${name}.mindspore.yaml`);
    await done(`strategy import ${name}.onnx --pins-only --dp ${dp} --tp ${tp} -o ${name}.onnx.yaml`);
    const { stages } = planOf(name);
    const files = stages.map((_, stage) => `${name}.${stage}.ckpt`);
    for (const [stage, file] of files.entries())
      await done(`strategy export ${name} --mindspore ${file} --stage ${stage}`);
    await done(`strategy merge ${files.join(' ')} -o ${name}.merged.ckpt`);
    t.deepEqual(readFileSync(join(folder, `${name}.merged.ckpt`)), readFileSync(join(folder, `${name}.ckpt`)));
    // The chunks of a stage have no place in the notations of others.
    const forms = name === 'chunks' ? ['yaml'] : ['yaml', 'mindspore.yaml', 'onnx.yaml'];
    for (const form of forms) {
      t.regex(readFileSync(join(folder, `${name}.${form}`), 'utf8'), new RegExp(`mesh:\\s*\\{? *pp: ${pp}`), form);
      await done(
        `compile ${GPT} ${devices} ${step} --annotations ${name}.${form} --plan-only --force -o ${name}.again`,
      );
      t.deepEqual(stagesOf(`${name}.again`), stagesOf(name), form);
    }
    if (name === 'chunks') return;
    // The annotated model says it all alone, as for another tool.
    await done(
      `compile ${name}.onnx ${devices} --pp ${pp} --dp ${dp} --tp ${tp} ${step} --plan-only --force -o ${name}.again`,
    );
    t.deepEqual(stagesOf(`${name}.again`), stagesOf(name));
  });

test('a layer that moves to another stage is one line', async (t) => {
  for (const [out, layout] of [
    ['early', 'E t | t H'],
    ['late', 'E t*2 | H'],
  ]) {
    const step = `${STEP} --schedule 1f1b --micro-batches 2`;
    const line = `compile ${GPT} --devices 2 --pp 2 --dp 1 --tp 1 ${step} --plan-only --quiet -o ${out}`;
    const { code, stderr } = await autopar([...line.split(' '), '--stages', layout ?? ''], { cwd: folder });
    t.is(code, 0, stderr);
  }
  const { stdout } = await autoparLine('autopar strategy diff early late', { cwd: folder });
  t.regex(stdout, /^stages \(1\)\n.*\n {2}h\.1 +stage 1 +stage 0\n/m);
  t.notRegex(stdout, /^operators/m);
  const { stdout: shown } = await autoparLine('autopar strategy show late', { cwd: folder });
  t.regex(shown, /schedule +1f1b, 2 micro-batches\n +stage 0 +\d+ operators on 1 device\n/);
});

test("a configuration of MindFormers' says stages, schedule and micro-batches", async (t) => {
  const lines = (pipeline: string) => [
    ...['use_parallel: True', 'parallel:', '  parallel_mode: 1', '  full_batch: True', '  pipeline_config:', pipeline],
    ...['parallel_config:', '  data_parallel: 1', '  model_parallel: 1', '  pipeline_stage: 2', '  micro_batch_num: 4'],
  ];
  for (const [scheduler, kind, note] of [
    ['gpipe', 'f-then-b', null],
    ['seqpipe', '1f1b', /pipeline_scheduler: schedule seqpipe is not supported; 1f1b is planned/],
  ] as const) {
    writeFileSync(join(folder, 'config.yaml'), lines(`    pipeline_scheduler: ${scheduler}`).join('\n'));
    const line = `compile ${GPT} --config config.yaml ${STEP} --plan-only --force -o configured`;
    const { code, stderr } = await autoparLine(`autopar ${line}`, { cwd: folder });
    t.is(code, 0, stderr);
    t.notRegex(stderr, /pipelines cannot be run/);
    if (note) t.regex(stderr, note);
    t.like(planOf('configured'), { degrees: { pp: 2 }, schedule: { kind, microBatches: 4 } });
  }
});

slow('weights of a pipeline are cut for other stages', async (t) => {
  const options = `${GPT} --devices 2 --pp 2 --dp 1 --tp 1 ${STEP} --micro-batches 2 --quiet`.split(' ');
  for (const more of [
    ['-o', 'whole', '--stages', 'E t | t H'],
    ['-o', 'other', '--stages', 'E t*2 | H', '--plan-only'],
  ])
    t.is((await autopar(['compile', ...options, ...more], { cwd: folder })).code, 0);
  const { code, stderr } = await run('strategy convert --weights whole other -o recut');
  t.is(code, 0, stderr);
  t.is((await run('verify recut')).code, 0);
});

slow('explain says the stage of an operator and a tensor, what is sent, and the memory of each stage', async (t) => {
  const line = `compile ${GPT} --devices 4 --pp 2 --dp 2 --tp 1 ${STEP} --micro-batches 2 -o explained`;
  const { code, stderr } = await run(line);
  t.is(code, 0, stderr);
  const explain = async (words: string) => JSON.parse((await run(`explain explained ${words} --json`)).stdout);
  const tensor = '/h.0/mlp/Add_output';
  const sent = await explain(`--tensor ${tensor}`);
  t.deepEqual(sent.places, [{ stage: 0, chunk: 0 }]);
  // The program sends the shard that its first stage holds.
  const program = JSON.parse(readFileSync(join(folder, 'explained/program/program.json'), 'utf8')) as Program;
  const [first] = program.stages;
  const sends = Object.values(first?.phases ?? {})
    .flat()
    .filter((own) => own.kind === 'send' && own.label === tensor);
  t.is(sends.length, 1);
  const [send] = sends;
  const shape = send?.kind === 'send' ? (first?.tensors[send.tensor]?.localShape ?? []) : [];
  const bytes = 4 * shape.reduce((product, size) => product * size, 1);
  t.deepEqual(sent.transfers, [{ from: 0, to: 1, bytes, when: 'micro' }]);
  t.deepEqual((await explain('--tensor /h.0/Add_output')).transfers, []);
  const tied = await explain('--tensor wte.weight');
  t.like(tied, { places: [{ stage: 0 }, { stage: 1 }], transfers: [{ from: 0, to: 1, when: 'begin' }] });
  t.like(await explain('--op /h.1/mlp/c_fc/MatMul'), { places: [{ stage: 1, chunk: 0 }], transfers: [] });
  const words = (await autoparLine('autopar explain explained --op /h.0/mlp/Add', { cwd: folder })).stdout;
  t.regex(
    words,
    /\n {2}stage {5}0\n[\s\S]*\n {2}sent {6}\/h\.0\/mlp\/Add_output from stage 0 to stage 1, .* in each micro-batch\n/,
  );
  const memory = (await autoparLine('autopar explain explained --memory', { cwd: folder })).stdout;
  t.deepEqual(
    [...memory.matchAll(/on each rank of stage (\d)/g)].map(([, stage]) => stage),
    ['0', '1'],
  );
});

for (const [says, pins, options, words] of [
  [
    'a pin beyond --pp',
    '{match: {node: /ln_f/**}, stage: 3}',
    '--devices 2 --pp 2',
    /pins\[0\]: stage 3 on \/ln_f\/\*\* places \/ln_f\/\S+ on stage 3, and the plan has 2 stages/,
  ],
  [
    'a pin, and --pp 1',
    '{match: {module: h.1}, stage: 1}',
    '--devices 2 --pp 1',
    /places \/h\.1\/\S+ on stage 1, and the plan has one stage/,
  ],
  [
    'two pins against the order of the model',
    '{match: {module: h.0}, stage: 1}, {match: {module: h.1}, stage: 0}',
    '--devices 2 --pp 2',
    /pins\[0\]: stage 1 on h\.0 places .* on stage 1, and pins\[1\]: stage 0 on h\.1 places .* on stage 0/,
  ],
  [
    'two pins of one operator',
    '{match: {module: h.0}, stage: 1}, {match: {node: /h.0/Add}, stage: 0}',
    '--devices 2 --pp 2',
    /its stage is 1 by the first and 0 by the second/,
  ],
  [
    '--stages against a pin',
    '{match: {module: h.1}, stage: 1}',
    '--devices 2 --pp 2 --stages E.t*2|H',
    /places \/h\.1\/\S+ on stage 1, and --stages "E t\*2 \| H" on stage 0/,
  ],
  [
    'a chunk that there is not',
    '{match: {module: h.1}, stage: 1, chunk: 2}',
    `--devices 2 --pp 2 --virtual-stages 2 ${STEP}`,
    /on stage 1, chunk 2, and the plan has 2 chunks/,
  ],
  [
    'pins in data mode',
    '{match: {module: h.1}, stage: 1}',
    '--devices 2 --mode data',
    /mode data shards the batch only/,
  ],
] as const)
  test(`refused: ${says}`, async (t) => {
    const file = `${says.replaceAll(/\W+/g, '-')}.yaml`;
    writeFileSync(join(folder, file), `version: 1\npins: [${pins}]\n`);
    const line = `compile ${GPT} ${options.replace(/--stages \S+/, '')} --annotations ${file} --plan-only -o refused`;
    const layout = options.includes('--stages') ? ['--stages', 'E t*2 | H'] : [];
    const { code, stderr } = await autopar([...line.split(/ +/), ...layout], { cwd: folder });
    t.true(code === 2 || code === 3, stderr);
    t.regex(stderr.replaceAll('\n', ' '), words);
    t.regex(stderr, /^error\[(stage-pins|pins-contradict|annotations-in-data-mode)\]/);
  });
