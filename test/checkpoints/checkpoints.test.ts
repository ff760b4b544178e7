/**
 * @file Checkpoints of one run: which are kept, which are refused, and that no damaged byte goes unnoticed.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { Checkpoints } from '../../src/api/execution/checkpoints.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { labelBounds } from '../../src/api/execution/labels.js';
import {
  AutoparError,
  type CompileOptions,
  compile,
  openSession,
  type Session,
  type Training,
} from '../../src/api/index.js';
import { readCompiled } from '../../src/api/output/folder.js';
import { openCompiled } from '../../src/api/verify.js';
import { stableJson } from '../../src/program/atomic.js';
import { readManifest } from '../../src/program/checkpoint.js';
import { BoxReader } from '../../src/program/checkpoint-boxes.js';

import { takeLock } from '../../src/program/lock.js';
import type { UnshardedTensors } from '../../src/runtime/session.js';

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

const TRAINING: Training = {
  loss: { kind: 'cross_entropy' },
  optimizer: { kind: 'adamw', learningRate: 1e-2 },
};

const compiled = new Map<string, Promise<string>>();

/** A compiled perceptron; each form once. */
function program(name: string, options: Partial<CompileOptions>): Promise<string> {
  const known =
    compiled.get(name) ??
    compile({
      ...{ model: 'models/mlp.onnx', output: join(folder, name), devices: 2, axes: 'roles', training: TRAINING },
      ...options,
    }).then(() => join(folder, name));
  compiled.set(name, known);
  return known;
}

const dp2 = () => program('dp2', { degrees: { dp: 2, tp: 1 } });
const tp2 = () => program('tp2', { degrees: { dp: 1, tp: 2 } });

interface Run {
  readonly session: Session;
  readonly checkpoints: Checkpoints;
  readonly inputs: UnshardedTensors;
  readonly end: () => Promise<void>;
}

async function begin(directory: string, keep?: number): Promise<Run> {
  const { imported } = await openCompiled(directory);
  const checkpoints = await Checkpoints.open(directory, await readCompiled(directory), keep);
  const session = await openSession(directory);
  const end = async () => {
    await session.close();
    await checkpoints.close();
  };
  return { session, checkpoints, inputs: randomInputs(imported.graph, 1, labelBounds(imported.training)), end };
}

async function readAll(source: string): Promise<void> {
  const { tensors } = await readManifest(source);
  const reader = new BoxReader(source);
  try {
    for (const [name, stored] of Object.entries(tensors)) await reader.whole(name, stored);
  } finally {
    await reader.close();
  }
}

async function resume({ checkpoints, session }: Run, from: string) {
  const { folder: source, checkpoint, notes } = await checkpoints.find(from);
  await session.restore(source, checkpoint.tensors);
  return { step: checkpoint.step, state: checkpoint.state, notes };
}

function codeOf(error: unknown): string {
  return error instanceof AutoparError ? error.code : String(error);
}

async function refusal(of: Promise<unknown>): Promise<AutoparError> {
  return of.then(
    () => new AutoparError('fault', 'fault', 'nothing was refused'),
    (error: unknown) => (error instanceof AutoparError ? error : Promise.reject(error)),
  );
}

test.serial('the newest are kept; those behind the step that a run goes back to go with its first', async (t) => {
  const directory = await dp2();
  const run = await begin(directory, 2);
  await run.checkpoints.checkNone();
  for (const step of [1, 2, 3, 4]) {
    await run.session.step(run.inputs);
    const { bytes } = await run.checkpoints.save(run.session, { step, state: { epoch: 1, sample: step * 8 } });
    t.true(bytes > 3 * 29_000);
  }
  const root = join(directory, 'checkpoints');
  t.deepEqual(readdirSync(root).sort(), ['lock', 'step-3', 'step-4']);
  t.is((await refusal(run.checkpoints.checkNone())).code, 'checkpoints-there');
  const { step, state, notes } = await resume(run, join(root, 'step-3'));
  t.deepEqual([step, state, notes], [3, { epoch: 1, sample: 24 }, []]);
  await run.checkpoints.save(run.session, { step: 3, state });
  t.deepEqual(readdirSync(root).sort(), ['lock', 'step-3']);
  await run.end();
  t.deepEqual(readdirSync(root), ['step-3']);
});

