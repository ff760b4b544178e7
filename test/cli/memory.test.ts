/**
 * @file `explain --memory` and what `compile` says of memory: the same bytes, in words and as JSON.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import test from 'ava';
import type { PeakMemory } from '../../src/api/reports/peak-memory.js';
import { autopar } from './autopar.js';

const MODEL = resolve('models/mlp.onnx');

test('memory at the peak is told by compile and by explain, in micro-batches too', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const directory = join(folder, 'out');
  const training = ['--train', '--loss', 'mse', '--optimizer', 'adamw', '--micro-batches', '2'];
  const compiled = await autopar(['compile', MODEL, '--dp', '2', '--tp', '1', ...training, '-o', directory, '--json']);
  t.is(compiled.code, 0, compiled.stderr);
  const { predicted, memory } = JSON.parse(compiled.stdout) as {
    readonly predicted: { readonly peakBytes: readonly number[] };
    readonly memory: readonly PeakMemory[];
  };
  t.deepEqual(
    memory.map(({ peakBytes }) => peakBytes),
    predicted.peakBytes,
  );
  const explained = await autopar(['explain', directory, '--memory', '--json']);
  t.is(explained.code, 0, explained.stderr);
  const { memory: all } = JSON.parse(explained.stdout) as { readonly memory: readonly PeakMemory[] };
  t.deepEqual(all[0]?.held.slice(0, 32), memory[0]?.held);
  t.deepEqual(all[0]?.others, { count: 0, bytes: 0 });
  t.is(
    all[0]?.held.reduce((sum, { bytes }) => sum + bytes, 0),
    predicted.peakBytes[0],
  );
  const { stdout } = await autopar(['explain', directory, '--memory']);
  t.regex(stdout, /B on each rank, at /);
  t.regex(stdout, /optimizer state .*B/);
  t.regex(stdout, /fc\d\.weight.* +float32 \[\d+, \d+\] +.*B +.*%/);
  t.regex(stdout, /and \d+ smaller/);
  const both = await autopar(['explain', directory, '--memory', '--tensor', 'x']);
  t.is(both.code, 2);
  t.regex(both.stderr, /one of --tensor, --op, --memory, --mesh/);
});

test('explain tells the memory limit that compile tells, and the stage where there are several', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  for (const [options, whose] of [
    [['--dp', '2', '--tp', '1'], 'each rank'],
    [['--dp', '1', '--tp', '1', '--pp', '2'], 'each rank of stage 1'],
  ] as const) {
    const directory = join(folder, `${options.length}`);
    const on = ['--cluster', '1x2:a100-sxm-80', '--plan-only', '-o', directory];
    const compiled = await autopar(['compile', resolve('models/gpt-tiny.onnx'), ...options, ...on]);
    t.regex(compiled.stdout, / of 80 GB memory per rank/, compiled.stderr);
    const { stdout } = await autopar(['explain', directory, '--memory']);
    t.regex(stdout, new RegExp(`B of 80 GB on ${whose}, at `));
  }
});

test('of many stages the fullest are shown, and the others as a range', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const directory = join(folder, 'out');
  const asked = [
    '--model',
    'gpt:layers=8,hidden=64,heads=4,seq=16,vocab=64',
    '--cluster',
    '1x8:a100-sxm-80',
    '--pp',
    '8',
  ];
  const compiled = await autopar([
    'compile',
    ...asked,
    '--train',
    '--global-batch',
    '16',
    '--plan-only',
    '-o',
    directory,
  ]);
  t.is(compiled.code, 0, compiled.stderr);
  const section = compiled.stdout.split('memory at the peak')[1] ?? '';
  t.is([...section.matchAll(/^ {2}stage \d+: /gm)].length, 4);
  t.regex(section, /^ {2}4 other stages: [\d.]+ MB \(explain --memory\)$/m);
  const { memory } = JSON.parse((await autopar(['explain', directory, '--memory', '--json'])).stdout) as {
    readonly memory: readonly PeakMemory[];
  };
  const fullest = [...memory].sort((a, b) => b.peakBytes - a.peakBytes).slice(0, 4);
  for (const { stage } of fullest) t.regex(section, new RegExp(`^ {2}stage ${stage}: `, 'm'));
});
