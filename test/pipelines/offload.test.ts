/**
 * @file Programs that keep parameters, gradients, the optimizer's state or activations on the host or on disk: the same bits as
 * on the devices alone, less on the devices, and every byte that is kept or moved as it is predicted.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { AutoparError, annotationsOf, compile, runCompiled } from '../../src/api/index.js';
import { openCompiled } from '../../src/api/verify.js';
import type { ProgramTensor } from '../../src/program/program.js';
import { runProgram } from '../../src/runtime/run-program.js';
import { EVERYTHING, slowTests } from '../selection.js';
import { train } from './compiled-training.js';
import { LOOKUP_TABLE, writeModel } from './models.js';
import { compareOffload } from './offloaded.js';

const slow = slowTests(test.serial);

const STEPS = EVERYTHING ? 3 : 2;

test.serial('data parallel ranks keep the optimizer on the host', async (t) => {
  const training = { optimizer: { kind: 'adamw' as const, learningRate: 1e-2, clipNorm: 0.5 } };
  const { whole, kept } = await compareOffload(
    t,
    { model: 'mlp', microBatches: 2, training },
    { stages: 1, dp: 2 },
    'optimizer',
    STEPS,
  );
  const [{ host } = { host: { peakBytes: 0 } }] = kept.outside.predicted;
  const moments = Object.values(kept.program.stages[0]?.tensors ?? {}).filter(
    ({ place, lifetime }) => place === 'host' && lifetime === 'run',
  );
  t.is(moments.length, 8);
  t.true(host.peakBytes > 0);
  t.true((whole.peaks.counted[0] ?? 0) - (kept.peaks.counted[0] ?? 0) > 0);
});

slow('tensor parallel ranks keep activations on the host and gradients on disk', async (t) => {
  const { kept } = await compareOffload(
    t,
    { model: 'mlp', microBatches: 2 },
    { stages: 1, tp: 2 },
    'activations:host,gradients:disk',
    STEPS,
  );
  const [{ host, disk } = { host: null, disk: null }] = kept.outside.predicted;
  t.true((host?.storedBytes ?? 0) > 0 && (host?.loadedBytes ?? 0) >= (host?.storedBytes ?? 0));
  t.true((disk?.storedBytes ?? 0) > 0);
});

slow('the stages of a pipeline keep all on disk', async (t) => {
  await compareOffload(t, { model: 'mlp', microBatches: 4 }, { kind: '1f1b', stages: 2 }, 'all:disk', STEPS);
});

test.serial('a table that is looked up on the host never comes to the device', async (t) => {
  const task = {
    model: 'lookup',
    microBatches: 2,
    training: { optimizer: { kind: 'adamw' as const, learningRate: 1e-2, clipNorm: 0.5 } },
  } as const;
  const mesh = { stages: 1, dp: 2 };
  const annotations = annotationsOf({ version: 1, pins: [{ match: { op: 'Gather' }, place: 'host' }] });
  const whole = await train(task, STEPS, mesh);
  const kept = await train(task, STEPS, mesh, { annotations });
  t.deepEqual(kept.losses, whole.losses);
  t.deepEqual(kept.peaks.counted, kept.peaks.predicted);
  t.deepEqual(kept.outside.counted, [...kept.outside.predicted, ...kept.outside.predicted]);
  const table = (tensors: Readonly<Record<string, ProgramTensor>>) =>
    Object.entries(tensors).filter(([, { localShape }]) => localShape.join() === LOOKUP_TABLE.join());
  const [{ tensors } = { tensors: {} }] = kept.program.stages;
  t.true(table(tensors).length > 3);
  t.deepEqual(
    table(tensors).filter(([, { place }]) => place !== 'host'),
    [],
  );
  const bytes = 4 * LOOKUP_TABLE[0] * LOOKUP_TABLE[1];
  t.true((whole.peaks.counted[0] ?? 0) - (kept.peaks.counted[0] ?? 0) >= 3 * bytes, 'the table and its two moments');
  t.true((kept.outside.counted[0]?.host.storedBytes ?? bytes) < bytes, 'rows alone cross the link');
});

slow(
  'where a table leaves no room, its lookup is proposed for the host, and a plan that takes the proposal fits',
  async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    try {
      const model = join(folder, 'lookup.onnx');
      writeModel('lookup', model);
      const training = { loss: { kind: 'mse' as const }, optimizer: { kind: 'adamw' as const, learningRate: 1e-2 } };
      const memory = 4 * 4 * LOOKUP_TABLE[0] * LOOKUP_TABLE[1];
      const options = { model, output: join(folder, 'out'), devices: 2, dp: 2, training, memory, planOnly: true };
      const refused = await t.throwsAsync(compile(options), { instanceOf: AutoparError });
      const [, node = '', said = '', unit = ''] =
        /(?:^|; else )pin (\S+) with place: host in annotations: a device then holds ([\d.]+) ([kM]?B) of /.exec(
          (refused as AutoparError).hint ?? '',
        ) ?? [];
      t.is(node, '/Gather');
      const annotations = annotationsOf({ version: 1, pins: [{ match: { node }, place: 'host' }] });
      const { plan } = await compile({ ...options, annotations });
      const peak = plan.predicted.peakBytes[0] ?? 0;
      t.true(peak <= memory);
      t.is(Number((peak / (unit === 'kB' ? 1e3 : 1)).toPrecision(3)), Number(said));
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);

slow('a limit on the device refuses what a program without offload would hold', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    const model = join(folder, 'mlp.onnx');
    writeModel('mlp', model);
    const training = { loss: { kind: 'mse' as const }, optimizer: { kind: 'adam' as const, learningRate: 1e-2 } };
    const compiled = async (offload: string) => {
      const directory = join(folder, offload);
      const { plan } = await compile({ model, output: directory, devices: 2, dp: 2, training, offload });
      return { directory, peak: plan.predicted.peakBytes[0] ?? 0 };
    };
    const [whole, kept] = [await compiled('none'), await compiled('optimizer')];
    t.true(kept.peak < whole.peak);
    await runCompiled({ directory: kept.directory, memory: kept.peak, steps: 2 });
    const error = await t.throwsAsync(runCompiled({ directory: whole.directory, memory: kept.peak }), {
      instanceOf: AutoparError,
    });
    t.is((error as AutoparError).code, 'over-memory');
    t.regex(
      error?.message ?? '',
      /^rank \d would hold \d+ bytes with tensor .+, and (--)?memory limits its device to \d+$/,
    );
    const [need = 0, limit = 0] = (/hold (\d+) bytes.* to (\d+)$/.exec(error?.message ?? '') ?? [])
      .slice(1)
      .map(Number);
    t.is(limit, kept.peak);
    t.true(need > limit && need <= whole.peak);
    await t.throwsAsync(runCompiled({ directory: kept.directory, memory: kept.peak - 1 }), {
      instanceOf: AutoparError,
    });
    await runCompiled({ directory: whole.directory, memory: whole.peak });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('what is on disk leaves nothing behind: done, failed, interrupted; a folder that cannot keep it is named', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    const model = join(folder, 'mlp.onnx');
    const directory = join(folder, 'out');
    const offloadDir = join(folder, 'kept');
    mkdirSync(offloadDir);
    writeModel('mlp', model);
    const training = { loss: { kind: 'mse' as const }, optimizer: { kind: 'adam' as const, learningRate: 1e-2 } };
    await compile({ model, output: directory, devices: 2, dp: 2, training, offload: 'all:disk' });
    await runCompiled({ directory, offloadDir });
    t.deepEqual(readdirSync(offloadDir), []);
    const { imported } = await openCompiled(directory);
    const inputs = randomInputs(imported.graph, 1);
    const fault = { rank: 1, instruction: 9, kind: 'throw' } as const;
    await t.throwsAsync(runProgram(directory, inputs, { offloadDir, fault }), { instanceOf: AutoparError });
    t.deepEqual(readdirSync(offloadDir), []);
    const controller = new AbortController();
    const interrupted = runProgram(directory, inputs, {
      ...{ offloadDir, steps: 1e6, signal: controller.signal },
      onProgress: ({ kind }) => (kind === 'step' ? controller.abort() : undefined),
    });
    await t.throwsAsync(interrupted, { instanceOf: AutoparError });
    t.deepEqual(readdirSync(offloadDir), []);
    const missing = await t.throwsAsync(runCompiled({ directory, offloadDir: join(folder, 'missing') }));
    t.is((missing as AutoparError).code, 'offload-folder');
    t.regex(missing?.message ?? '', /the offload folder .*missing cannot store .*: it does not exist$/);
    const file = await t.throwsAsync(runCompiled({ directory, offloadDir: model }));
    t.regex(file?.message ?? '', /it is not a folder$/);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
