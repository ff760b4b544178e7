/**
 * @file `autopar strategy` as a user types it: what it prints, its JSON, its exit codes.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { autoparLine, workplace } from './autopar.js';

const { folder, remove } = workplace();
test.after.always(remove);

const at = (name: string) => join(folder, name);
const run = (line: string) => autoparLine(`autopar ${line}`, { cwd: folder });

test.before(async (t) => {
  for (const [name, degrees] of [
    ['tp', '--dp 1 --tp 4'],
    ['dp', '--dp 2 --tp 2'],
  ]) {
    const { code, stderr } = await run(
      `compile models/mlp.onnx ${degrees} --axes roles -o ${name} --plan-only --quiet`,
    );
    t.is(code, 0, stderr);
  }
});

test('diff names what changed and what it costs, and its exit code can tell', async (t) => {
  const { code, stdout } = await run('strategy diff tp dp');
  t.is(code, 0);
  for (const words of ['settings', 'operators', 'layouts', 'predicted cost', 'compute', 'memory', 'received per rank'])
    t.true(stdout.includes(words), words);
  t.regex(stdout, /mesh +dp 1 · tp 4 +dp 2 · tp 2/);
  t.is((await run('strategy diff tp dp --exit-code --quiet')).code, 1);
  t.is((await run('strategy diff tp tp --exit-code')).stdout, 'no differences\n');
  const json = JSON.parse((await run('strategy diff tp dp --json')).stdout);
  t.like(json, { schema: 'autopar-strategy-v1', action: 'diff', same: false, form: 'plan' });
  t.true(json.cost.stepSeconds.before > 0);
});

test('every form is written, shown and read', async (t) => {
  t.is((await run('strategy export dp --mindspore a.ckpt --onnx a.onnx --pins a.yaml')).code, 0);
  for (const [file, words] of [
    ['dp', 'plan of mlp, version 2'],
    ['a.ckpt', 'MindSpore strategy checkpoint: 8 operators, 6 parameters, 1 stage'],
    ['a.onnx', 'plan of mlp, in an annotated model'],
  ]) {
    const { code, stdout } = await run(`strategy show ${file}`);
    t.is(code, 0);
    t.true(stdout.startsWith(words ?? ''), stdout);
    const json = JSON.parse((await run(`strategy show ${file} --json`)).stdout);
    t.like(json, { schema: 'autopar-strategy-v1', action: 'show' });
  }
  t.regex((await run('strategy show a.onnx --configuration autopar')).stdout, /pins \(\d+\)/);
  const imported = await run('strategy import a.onnx --json');
  t.like(JSON.parse(imported.stdout), { written: [{ from: 'onnx', to: 'plan', output: 'a.plan.json' }] });
  t.is(readFileSync(at('a.plan.json'), 'utf8'), readFileSync(at('dp/plan.json'), 'utf8'));
  t.is((await run('strategy import a.ckpt --model models/mlp.onnx')).code, 0);
  t.regex(readFileSync(at('a.pins.yaml'), 'utf8'), /node: \/fc0\/MatMul\n +split:/);
  t.is((await run('strategy import a.onnx --pins-only -o only.yaml')).code, 0);
  t.regex(readFileSync(at('only.yaml'), 'utf8'), /mesh:\s*\{? *dp: 2,?\s+tp: 2/);
});

test('pins that were exported say every factor', async (t) => {
  t.is((await run('strategy export dp --pins again.yaml')).code, 0);
  t.regex(
    readFileSync(at('again.yaml'), 'utf8'),
    /factors:\s+m: dp\s+k: "-"\s+n: tp|factors: \{ *m: dp, k: "?-"?, n: tp/,
  );
  t.is((await run('strategy export dp --pins again.json')).code, 0);
  const { pins } = JSON.parse(readFileSync(at('again.json'), 'utf8'));
  t.deepEqual(pins[0], { match: { node: '/fc0/MatMul' }, factors: { m: 'dp', k: '-', n: 'tp' } });
});

test('whatever form a plan went through, compiling with it costs the same', async (t) => {
  for (const line of [
    'strategy export dp --pins own.yaml --mindspore round.ckpt --onnx round.onnx',
    'strategy import round.ckpt --model models/mlp.onnx -o mindspore.yaml',
    'strategy import round.onnx --pins-only -o onnx.yaml',
  ])
    t.is((await run(line)).code, 0, line);
  for (const form of ['own', 'mindspore', 'onnx']) {
    const from = `--annotations ${form}.yaml --dp 2 --tp 2 --axes roles`;
    const { code, stderr } = await run(`compile models/mlp.onnx ${from} -o from-${form} --plan-only --quiet`);
    t.is(code, 0, stderr);
    const { cost } = JSON.parse((await run(`strategy diff dp from-${form} --json`)).stdout);
    t.is(cost.stepSeconds.after, cost.stepSeconds.before, form);
  }
});

test('weights are recut, in place or into a folder', async (t) => {
  for (const [name, degrees] of [
    ['one', '--dp 1 --tp 2'],
    ['other', '--dp 1 --tp 4'],
  ])
    t.is((await run(`compile models/mlp.onnx ${degrees} --axes roles -o ${name} --quiet`)).code, 0);
  const before = readFileSync(at('other/program/weights/tp.0+tp.1-3.safetensors'));
  t.is((await run('strategy convert --weights one other')).code, 0);
  t.deepEqual(readFileSync(at('other/program/weights/tp.0+tp.1-3.safetensors')), before);
  t.is((await run('strategy convert --weights other one/plan.json -o third')).code, 0);
  t.is((await run('verify third --quiet')).code, 0);
});

test('an export of several forms writes all of them or none', async (t) => {
  for (const [line, words] of [
    ['strategy export dp --mindspore one.ckpt --onnx models/mlp.onnx', 'is the model itself'],
    ['strategy export dp --mindspore one.ckpt --pins absent/two.yaml', 'its folder does not exist'],
    ['strategy export dp --mindspore one.json --tp-plan ./one.json', 'two forms are to be written to'],
  ] as const) {
    const ended = await run(line);
    t.true(ended.code !== 0 && ended.stderr.includes(words), `${line}\n${ended.stderr}`);
    t.false(existsSync(at('one.ckpt')) || existsSync(at('one.json')), line);
  }
});

test('what cannot be done is said', async (t) => {
  writeFileSync(at('bad.ckpt'), 'no protobuf');
  writeFileSync(at('bad.json'), '{"current_stage": 1');
  writeFileSync(at('any.onnx'), 'no model');
  writeFileSync(at('pins.yaml'), 'version: 1\npins: []\n');
  writeFileSync(at('pins.json'), '{"version": 1, "pins": []}');
  for (const [line, code, words] of [
    ['strategy', 2, 'missing-argument'],
    ['strategy dif', 2, 'did you mean diff'],
    ['strategy shw tp', 2, 'did you mean show'],
    ['strategy shw tp --all', 2, 'did you mean show'],
    ['strategy diff tp', 2, 'missing-argument'],
    ['strategy diff tp dp --exitcode', 2, 'did you mean --exit-code'],
    ['strategy export dp', 2, '--mindspore FILE'],
    ['strategy export dp --mindspore x.ckpt --stage 1', 2, 'the plan has 1 stage'],
    ['strategy show bad.ckpt', 3, 'bad-strategy'],
    ['strategy show bad.json', 3, 'bad-strategy'],
    ['strategy show pins.yaml', 3, '--annotations FILE'],
    ['strategy show pins.json', 3, '--annotations FILE'],
    ['strategy show any.onnx', 3, 'not-onnx'],
    ['strategy show absent', 3, 'file-missing'],
    ['strategy show models/mlp.onnx', 3, 'not-annotated'],
    ['strategy convert dp -o x.txt', 2, 'unknown-format'],
    ['strategy convert dp', 2, 'missing-argument'],
    ['strategy convert dp -o x --to pickle', 2, 'is not a valid choice'],
    ['strategy convert --weights dp tp -o x', 3, 'no-program'],
    ['strategy import dp --devices 8 -o x.plan.json', 3, 'there are 8 devices, not 4'],
  ] as const) {
    const ended = await run(line);
    t.is(ended.code, code, `${line}\n${ended.stderr}`);
    t.true(ended.stderr.includes(words), `${line}\n${ended.stderr}`);
    t.notRegex(ended.stderr, /at file:|fault/);
  }
});