test.serial('another plan goes on with the same state', async (t) => {
  const [one, other] = [await begin(await dp2()), await begin(await tp2())];
  for (let step = 0; step < 3; step++) await one.session.step(one.inputs);
  await one.checkpoints.save(one.session, { step: 3, state: {} });
  const names = (one.session.program.state ?? []).map(({ to }) => to);
  const saved = await one.session.read(names);
  t.is((await resume(other, await dp2())).step, 3);
  t.deepEqual(await other.session.read(names), saved);
  t.deepEqual((await other.session.step(other.inputs)).outputs['loss']?.shape, []);
  await one.end();
  await other.end();
});

test.serial('one run at a time; the lock of a process that is no more is taken over', async (t) => {
  const directory = await dp2();
  const run = await begin(directory);
  const second = await refusal(Checkpoints.open(directory, await readCompiled(directory)));
  t.deepEqual([second.code, second.exit], ['folder-in-use', 'cannotWrite']);
  // A folder in which a training runs is not replaced, before its first checkpoint and by force neither.
  const other = { model: 'models/mlp.onnx', output: directory, devices: 2, training: TRAINING };
  for (const force of [false, true]) t.is((await refusal(compile({ ...other, force }))).code, 'folder-in-use');
  await run.end();
  const file = join(directory, 'checkpoints', 'lock');
  const script =
    `import('${new URL('../../src/program/lock.js', import.meta.url).href}').then(({ takeLock }) => ` +
    `takeLock('${file}', 'x')).then(() => process.kill(process.pid, 'SIGKILL'))`;
  t.is(spawnSync(process.execPath, ['-e', script]).signal, 'SIGKILL');
  t.true(existsSync(file));
  const contenders = await Promise.allSettled(Array.from({ length: 5 }, () => takeLock(file, 'x')));
  const taken = contenders.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  t.is(taken.length, 1);
  await taken[0]?.();
  t.false(existsSync(file));
});

test.serial('a checkpoint of another model or optimizer is refused, naming what differs', async (t) => {
  const sgd = await program('sgd', { training: { ...TRAINING, optimizer: { kind: 'sgd', learningRate: 1e-2 } } });
  const run = await begin(sgd);
  const error = await refusal(resume(run, await dp2()));
  t.is(error.code, 'checkpoint-mismatch');
  t.regex(error.message, /tensor fc0\.bias\/mean is float32 \[64\], and absent in the program/);
  t.is((await run.session.step(run.inputs)).ranks.length, 2, 'the session goes on');
  await run.end();
});

test.serial('another learning rate is no other model, and is said', async (t) => {
  const faster = await program('faster', {
    training: { ...TRAINING, optimizer: { kind: 'adamw', learningRate: 2e-2 } },
  });
  const run = await begin(faster);
  const { notes } = await resume(run, await dp2());
  t.deepEqual(notes, ['optimizer.learningRate is 0.02, and 0.01 in the checkpoint']);
  await run.end();
});

test.serial('every flipped bit and every cut of a file is found, and the tensor named', async (t) => {
  const source = join(await dp2(), 'checkpoints', 'step-3');
  const manifest = await readManifest(source);
  for (const name of readdirSync(source)) {
    const file = join(source, name);
    const whole = readFileSync(file);
    for (let place = 3; place < whole.length; place += Math.ceil(whole.length / 5)) {
      const bytes = Buffer.from(whole);
      bytes.writeUInt8(bytes.readUInt8(place) ^ 1, place);
      writeFileSync(file, bytes);
      await check(`byte ${place} of ${name}`);
    }
    for (const length of [0, 7, whole.length - 2]) {
      writeFileSync(file, whole);
      truncateSync(file, length);
      await check(`${name} cut to ${length}`);
    }
    writeFileSync(file, whole);
  }
  await readAll(source);

  async function check(what: string): Promise<void> {
    const error = await refusal(readAll(source));
    t.is(error.code, 'bad-checkpoint', what);
    const { tensor } = error.where;
    t.true(what.includes('manifest') || (tensor !== undefined && tensor in manifest.tensors), what);
  }
});

test.serial('newer versions and empty folders are refused', async (t) => {
  const run = await begin(await tp2());
  const source = join(await dp2(), 'checkpoints', 'step-3', 'manifest.json');
  const text = readFileSync(source, 'utf8');
  writeFileSync(source, stableJson({ ...JSON.parse(text), version: 2 }));
  const error = await refusal(resume(run, await dp2()));
  writeFileSync(source, text);
  t.deepEqual([error.code, error.hint], ['newer-checkpoint', 'update autopar']);
  t.is(codeOf(await refusal(resume(run, folder))), 'no-checkpoint');
  await run.end();
});
