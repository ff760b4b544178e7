/**
 * @file Training runs on data files: against the same program stepped by hand, against one rank, and what ends them.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import {
  AutoparError,
  type CompileOptions,
  compile,
  openSession,
  readParallelConfig,
  Trainer,
  type TrainOptions,
  train,
} from '../../src/api/index.js';
import { readMetrics } from '../../src/api/training-run/metrics.js';
import { progressText } from '../../src/api/training-run/progress.js';
import { makeTensor, numberReader, uniform } from '../../src/api/verification/numbers.js';
import { writeNpy } from '../../src/program/arrays/npy.js';
import { writeNpz } from '../../src/program/arrays/npz.js';
import type { ConstantTensor } from '../../src/program/values.js';
import type { Plan } from '../../src/strategy/plan.js';
import { EVERYTHING, slowTests } from '../selection.js';

const slow = slowTests(test);

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

const GPT = 'models/gpt-tiny.onnx';
const SGD: NonNullable<CompileOptions['training']> = {
  loss: { kind: 'cross_entropy' },
  optimizer: { kind: 'sgd', learningRate: 0.1, momentum: 0.9 },
};

/** Tokens below 64, as a stream of uint16. */
const tokens = ((): string => {
  const next = uniform(5);
  const file = join(folder, 'tokens.bin');
  writeFileSync(
    file,
    Uint16Array.from({ length: 16 * 14 + 1 }, () => Math.floor(next() * 64)),
  );
  return file;
})();

async function compiled(name: string, options: Partial<CompileOptions> = {}): Promise<string> {
  const output = join(folder, name);
  await compile({ model: GPT, output, training: SGD, devices: 1, ...options });
  return output;
}

const run = (directory: string, options: Partial<TrainOptions> = {}) =>
  train({ directory, data: [tokens], seed: 4, ...options });

const near = (actual: number, expected: number, relative: number) =>
  Math.abs(actual - expected) <= relative * Math.abs(expected);

async function refused(work: Promise<unknown>): Promise<AutoparError> {
  const error = await work.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (error instanceof AutoparError) return error;
  throw new Error(`not refused: ${String(error)}`);
}

test('losses are those of the same batches fed by hand; each line of metrics.jsonl is a step', async (t) => {
  const directory = await compiled('by-hand');
  const { losses, state, stepsPerEpoch, bytesRead, metricsFile } = await train({
    ...{ directory, data: [tokens], inOrder: true, epochs: 2 },
  });
  t.is(stepsPerEpoch, 3);
  t.deepEqual(state.position, { epoch: 2, index: 0 });
  // Two epochs of 12 samples of 16 tokens of 2 bytes, as ids and as labels.
  t.deepEqual(bytesRead, [2 * 12 * 16 * 2 * 2]);
  const stream = Array.from(new Uint16Array(new Uint8Array(readFileSync(tokens)).buffer));
  const batch = (step: number, shift: number): ConstantTensor =>
    makeTensor({ dtype: 'int64', shape: [4, 16] }, (index) => stream[(step % 3) * 64 + index + shift] ?? 0);
  const session = await openSession(directory);
  const byHand: number[] = [];
  for (let step = 0; step < 6; step++) {
    const { outputs } = await session.step({ ids: batch(step, 0), labels: batch(step, 1) });
    byHand.push(numberReader(outputs['loss'] as ConstantTensor)(0));
  }
  await session.close();
  t.deepEqual(losses, byHand);
  const lines = await readMetrics(metricsFile);
  t.deepEqual(
    lines.map(({ step, epoch, loss, learningRate, lossScale }) => [step, epoch, loss, learningRate, lossScale]),
    byHand.map((loss, index) => [index + 1, index < 3 ? 1 : 2, loss, 0.1, 1]),
  );
  for (const { stepSeconds, samplesPerSecond, tokensPerSecond } of lines)
    t.deepEqual([samplesPerSecond, tokensPerSecond], [4 / stepSeconds, (4 * 16) / stepSeconds]);
});

