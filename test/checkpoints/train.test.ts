/**
 * @file Trainings that stop and go on: under the same plan to the bit, under another; a disk that is full; weights in files.
 */
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import {
  AutoparError,
  type CompileOptions,
  compile,
  exportWeights,
  importModel,
  type TrainOptions,
  train,
} from '../../src/api/index.js';
import { readMetrics } from '../../src/api/training-run/metrics.js';
import { uniform } from '../../src/api/verification/numbers.js';
import { loadWeight } from '../../src/ir/onnx/tensors.js';
import { readManifest, writeManifest } from '../../src/program/checkpoint.js';
import { BoxReader } from '../../src/program/checkpoint-boxes.js';
import { openSafetensors } from '../../src/program/safetensors.js';
import { runOnnx } from '../../src/runtime/reference.js';
import { autopar } from '../cli/autopar.js';
import { canMount, missing } from '../missing.js';

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

const MODEL = 'models/gpt-tiny.onnx';

/** Tokens below 64, as a stream of uint16. */
const data = join(folder, 'tokens.bin');
const next = uniform(5);
writeFileSync(
  data,
  Uint16Array.from({ length: 16 * 21 + 1 }, () => Math.floor(next() * 64)),
);

async function compiled(name: string, options: Partial<CompileOptions>): Promise<string> {
  const output = join(folder, name);
  await compile({
    model: MODEL,
    output,
    devices: 2,
    axes: 'roles',
    training: { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-2 } },
    ...options,
  });
  return output;
}

const run = (directory: string, options: Partial<TrainOptions>) => train({ directory, data: [data], ...options });

async function refused(work: Promise<unknown>): Promise<AutoparError> {
  const error = await work.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (error instanceof AutoparError) return error;
  throw new Error(`not refused: ${String(error)}`);
}

const tp2 = () => compiled('tp2', { degrees: { dp: 1, tp: 2 } });

test.serial('a run in three parts is one run, over epochs; another plan goes on with it', async (t) => {
  const directory = await tp2();
  await refused(run(directory, { steps: 5, resume: true }));
  await refused(run(directory, { steps: 5, data: [join(folder, 'absent.npz')] }));
  t.false(existsSync(join(directory, 'checkpoints')));
  const whole = await run(await compiled('whole', { degrees: { dp: 1, tp: 2 } }), { steps: 13, seed: 4 });
  await run(directory, { steps: 5, seed: 4, checkpointEvery: 2, keep: 2 });
  t.deepEqual(readdirSync(join(directory, 'checkpoints')).sort(), ['step-4', 'step-5']);
  t.is((await refused(run(directory, { steps: 7 }))).code, 'checkpoints-there');
  const other = await compiled('dp2', { degrees: { dp: 2, tp: 1 }, zero: 1 });
  const { losses: there } = await run(other, { steps: 13, resume: directory });
  await run(directory, { steps: 7, resume: true });
  const { state, resumedFrom } = await run(directory, { steps: 13, resume: true });
  t.is(resumedFrom, join(directory, 'checkpoints', 'step-7'));
  t.deepEqual(state, whole.state);
  const lines = await readMetrics(join(directory, 'metrics.jsonl'));
  t.deepEqual(
    lines.map(({ step, loss }) => [step, loss]),
    whole.losses.map((loss, index) => [index + 1, loss]),
  );
  t.true(there.length === 8 && there.every((loss, index) => Math.abs(loss - (whole.losses[index + 5] ?? 0)) < 5e-6));
  for (const [options, code] of [
    [{ steps: 13 }, 'bad-option'],
    [{ steps: 20, seed: 5 }, 'bad-option'],
    [{ steps: 20, data: [data, data] }, 'data-changed'],
  ] as const)
    t.is((await refused(run(directory, { resume: true, ...options }))).code, code);
  t.is((await refused(compile({ model: MODEL, output: directory, devices: 2 }))).code, 'checkpoints-there');
});

