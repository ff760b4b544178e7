/**
 * @file Refusals of simulate, and of --model of other commands; and what they print for programs.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { autopar, autoparLine, workplace } from './autopar.js';

test('a model is a file or a family: neither and both are refused', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const run = (line: string) => autoparLine(line, { cwd: folder });
  const neither = await run('autopar inspect');
  t.is(neither.code, 2);
  t.regex(neither.stderr, /error\[missing-argument\]: neither a model file nor --model is given/);
  const both = await run('autopar simulate models/gpt-tiny.onnx --model gpt');
  t.is(both.code, 2);
  t.regex(both.stderr, /error\[bad-option\]: --model gpt contradicts the file models\/gpt-tiny\.onnx/);
  const unknown = await run('autopar simulate --model gtp:layers=2');
  t.is(unknown.code, 2);
  t.regex(unknown.stderr, /error\[unknown-family\][\s\S]*did you mean gpt\?/);
  const level = await run('autopar simulate --model gpt --zero 4');
  t.regex(level.stderr, /error\[bad-option\]: --zero 4: expected a whole number of at least 0 and at most 3/);
  const loss = await run('autopar simulate --model mlp:layers=2,hidden=8 --train --loss-output nothing');
  t.is(loss.code, 3);
  t.regex(loss.stderr, /error\[no-loss-output\]: the model has no output 'nothing'/);
  const untrained = await run('autopar simulate --model mlp:layers=2,hidden=8 --loss mse');
  t.is(untrained.code, 2);
  t.regex(untrained.stderr, /error\[bad-option\]: --loss applies to training only\n {2}hint: add --train/);
});

test('a generated model is inspected and compiled like a file', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const model = '--model llama:layers=2,hidden=32,heads=4,kv_heads=2,ffn=64,vocab=64,seq=8';
  const inspected = await autoparLine(`autopar inspect ${model} --json`, { cwd: folder });
  t.is(inspected.code, 0, inspected.stderr);
  const compiled = await autoparLine(
    `autopar compile ${model} --global-batch 4 --dp 2 --tp 1 --init random --verify -o out`,
    { cwd: folder },
  );
  t.is(compiled.code, 0, compiled.stderr);
  t.regex(compiled.stdout, /verified/);
});

test('a generated model that cannot be written beside others is an error with a place', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const env = { TMPDIR: join(folder, 'models', 'mlp.onnx'), TEMP: join(folder, 'models', 'mlp.onnx') };
  const { code, stderr } = await autoparLine('autopar inspect --model mlp:layers=2,hidden=8', { cwd: folder, env });
  t.is(code, 7, stderr);
  t.regex(stderr, /error\[cannot-write\]: cannot write .*autopar-models/);
});

test('even layers on devices that differ are shown, with the option for others', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const cluster =
    'version: 1\ndevice: h100-sxm-80\nlevels: [{name: node, size: 2}, {name: network, size: 2, bandwidth: 25GB/s}]\n' +
    'nodes: [{count: 1}, {count: 1, device: a100-sxm-80}]\n';
  writeFileSync(join(folder, 'mixed.yaml'), cluster);
  const line = 'autopar simulate --model gpt:layers=4,hidden=256,heads=4 --cluster mixed.yaml --tp 2 --pp 2';
  const even = await autoparLine(line, { cwd: folder });
  t.regex(even.stdout, /^ {2}stages {5}E t\*2 \| t\*2 H \(even; compile may cut otherwise .*--stages\)$/m);
  const { code, stdout, stderr } = await autopar([...line.split(' ').slice(1), '--stages', 't*3 | t'], { cwd: folder });
  t.is(code, 0, stderr);
  t.regex(stdout, /^ {2}stages {5}E t\*3 \| t H$/m);
});

test('--json has seconds and bytes by part, and the stages', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const line =
    'autopar simulate --model gpt:layers=4,hidden=256,heads=4 --cluster 1x4:h100-sxm-80 --train --tp 2 --pp 2 --json';
  const { code, stdout } = await autoparLine(line, { cwd: folder });
  t.is(code, 0);
  const result = JSON.parse(stdout) as Record<string, unknown> & { readonly stages: readonly unknown[] };
  t.is(result['schema'], 'autopar-simulate-v1');
  t.is(result.stages.length, 2);
  t.like(result['sent'], { spBytes: 0 });
});

test('--mesh shows where axes lie, of a simulation and of a compiled plan alike', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const run = (line: string) => autoparLine(line, { cwd: folder });
  const model = '--model gpt:layers=2,hidden=256,heads=4,seq=64 --cluster 2x2:a100-sxm-80 --global-batch 4';
  const usual = await run(`autopar simulate ${model} --tp 2 --mesh`);
  t.regex(usual.stdout, /\n {2}tp +2 {2}node 2 +node, 232 GB\/s/);
  const swapped = await run(`autopar simulate ${model} --train --tp 2 --mesh --mesh-order pp,tp,sp,dp`);
  t.regex(swapped.stdout, /\n {2}tp +2 {2}network 2 +network, 24 GB\/s/);
  const one = await run('autopar simulate --model mlp --cluster 1x1:a100-sxm-80 --mesh');
  t.regex(one.stdout, /one rank: no axis communicates/);
  const wrong = await run(`autopar simulate ${model} --mesh-order tp,dp`);
  t.is(wrong.code, 2);
  t.regex(wrong.stderr, /error\[bad-option\]: --mesh-order tp,dp: expected pp, dp, sp, tp in some order/);

  await run('autopar compile models/gpt-tiny.onnx --cluster 2x2:a100-sxm-80 --dp 2 --tp 2 --plan-only -o out');
  const explained = await run('autopar explain out --mesh');
  t.regex(explained.stdout, /tp +2 {2}node 2 +node, 232 GB\/s[^\n]*\n {2}dp +2 {2}network 2/);
  const json = JSON.parse((await run('autopar explain out --mesh --json')).stdout) as Record<string, unknown>;
  t.like(json, { schema: 'autopar-explain-v1', mesh: [{ axis: 'tp', ranks: 2 }, { axis: 'dp' }] });
  const both = await run('autopar explain out --mesh --op x');
  t.regex(both.stderr, /explain takes one of .*, not --op and --mesh together/);
  const traced = await run('autopar simulate out --trace trace.json');
  t.is(traced.code, 2);
  t.regex(traced.stderr, /takes no --trace\n {2}hint: .*autopar run DIR --trace FILE.*autopar train DIR --data/);
  const contrary = await run('autopar simulate out --tp 4');
  t.regex(contrary.stderr, /--tp contradicts the plan in out\n {2}hint: leave it out/);
});

test('explain without a question is the summary that compile printed', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const run = (line: string) => autoparLine(line, { cwd: folder });
  const trained =
    'models/gpt-tiny.onnx --devices 4 --dp 2 --pp 2 --train --micro-batches 2 --recompute full --plan-only';
  const compiled = await run(`autopar compile ${trained} -o out --json`);
  const explained = await run('autopar explain out --json');
  const [before, after] = [compiled, explained].map(({ stdout }) => JSON.parse(stdout) as Record<string, unknown>);
  const compared =
    'model cluster degrees precision predicted recompute search zero mostExpensive heaviest communication memory'.split(
      ' ',
    );
  for (const key of compared) t.deepEqual(after?.[key], before?.[key], key);
  t.regex(
    (await run('autopar explain out')).stdout,
    /predicted .* per step in fp32[\s\S]*recompute[\s\S]*most expensive operators/,
  );
});