test('losses, gradient norms and bytes of several ranks are those of one', async (t) => {
  const one = await run(await compiled('one'));
  const reference = await readMetrics(one.metricsFile);
  const plans: readonly (readonly [string, Partial<CompileOptions>, readers: number])[] = [
    ['dp2tp2', { degrees: { dp: 2, tp: 2 }, axes: 'roles' }, 2],
    ['pp2', { degrees: { pp: 2, dp: 1 }, axes: 'roles', training: { ...SGD, microBatches: 2 } }, 1],
    ['sp2', { degrees: { sp: 2, dp: 1 }, axes: 'roles' }, 2],
    [
      'clipped',
      {
        degrees: { dp: 2 },
        axes: 'roles',
        zero: 3,
        training: { ...SGD, optimizer: { ...SGD.optimizer, clipNorm: 1e6 } },
      },
      2,
    ],
    ['fp16', { degrees: { dp: 1 }, training: { ...SGD, precision: 'fp16' } }, 1],
  ];
  for (const [name, options, readers] of EVERYTHING ? plans : plans.slice(0, 1)) {
    const directory = await compiled(name, { ...(name === 'fp16' ? {} : { devices: undefined }), ...options } as never);
    const { metricsFile, bytesRead } = await run(directory);
    const tolerance = name === 'fp16' ? 1e-2 : 1e-5;
    for (const [index, { loss, gradientNorm, lossScale }] of (await readMetrics(metricsFile)).entries()) {
      const expected = reference[index];
      t.true(near(loss, expected?.loss ?? 0, tolerance), `${name}: ${loss} and ${expected?.loss}`);
      t.true(near(gradientNorm ?? 0, expected?.gradientNorm ?? 0, tolerance), `${name}: ${gradientNorm}`);
      t.is(lossScale, name === 'fp16' ? 2 ** 16 : 1);
    }
    const total = bytesRead.reduce((sum, bytes) => sum + bytes, 0);
    t.is(total, one.bytesRead[0] ?? 0, name);
    t.is(bytesRead.filter((bytes) => bytes > 0).length, readers, name);
    t.true(
      bytesRead.every((bytes) => bytes === 0 || bytes === total / readers),
      `${name}: ${bytesRead.join()}`,
    );
  }
});

test('dataset_strategy that cuts features too: each rank reads its slice of its samples, counted', async (t) => {
  const config = join(folder, 'parallel.yaml');
  const lines = [
    'parallel:',
    '  dataset_strategy: [[2, 2], [2]]',
    'parallel_config:',
    '  data_parallel: 2',
    '  model_parallel: 2',
  ];
  writeFileSync(config, lines.join('\n'));
  const options = { model: 'models/mlp.onnx', config: await readParallelConfig(config), devices: 4 };
  const [x, labels] = [
    makeTensor({ dtype: 'float32', shape: [24, 32] }, (index) => ((index * 7) % 13) / 13),
    makeTensor({ dtype: 'int64', shape: [24] }, (index) => index % 10),
  ];
  const data = [join(folder, 'features.npz')];
  writeFileSync(data[0] as string, writeNpz({ x, labels }));
  const whole = await train({ directory: await compiled('features-whole', { model: 'models/mlp.onnx' }), data });
  const cut = await train({ directory: await compiled('features-cut', options), data });
  // A rank has half of the features, 16 floats, of 12 samples; one of those that share their samples reads labels for both.
  t.deepEqual(cut.bytesRead, [12 * (16 * 4 + 8), 12 * 16 * 4, 12 * (16 * 4 + 8), 12 * 16 * 4]);
  t.deepEqual(whole.bytesRead, [24 * (32 * 4 + 8)]);
  for (const [step, loss] of cut.losses.entries()) t.true(near(loss, whole.losses[step] ?? 0, 1e-5), `${loss}`);
  const { stepSeconds, samplesPerSecond, tokensPerSecond } = whole.last;
  t.deepEqual([samplesPerSecond, tokensPerSecond], [24 / whole.stepsPerEpoch / stepSeconds, null], 'no tokens');
  t.regex(progressText(whole.last, 3, 1), /, [\d.]+ samples\/s, /);
});

slow('the last batch is padded with rows that do not count', async (t) => {
  const still = { ...SGD, optimizer: { kind: 'sgd', learningRate: 0 } } as const;
  const directory = await compiled('padded', { degrees: { dp: 2 }, devices: undefined, training: still } as never);
  const next = uniform(9);
  const rows = Array.from({ length: 5 }, () => Array.from({ length: 16 }, () => Math.floor(next() * 64)));
  const arrays = (samples: readonly (readonly number[])[]) => {
    const value = makeTensor({ dtype: 'int64', shape: [samples.length, 16] }, (index) => samples.flat()[index] ?? 0);
    return writeNpz({ ids: value, labels: value });
  };
  const [five, four] = [join(folder, 'five.npz'), join(folder, 'four.npz')];
  writeFileSync(five, arrays(rows));
  const last = rows[4] as readonly number[];
  writeFileSync(four, arrays([last, last, last, last]));
  const padded = await train({ directory, data: [five], inOrder: true, lastBatch: 'pad' });
  rmSync(join(directory, 'checkpoints'), { recursive: true });
  const alone = await train({ directory, data: [four], inOrder: true });
  t.is(padded.losses.length, 2);
  t.true(near(padded.losses[1] ?? 0, alone.losses[0] ?? 1, 1e-6), `${padded.losses[1]} and ${alone.losses[0]}`);
  t.is((await refused(train({ directory, data: [five], steps: 2, epochs: 2 }))).code, 'bad-option');
});