test.serial('trained weights are in the ONNX file and in safetensors, to the bit', async (t) => {
  const directory = join(folder, 'tp2');
  const [onnx, safetensors] = [join(folder, 'trained.onnx'), join(folder, 'trained.safetensors')];
  const { step, tensors } = await exportWeights({ directory, output: onnx });
  t.deepEqual([step, tensors], [13, 28]);
  t.is((await exportWeights({ directory, output: safetensors })).tensors, 28);
  const source = join(directory, 'checkpoints', 'step-13');
  const checkpoint = await readManifest(source);
  const reader = new BoxReader(source);
  const [before, after] = [await importModel(MODEL), await importModel(onnx)];
  t.is(after.fingerprint, before.fingerprint);
  const file = await openSafetensors(safetensors);
  for (const [name, { source: value }] of after.graph.weights) {
    const stored = checkpoint.tensors[name];
    const bytes = await loadWeight(value);
    const expected = stored
      ? await reader.whole(name, stored)
      : await loadWeight(before.graph.weights.get(name)?.source ?? value);
    t.true(isSame(bytes, expected), name);
    if (stored) t.true(isSame((await file.read(name)).data, expected), name);
  }
  await file.close();
  await reader.close();
  const ids = { dtype: 'int64', shape: [4, 16], data: new Uint8Array(8 * 64) } as const;
  const [old, trained] = [await runOnnx(MODEL, { ids }), await runOnnx(onnx, { ids })];
  t.false(isSame(trained['logits']?.data ?? null, old['logits']?.data ?? null));
  t.is((await refused(exportWeights({ directory, output: join(folder, 'x.pt') }))).code, 'bad-option');
  // The model is not replaced, and nothing is written from a checkpoint that lacks the model's weights.
  const model = join(folder, 'copied.onnx');
  copyFileSync(MODEL, model);
  t.is((await refused(exportWeights({ directory, model, output: model }))).code, 'same-file');
  const other = join(folder, 'of-another-model');
  mkdirSync(other);
  await writeManifest(other, { ...checkpoint, tensors: {} });
  const output = join(folder, 'none.onnx');
  t.is((await refused(exportWeights({ directory, checkpoint: other, output }))).code, 'checkpoint-mismatch');
  t.false(existsSync(output));
});

test.serial(
  'Ctrl-C ends a run after its step with a checkpoint, from which it goes on as if it had never ended',
  async (t) => {
    const directory = await compiled('stopped', { degrees: { dp: 2, tp: 1 } });
    const whole = await run(await compiled('unstopped', { degrees: { dp: 2, tp: 1 } }), { steps: 8 });
    const root = join(directory, 'checkpoints');
    const stop = (after: number, options: Partial<TrainOptions>) => {
      const control = new AbortController();
      const onStep = ({ step }: { readonly step: number }) => {
        // In the step that follows.
        if (step === after) setImmediate(() => control.abort());
      };
      return refused(run(directory, { steps: 8, signal: control.signal, onStep, ...options }));
    };
    const notes: string[] = [];
    const error = await stop(2, { onNote: (text) => notes.push(text) });
    t.deepEqual([error.code, error.exit], ['training-stopped', 'interrupted']);
    t.is(error.message, 'interrupted after step 3 of 8; its checkpoint is written');
    t.is(error.hint, 'train again with resume to go on from there');
    t.deepEqual(notes, ['interrupted: a checkpoint is written after the step that is under way']);
    t.deepEqual(readdirSync(root), ['step-3']);
    t.is((await stop(5, { resume: true, checkpointEvery: 3 })).code, 'training-stopped');
    t.deepEqual(readdirSync(root).sort(), ['step-3', 'step-6']);
    const { losses, state } = await run(directory, { steps: 8, resume: true });
    t.deepEqual([losses, state], [whole.losses.slice(6), whole.state]);
    // Before the first step there is nothing to keep; after the last the run has ended.
    const control = new AbortController();
    const onProgress = (text: string) => {
      if (text.includes('is ready')) control.abort();
    };
    const early = await refused(run(directory, { steps: 9, resume: true, signal: control.signal, onProgress }));
    t.is(early.code, 'interrupted');
    const late = new AbortController();
    const onStep = () => late.abort();
    t.is((await run(directory, { steps: 9, resume: true, signal: late.signal, onStep })).state.step, 9);
    t.deepEqual(readdirSync(root).sort(), ['step-6', 'step-8', 'step-9']);
  },
);

