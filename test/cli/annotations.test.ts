import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { slowTests } from '../selection.js';
import { autoparLine, workplace } from './autopar.js';

const slow = slowTests(test);

const PAIR = `version: 1
mesh: {tp: 2}
pins:
  - match: {module: 'h.*.mlp'}
    style: pairwise
    why: Megatron's pair
`;

function place(t: ExecutionContext, files: Readonly<Record<string, string>>): string {
  const { folder, remove } = workplace();
  t.teardown(remove);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  return folder;
}

interface KeptPlan {
  readonly operators: Readonly<Record<string, { readonly stage: number }>>;
  readonly layerClasses: readonly { readonly instances: readonly string[]; readonly stages?: readonly number[] }[];
}

interface Printed {
  readonly degrees: Readonly<Record<string, number>>;
  readonly search: { readonly mode: string };
  readonly predicted: { readonly stepSeconds: number };
}

slow('what annotations pin is kept, and the rest is completed', async (t) => {
  const cwd = place(t, { 'pins.yaml': PAIR });
  const run = await autoparLine('autopar compile models/gpt-tiny.onnx -o a --annotations pins.yaml --verify', { cwd });
  t.is(run.code, 0, run.stderr);
  t.regex(run.stdout, /c_fc\/MatMul ×2 +MatMul +n: tp/);
  t.regex(run.stdout, /c_proj\/MatMul ×2 +MatMul +k: tp/);
  t.regex(run.stdout, /verified/);
  const explained = await autoparLine('autopar explain a --op /h.0/mlp/c_fc/MatMul', { cwd });
  t.regex(explained.stdout, /pinned +pins\[0\]: style pairwise on h\.\*\.mlp \(.*pins\.yaml:\d+\): Megatron's pair/);
});

test('completed by propagation, the chain of reasons leads back to the pin; the search costs no more', async (t) => {
  const cwd = place(t, { 'pins.yaml': PAIR.replace('mesh: {tp: 2}\n', '') });
  const compiled = async (options: string): Promise<Printed> => {
    const line = `autopar compile models/gpt-tiny.onnx -o a --devices 2 --annotations pins.yaml --json${options}`;
    const { code, stdout, stderr } = await autoparLine(line, { cwd });
    t.is(code, 0, stderr);
    return JSON.parse(stdout) as Printed;
  };
  const searched = await compiled('');
  const propagated = await compiled(' --complete propagate --verify');
  t.is(propagated.search.mode, 'sharding_propagation');
  t.true(searched.predicted.stepSeconds <= propagated.predicted.stepSeconds);
  const { stdout } = await autoparLine('autopar explain a --tensor /h.0/mlp/Gelu_output', { cwd });
  t.regex(
    stdout,
    /dimension 2 is on tp because\n.*tensor \/h\.0\/mlp\/Gelu_output.*\n[\s\S]*pins\[0\]: style pairwise/,
  );
});

test('in hybrid mode what is not pinned stays whole', async (t) => {
  const cwd = place(t, { 'pins.yaml': PAIR });
  const line = 'autopar compile models/gpt-tiny.onnx -o a --mode hybrid --annotations pins.yaml --verify';
  const { code, stdout, stderr } = await autoparLine(line, { cwd });
  t.is(code, 0, stderr);
  t.notRegex(stdout, /c_attn\/MatMul( ×2)? +MatMul +\w+: tp/);
  t.regex(stdout, /mlp\/c_proj\/MatMul ×2 +MatMul +k: tp/);
});

test('data mode shards the batch alone', async (t) => {
  const cwd = place(t, { 'pins.yaml': PAIR });
  const run = await autoparLine('autopar compile models/gpt-tiny.onnx -o a --mode data --devices 2 --json', { cwd });
  t.is(run.code, 0, run.stderr);
  const { degrees } = JSON.parse(run.stdout) as Printed;
  t.like(degrees, { dp: 2, tp: 1 });
  const refused = await autoparLine('autopar compile models/gpt-tiny.onnx -o a --mode data --tp 2', { cwd });
  t.is(refused.code, 2);
  t.regex(refused.stderr, /degree-in-data-mode/);
});

test('a MindFormers configuration is taken as it is, and its checkpoint can be loaded again', async (t) => {
  const config = (file: string) => `use_parallel: True
parallel:
  parallel_mode: 1
  full_batch: True
  enable_alltoall: False
  ${file}
parallel_config:
  data_parallel: 2
  model_parallel: 2
  vocab_emb_dp: False
`;
  const cwd = place(t, {
    'save.yaml': config('strategy_ckpt_save_file: strategy.ckpt'),
    'load.yaml': config('strategy_ckpt_load_file: strategy.ckpt'),
  });
  const run = await autoparLine('autopar compile models/gpt-tiny.onnx -o a --config save.yaml --json', { cwd });
  t.is(run.code, 0, run.stderr);
  t.like((JSON.parse(run.stdout) as Printed).degrees, { dp: 2, tp: 2 });
  t.true(existsSync(join(cwd, 'strategy.ckpt')));
  t.notRegex(run.stdout, /all-to-all/);
  const again = await autoparLine('autopar compile models/gpt-tiny.onnx -o b --config load.yaml --json --verify', {
    cwd,
  });
  t.is(again.code, 0, again.stderr);
  const [before, after] = [run, again].map(({ stdout }) => (JSON.parse(stdout) as Printed).predicted.stepSeconds);
  t.is(before, after);
});

test('what cannot be is refused with the file and the line', async (t) => {
  const stage = `${PAIR}  - match: {module: 'h.1.mlp'}\n    stage: 1\n`;
  const cwd = place(t, {
    'none.yaml': PAIR.replace('h.*.mlp', 'g.*.mlp'),
    'split.yaml': 'version: 1\nmesh: {tp: 2}\npins:\n  - match: {op: Softmax}\n    split: [[3]]\n',
    'stage.yaml': stage,
    'pipeline.yaml': 'use_parallel: True\nparallel_config:\n  pipeline_stage: 2\n  micro_batch_num: 2\n',
  });
  const compile = (rest: string) => autoparLine(`autopar compile models/gpt-tiny.onnx -o x ${rest}`, { cwd });
  const none = await compile('--annotations none.yaml');
  t.is(none.code, 3);
  t.regex(none.stderr, /none\.yaml:5/);
  t.not((await compile('--annotations split.yaml')).code, 0);
  t.is((await compile('--annotations stage.yaml')).code, 0);
  const kept = JSON.parse(readFileSync(join(cwd, 'x', 'plan.json'), 'utf8')) as KeptPlan;
  t.deepEqual(kept.layerClasses[0]?.stages, [0, 1], 'a pinned stage makes the pipeline that it asks for');
  const beyond = await compile('--annotations stage.yaml --pp 1');
  t.is(beyond.code, 2);
  t.regex(beyond.stderr, /stage 1 on h\.1\.mlp places .* on stage 1, and the plan has one stage/);
  const pipeline = await compile('--config pipeline.yaml');
  t.is(pipeline.code, 0, pipeline.stderr);
  t.regex(pipeline.stdout, /pp 2/);
  t.regex((await compile('--search-mode dynamic_programming --complete propagate')).stderr, /contradicts/);
});