test('a loss that is not finite ends the run and names the first tensor that is not', async (t) => {
  const fast = (learningRate: number) => ({ ...SGD, optimizer: { kind: 'sgd', learningRate } }) as const;
  const folderOf = await compiled('diverged', { training: fast(1e30) });
  const diverged = await refused(run(folderOf, { checkpointEvery: 1 }));
  t.deepEqual(readdirSync(join(folderOf, 'checkpoints')), ['step-1'], 'the last good one stays');
  t.is(diverged.code, 'not-finite');
  t.is(diverged.exit, 'checkFailed');
  t.regex(diverged.message, /^the (loss|gradient) of step 2 is not finite; the first tensor that is not is \S+ \(/);
  t.not(diverged.where.node, undefined);
  // A weight that overflows under a finite gradient, whose loss nobody has seen yet.
  const overflown = await compiled('overflown', { model: 'models/mlp.onnx', training: fast(3e38) });
  const [x, labels] = [
    makeTensor({ dtype: 'float32', shape: [8, 32] }, (index) => 1e4 * (index % 5)),
    makeTensor({ dtype: 'int64', shape: [8] }, (index) => index),
  ];
  const large = join(folder, 'large.npz');
  writeFileSync(large, writeNpz({ x, labels }));
  const update = await refused(train({ directory: overflown, data: [large] }));
  t.regex(
    update.message,
    /^the update of step 1 is not finite; the first tensor that is not is fc\d\.\w+\/\S+ \(infinite/,
  );
  t.false(existsSync(join(overflown, 'checkpoints')));
  const squares = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.01 } } as const;
  const directory = await compiled('bad-input', {
    model: 'models/mlp.onnx',
    training: squares,
    degrees: { dp: 2 },
    axes: 'roles',
    devices: undefined,
  } as never);
  const session = await openSession(directory);
  const { inputs } = session.program;
  await session.close();
  const samples = 16;
  const file = join(folder, 'nan.npz');
  const array = ({ name, shape }: { name: string; shape: readonly number[] }) =>
    makeTensor({ dtype: 'float32', shape: [samples, ...shape.slice(1)] }, (index) =>
      name !== 'target' && index === 3 ? Number.NaN : 0.1,
    );
  writeFileSync(file, writeNpz(Object.fromEntries(inputs.map((value) => [value.name, array(value)]))));
  const fed = await refused(train({ directory, data: [file], inOrder: true }));
  t.is(fed.code, 'not-finite');
  const data = inputs.find(({ name }) => name !== 'target')?.name ?? '';
  t.true(
    fed.message.includes(`the first tensor that is not is ${data} (not a number, on rank 0), an input`),
    fed.message,
  );
});

test('what cannot be trained is refused before a rank starts', async (t) => {
  const inference = join(folder, 'inference');
  await compile({ model: GPT, output: inference, devices: 1 });
  t.is((await refused(run(inference))).code, 'not-trained');
  const directory = await compiled('refused');
  const few = join(folder, 'few.npy');
  writeFileSync(few, writeNpy(makeTensor({ dtype: 'uint16', shape: [40] }, () => 1)));
  const short = await refused(train({ directory, data: [few] }));
  t.is(short.code, 'data-too-short');
  t.regex(short.message, /a step takes 4 samples, and there are 2 in /);
  t.is((await refused(train({ directory, data: [few], steps: 0 }))).code, 'bad-option');
});

