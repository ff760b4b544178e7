import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { llama } from '../../models/llama.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { slowTests } from '../selection.js';
import { autopar, workplace } from './autopar.js';

const slow = slowTests(test);

test('compile, run and verify as JSON', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const compiled = await autopar(['compile', 'models/mlp.onnx', '--devices', '2', '--tp', '2', '--verify', '--json'], {
    cwd: folder,
  });
  t.is(compiled.code, 0, compiled.stderr);
  const plan = JSON.parse(compiled.stdout) as {
    schema: string;
    directory: string;
    degrees: Record<string, number>;
    verification: { passed: boolean };
  };
  t.is(plan.schema, 'autopar-compile-v1');
  t.is(plan.degrees['tp'], 2);
  t.true(plan.verification.passed);
  const ran = await autopar(['run', plan.directory, '--steps', '3', '--json', '--outputs', 'y.npz'], { cwd: folder });
  t.is(ran.code, 0, ran.stderr);
  const report = JSON.parse(ran.stdout) as {
    schema: string;
    stepSeconds: number[];
    ranks: unknown[];
    outputs: unknown;
  };
  t.is(report.schema, 'autopar-run-v1');
  t.is(report.stepSeconds.length, 3);
  t.is(report.ranks.length, 2);
  t.deepEqual(report.outputs, { y: { dtype: 'float32', shape: [8, 16] } });
  t.true(existsSync(join(folder, 'y.npz')));
  const verified = await autopar(['verify', plan.directory, '--tensors', '--json'], { cwd: folder });
  t.is(verified.code, 0, verified.stderr);
  t.like(JSON.parse(verified.stdout), { schema: 'autopar-verify-v1', passed: true });
});

test('an impossible tolerance is a failed check: exit 1', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  t.is((await autopar(['compile', 'models/gpt-tiny.onnx', '--devices', '2', '--tp', '2'], { cwd: folder })).code, 0);
  const { code, stdout } = await autopar(['verify', 'gpt-tiny.autopar', '--rtol', '0', '--atol', '0'], { cwd: folder });
  t.is(code, 1);
  t.regex(stdout, /not equal[\s\S]*FAILED/);
});

test('--quiet says nothing, and errors all the same', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const compiled = await autopar(['compile', 'models/mlp.onnx', '--devices', '2', '--quiet'], { cwd: folder });
  t.like(compiled, { code: 0, stdout: '', stderr: '' });
  const missing = await autopar(['run', 'nowhere.autopar', '--quiet'], { cwd: folder });
  t.is(missing.code, 3);
  t.regex(missing.stderr, /^error\[/);
});

test('another folder is not overwritten without --force', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  mkdirSync(join(folder, 'mine'));
  writeFileSync(join(folder, 'mine', 'notes.txt'), 'keep');
  const refused = await autopar(['compile', 'models/mlp.onnx', '-o', 'mine', '--devices', '2'], { cwd: folder });
  t.is(refused.code, 7);
  t.regex(refused.stderr, /--force/);
  t.is(readFileSync(join(folder, 'mine', 'notes.txt'), 'utf8'), 'keep');
  t.is(
    (await autopar(['compile', 'models/mlp.onnx', '-o', 'mine', '--devices', '2', '--force'], { cwd: folder })).code,
    0,
  );
  t.true(existsSync(join(folder, 'mine', 'plan.json')));
});

slow('Ctrl-C ends a compilation and leaves nothing behind', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const sizes = {
    batch: 4,
    sequence: 16,
    layers: 240,
    width: 64,
    heads: 8,
    keyHeads: 4,
    feedForward: 128,
    vocabulary: 64,
  };
  writeFileSync(join(folder, 'deep.onnx'), writeOnnx(llama('deep', sizes, 1)));
  const before = readdirSync(folder).sort();
  const { code, stderr } = await autopar(['compile', 'deep.onnx', '--devices', '4'], {
    cwd: folder,
    meanwhile: (kill) => {
      setTimeout(() => kill('SIGINT'), 2000);
    },
  });
  // Where nothing is to be tidied up, the signal itself ends the process; a shell calls that 130 too.
  t.true(code === 130 || code === null, `${code} ${stderr}`);
  if (code === 130) t.regex(stderr, /^error\[interrupted\]/);
  t.deepEqual(readdirSync(folder).sort(), before);
});

test('a reader that goes away is no error', async (t) => {
  const { spawnSync } = await import('node:child_process');
  const { fileURLToPath } = await import('node:url');
  const main = fileURLToPath(new URL('../../bundle/cli/main.js', import.meta.url));
  const { status, stderr } = spawnSync('sh', ['-c', `"${process.execPath}" "${main}" hardware | true`], {
    encoding: 'utf8',
  });
  t.is(status, 0);
  t.is(stderr, '');
});