test.serial('command: SIGINT and SIGTERM end a run with a checkpoint, and with the line that goes on', async (t) => {
  const directory = await compiled('signalled', { degrees: { dp: 2, tp: 1 } });
  const stepsIn = () => {
    const file = join(directory, 'metrics.jsonl');
    return existsSync(file) ? readFileSync(file, 'utf8').split('\n').length - 1 : 0;
  };
  for (const [signal, given] of [
    ['SIGINT', []],
    ['SIGTERM', ['--resume', directory]],
  ] as const) {
    const before = stepsIn();
    const words = ['train', directory, '--data', data, '--steps', '1000000'];
    const { code, stderr } = await autopar([...words, ...given], {
      meanwhile: (kill) => {
        const poll = setInterval(() => {
          if (stepsIn() < before + 2) return;
          clearInterval(poll);
          kill(signal);
        }, 50);
      },
    });
    t.is(code, 130, stderr);
    const [, step = ''] =
      /^error\[training-stopped\]: interrupted after step (\d+) of 1000000; its/m.exec(stderr) ?? [];
    t.is(Number(step), stepsIn());
    t.true(stderr.endsWith(`\n  hint: go on with: autopar ${words.join(' ')} --resume\n`), stderr);
    t.true(readdirSync(join(directory, 'checkpoints')).includes(`step-${step}`), stderr);
  }
});

const noMount = missing(!canMount(), 'a full disk (no file system may be mounted here)');
(noMount ? test.serial.skip : test.serial)(
  'a full disk: the run says so and goes on, and the last good stays',
  async (t) => {
    const directory = await compiled('full', { degrees: { dp: 2, tp: 1 } });
    const disk = join(directory, 'checkpoints');
    mkdirSync(disk);
    t.is(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=700k', 'none', disk]).status, 0);
    try {
      const notes: string[] = [];
      const onNote = (text: string) => notes.push(text);
      const error = await refused(run(directory, { steps: 5, checkpointEvery: 2, onNote }));
      t.deepEqual([error.code, error.exit], ['disk-full', 'cannotWrite'], 'the last one must be written');
      t.is(notes.length, 1);
      t.regex(notes[0] ?? '', /not written; the previous one remains: cannot write .*step-4.*: the disk is full/);
      t.deepEqual(readdirSync(disk), ['step-2']);
      t.is((await readMetrics(join(directory, 'metrics.jsonl'))).length, 5);
      t.is(spawnSync('mount', ['-o', 'remount,size=2m', disk]).status, 0);
      const { losses } = await run(directory, { steps: 5, resume: true });
      t.is(losses.length, 3);
      t.deepEqual(readdirSync(disk).sort(), ['step-2', 'step-5']);
    } finally {
      spawnSync('umount', [disk]);
    }
  },
);

(noMount ? test.serial.skip : test.serial)(
  'a disk that is full for a while, metrics too: every line is there at the end, once',
  async (t) => {
    const disk = join(folder, 'small');
    mkdirSync(disk);
    t.is(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'none', disk]).status, 0);
    try {
      const directory = await compiled('small/run', { degrees: { dp: 1, tp: 1 }, devices: 1 });
      const filler = join(disk, 'filler');
      const notes: string[] = [];
      const onStep = ({ step }: { step: number }) => {
        if (step === 2) t.throws(() => writeFileSync(filler, new Uint8Array(2 ** 22)), { code: 'ENOSPC' });
        if (step === 30) rmSync(filler);
      };
      await run(directory, { steps: 32, onStep, onNote: (text) => notes.push(text) });
      t.is(notes.length, 1);
      t.regex(notes[0] ?? '', /metrics cannot be written yet: cannot write .*metrics\.jsonl: the disk is full/);
      const lines = readFileSync(join(directory, 'metrics.jsonl'), 'utf8').trim().split('\n');
      t.deepEqual(
        lines.map((line) => JSON.parse(line).step),
        Array.from({ length: 32 }, (_, index) => index + 1),
      );
    } finally {
      spawnSync('umount', [disk]);
    }
  },
);

test.serial(
  'what is wrong behind the last step costs no checkpoint, and is found before where it can be',
  async (t) => {
    const directory = await compiled('behind', { degrees: { dp: 1, tp: 1 }, devices: 1 });
    const nowhere = await refused(run(directory, { steps: 2, trace: join(folder, 'nowhere/trace.json') }));
    t.deepEqual([nowhere.code, existsSync(join(directory, 'metrics.jsonl'))], ['cannot-write', false]);
    const foreign = join(folder, 'foreign.bin');
    writeFileSync(
      foreign,
      Uint16Array.from({ length: 16 * 5 }, () => 64),
    );
    t.is((await refused(run(directory, { steps: 2, evalData: [foreign] }))).code, 'token-out-of-range');
    t.deepEqual(readdirSync(join(directory, 'checkpoints')), ['step-2']);
  },
);

function isSame(one: Uint8Array | null, other: Uint8Array | null): boolean {
  return one !== null && other !== null && Buffer.compare(one, other) === 0;
}