test('a trainer refuses what compile and train refuse, before anything is compiled', async (t) => {
  for (const options of [undefined, { training: SGD }, { model: GPT }])
    t.throws(() => new Trainer(options as never), { code: 'missing-argument' });
  const output = join(folder, 'no-trainer');
  const trainer = new Trainer({ model: GPT, output, training: SGD });
  const refusals: readonly (readonly [() => Promise<unknown>, string])[] = [
    [() => trainer.train({} as never), 'train() needs the option data'],
    [() => trainer.train({ data: [tokens], steps: 0 }), 'steps: expected a positive whole number, found 0'],
    [() => trainer.finetune({ data: [tokens], stepz: 1 } as never), "unknown option 'stepz' of train()"],
    [() => trainer.train({ data: [tokens], steps: 1, epochs: 1 }), 'epochs and steps both set the end of training'],
    [() => trainer.evaluate({} as never), 'evaluate() needs the option data'],
    [
      () => trainer.setParallelConfig({ dpp: 2 } as never).train({ data: [tokens] }),
      "unknown option 'dpp' of compile()",
    ],
  ];
  for (const [work, message] of refusals) t.is((await refused(work())).message, message);
  t.false(existsSync(output));
});

slow('a trainer evaluates what it trained, under another configuration too, and tunes it further', async (t) => {
  const trainer = new Trainer({ model: GPT, output: join(folder, 'trainer'), training: SGD });
  const before = await trainer.setParallelConfig({ devices: 1 }).evaluate({ data: [tokens] });
  t.is(before.samples, 14);
  const report = await trainer.train({ data: [tokens], epochs: 4, seed: 2 });
  const after = await trainer.evaluate({ data: [tokens] });
  t.true(after.loss < before.loss, `${after.loss} and ${before.loss}`);
  trainer.setParallelConfig({ dp: 2, tp: 2 });
  const elsewhere = await trainer.evaluate({ data: [tokens] });
  t.true(near(elsewhere.loss, after.loss, 1e-5), `${elsewhere.loss} and ${after.loss}`);
  const ids = makeTensor({ dtype: 'int64', shape: [4, 16] }, (index) => index % 64);
  const { logits } = await trainer.predict({ ids });
  t.deepEqual(logits?.shape, [4, 16, 64]);
  const tuned = await trainer.finetune({ data: [tokens], steps: 2, seed: 2 });
  t.true((tuned.losses[0] ?? 9) < (report.losses[0] ?? 0));
});

slow('evaluation weighs labels, not batches, and is that of the whole data at once', async (t) => {
  const still = { ...SGD, optimizer: { kind: 'sgd', learningRate: 0 } } as const;
  const directory = await compiled('evaluated', { devices: undefined, degrees: { dp: 2 }, training: still } as never);
  const next = uniform(11);
  const file = (name: string, samples: number, ignored: number) => {
    const draw = (isLabel: boolean) =>
      makeTensor({ dtype: 'int64', shape: [samples, 16] }, (index) =>
        isLabel && index % 16 < ignored * Math.floor(index / 64) ? -100 : Math.floor(next() * 64),
      );
    const path = join(folder, name);
    writeFileSync(path, writeNpz({ ids: draw(false), labels: draw(true) }));
    return path;
  };
  const data = file('uneven.npz', 8, 12);
  const trace = join(folder, 'trace.json');
  const { losses, evaluations, metricsFile } = await train({
    ...{ directory, data: [data], evalData: [data], evalEvery: 1, inOrder: true, trace },
  });
  // The first batch has 64 labels that count, the second 4 · 4.
  const expected = ((losses[0] ?? 0) * 64 + (losses[1] ?? 0) * 16) / 80;
  t.is(evaluations.length, 2);
  for (const { loss } of evaluations) t.true(near(loss, expected, 1e-6), `${loss} and ${expected}`);
  t.deepEqual(
    (await readMetrics(metricsFile)).map(({ evalLoss }) => evalLoss),
    evaluations.map(({ loss }) => loss),
  );
  const { traceEvents } = JSON.parse(readFileSync(trace, 'utf8')) as {
    traceEvents: { ph: string; name: string; tid: number; dur: number; cat: string; args: { bytes?: number } }[];
  };
  const spans = traceEvents.filter(({ ph }) => ph === 'X');
  t.deepEqual([...new Set(spans.map(({ tid }) => tid))].sort(), [0, 1]);
  t.true(spans.every(({ dur }) => dur >= 0));
  const kinds = new Set(spans.map(({ cat }) => cat));
  for (const kind of ['forward', 'backward', 'update', 'all-reduce', 'compute']) t.true(kinds.has(kind), kind);
  const { predicted } = JSON.parse(readFileSync(join(directory, 'plan.json'), 'utf8')) as Plan;
  for (const rank of [0, 1]) {
    const held = traceEvents.filter(({ ph, name }) => ph === 'C' && name === `memory of rank ${rank}`);
    t.is(Math.max(...held.map(({ args }) => args.bytes ?? 0)), predicted.peakBytes[0] ?? 0);
  }
});
