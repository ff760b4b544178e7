/**
 * @file The cost of pins in whole models, compared with planning again with each: attention, convolutions, a training step,
 * operators of equal layers, a memory limit that binds, a graph that elimination leaves open.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { compile, type NestedCompileOptions } from '../../../src/api/compile.js';
import { differences, explained } from '../pin-replans.js';

const CLUSTER = '1x4:a100-sxm-80';
const TRAINING = { loss: { kind: 'mse' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } } as const;

const CASES: readonly (Omit<NestedCompileOptions, 'output'> & { readonly named: string; readonly count?: number })[] = [
  { named: 'GPT', model: join('models', 'gpt-tiny.onnx'), degrees: { dp: 2, tp: 2 }, count: 12 },
  { named: 'GPT over tp alone', model: join('models', 'gpt-tiny.onnx'), degrees: { dp: 1, tp: 4 }, count: 6 },
  { named: 'Llama', model: join('models', 'llama-tiny.onnx'), degrees: { dp: 2, tp: 2 }, count: 6 },
  { named: 'convolutions', model: join('models', 'cnn-tiny.onnx'), degrees: { dp: 2, tp: 2 } },
  {
    named: 'convolutions, any axis',
    model: join('models', 'cnn-tiny.onnx'),
    degrees: { dp: 2, tp: 2 },
    axes: 'free',
    count: 12,
  },
  {
    named: 'an MLP in training',
    model: join('models', 'mlp.onnx'),
    degrees: { dp: 2, tp: 2 },
    // With pins, axes keep their roles unless they are freed.
    axes: 'roles',
    training: TRAINING,
    count: 20,
  },
  {
    named: 'GPT within 60 kB',
    model: join('models', 'gpt-tiny.onnx'),
    degrees: { dp: 1, tp: 4 },
    memory: 60_000,
    count: 1,
  },
];

function folder(t: ExecutionContext): string {
  const made = mkdtempSync(join(tmpdir(), 'autopar-pins-'));
  t.teardown(() => rmSync(made, { recursive: true, force: true }));
  return join(made, 'x');
}

for (const { named, count = Infinity, ...options } of CASES) {
  test.serial(`pins cost what planning with them adds: ${named}`, async (t) => {
    const all = await explained({ ...options, cluster: CLUSTER, output: folder(t) }, Math.min(count, 1000));
    t.true(all.found.operators.length > 5);
    t.deepEqual(await differences(all, count), []);
  });
}

test('within a memory limit that binds, figures hold for plans that keep it', async (t) => {
  const free = await compile({
    model: join('models', 'mlp.onnx'),
    cluster: CLUSTER,
    degrees: { dp: 2, tp: 2 },
    axes: 'roles',
    planOnly: true,
    output: folder(t),
  });
  const memory = Math.floor(0.97 * (free.plan.predicted.peakBytes[0] ?? 0));
  const tight = await explained({
    model: join('models', 'mlp.onnx'),
    cluster: CLUSTER,
    degrees: { dp: 2, tp: 2 },
    memory,
    output: folder(t),
  });
  t.true(tight.nanoseconds > free.plan.search.costSeconds * 1e9);
  t.is(tight.found.memoryBytes, memory);
  t.deepEqual(await differences(tight, 4), []);
  for (const { alone } of tight.found.operators) t.true(alone.atLeastSeconds >= 0);
});
