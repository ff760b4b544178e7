/**
 * @file What simulate, and --model of other commands, refuse; and what they print for programs.
 */
import test from 'ava';
import { autoparLine, workplace } from './autopar.js';

test('a model is a file or a family: neither and both are refused', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const run = (line: string) => autoparLine(line, { cwd: folder });
  const neither = await run('autopar inspect');
  t.is(neither.code, 2);
  t.regex(neither.stderr, /error\[missing-argument\]: there is no model file and no --model/);
  const both = await run('autopar simulate models/gpt-tiny.onnx --model gpt');
  t.is(both.code, 2);
  t.regex(both.stderr, /error\[bad-option\]: --model gpt contradicts the file models\/gpt-tiny\.onnx/);
  const unknown = await run('autopar simulate --model gtp:layers=2');
  t.is(unknown.code, 2);
  t.regex(unknown.stderr, /error\[unknown-family\][\s\S]*did you mean gpt\?/);
  const level = await run('autopar simulate --model gpt --zero 4');
  t.regex(level.stderr, /error\[bad-option\]: --zero 4: expected a whole number of at least 0 and at most 3/);
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
