/**
 * @file A step in micro-batches is the step of the whole batch: same losses, same weights, less memory; and where it would not
 * be, it is refused with the operator that mixes samples.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { floats, GraphBuilder } from '../../../models/builder.js';
import { cnn } from '../../../models/cnn.js';
import { gpt } from '../../../models/gpt.js';
import { languageModel } from '../../../models/language-model.js';
import { mlp } from '../../../models/mlp.js';
import { normalisedCnn } from '../../../models/normalised-cnn.js';
import { compile, type NestedCompileOptions } from '../../../src/api/compile.js';
import { randomInputs } from '../../../src/api/execution/inputs.js';
import { compiledModel } from '../../../src/api/models/compiled-model.js';
import type { Training } from '../../../src/api/models/training.js';
import { readSource } from '../../../src/api/output/folder.js';
import { lowerPlan } from '../../../src/api/planning/lower-plan.js';
import { openCompiled, verify } from '../../../src/api/verify.js';
import { AutoparError } from '../../../src/ir/error.js';
import type { Graph } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { liveness } from '../../../src/partition/liveness.js';
import { onlyStage } from '../../../src/partition/lower-stages.js';
import { runProgram } from '../../../src/runtime/run-program.js';
import { gptSizes } from '../../cost-model/step/sizes.js';
import { EVERYTHING, slowTests } from '../../selection.js';

const slow = slowTests(test);

function saved(t: ExecutionContext, graph: Graph): string {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'model.onnx');
  writeFileSync(file, writeOnnx(graph));
  return file;
}

interface Outcome {
  readonly losses: readonly number[];
  /** State for the next step, one list of numbers per tensor. */
  readonly state: readonly (readonly number[])[];
  /** Where state is updated in place. */
  readonly peakBytes: number;
}

async function train(
  model: string,
  training: Training,
  degrees: { readonly dp: number; readonly tp: number },
  options: Partial<NestedCompileOptions> = {},
): Promise<Outcome> {
  const { dp, tp } = degrees;
  const output = `${model}.${dp}.${tp}.${training.microBatches ?? 1}.autopar`;
  const { plan } = await compile({
    ...{ model, output, training, devices: dp * tp, degrees, axes: 'roles', force: true },
    ...options,
  });
  const { imported, program } = await openCompiled(output);
  const source = await readSource(output);
  const { planned } = await compiledModel(output, source, plan);
  const collect = (program.state ?? []).map(({ from }) => from).sort();
  const { history, tensors } = await runProgram(output, randomInputs(imported.graph, 3), { steps: 5, collect });
  return {
    losses: history['loss'] ?? [],
    state: collect.map((name) => numbersOf(tensors[name] as never)),
    peakBytes: liveness(onlyStage(lowerPlan(plan, planned.graph).lowered)).peakBytes,
  };
}

const SMALL = { batch: 8, sequence: 6, layers: 1, vocabulary: 24, causal: true };

const CASES: readonly { readonly name: string; readonly graph: Graph; readonly training: Training }[] = [
  {
    name: 'an MLP, squares, momentum',
    graph: mlp('small', { batch: 8, widths: [6, 10, 4] }, 1),
    training: { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.05, momentum: 0.9 } },
  },
  {
    name: 'a CNN, cross entropy, clipping',
    graph: cnn('cnn', { batch: 8, channels: 3, size: 8, widths: [4, 8], classes: 5 }, 1),
    training: {
      loss: { kind: 'cross_entropy' },
      optimizer: { kind: 'adamw', learningRate: 1e-3, clipNorm: 0.5, epsilon: 1e-3 },
    },
  },
  {
    name: 'a GPT, cross entropy, AdamW',
    graph: gpt('gpt', { batch: 8, sequence: 6, layers: 2, width: 16, heads: 2, vocabulary: 24 }, 1),
    training: { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3, epsilon: 1e-3 } },
  },
  {
    name: 'a generated GPT whose Dropout draws the masks of the whole batch',
    graph: languageModel('gpt', { ...gptSizes({ hidden: 16, heads: 2, dropout: 0.3 }), ...SMALL }, 1),
    training: { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'sgd', learningRate: 0.05 } },
  },
];

for (const { name, graph, training } of EVERYTHING ? CASES : CASES.slice(0, 1)) {
  test(`micro-batches change nothing but the memory: ${name}`, async (t) => {
    const file = saved(t, graph);
    const whole = await train(file, training, { dp: 1, tp: 1 });
    t.is(whole.losses.length, 5);
    const cases = [
      { dp: 2, tp: 1, microBatches: 2 },
      { dp: 1, tp: 1, microBatches: 8 },
      { dp: 2, tp: 2, microBatches: 4 },
    ];
    for (const { microBatches, ...degrees } of EVERYTHING ? cases : cases.slice(0, 1)) {
      const parts = await train(file, { ...training, microBatches }, degrees);
      const what = JSON.stringify({ ...degrees, microBatches });
      for (const [step, loss] of whole.losses.entries())
        t.true(Math.abs((parts.losses[step] ?? 0) - loss) <= 1e-5 * Math.max(1, loss), `${what}, step ${step}`);
      t.is(parts.state.length, whole.state.length);
    }
    const alone = await train(file, { ...training, microBatches: 4 }, { dp: 1, tp: 1 });
    t.true(
      alone.losses.every((loss, step) => Math.abs(loss - (whole.losses[step] ?? NaN)) <= 1e-5 * Math.max(1, loss)),
    );
    for (const [index, values] of whole.state.entries()) {
      const other = alone.state[index] ?? [];
      const distance = Math.hypot(...values.map((value, at) => value - (other[at] ?? NaN)));
      t.true(distance <= 1e-5 * Math.hypot(...values) + 1e-6, `state ${index}: ${distance}`);
    }
    t.true(alone.peakBytes < whole.peakBytes, `${alone.peakBytes} of ${whole.peakBytes} bytes`);
  });
}

test('16-bit recipes add up gradients in float32, whatever the micro-batches', async (t) => {
  const [{ graph }] = CASES as [(typeof CASES)[number]];
  const file = saved(t, graph);
  const training: Training = {
    loss: { kind: 'mse' },
    optimizer: { kind: 'sgd', learningRate: 0.05 },
    precision: 'fp16',
  };
  const whole = await train(file, training, { dp: 1, tp: 1 });
  const parts = await train(file, { ...training, microBatches: 4 }, { dp: 2, tp: 1 });
  t.is(whole.losses.length, 5);
  for (const [step, loss] of whole.losses.entries())
    t.true(Math.abs((parts.losses[step] ?? NaN) - loss) <= 2e-3 * Math.max(1, loss), `step ${step}`);
});

test('outputs with a batch are put together from their micro-batches, and verify compares them with the whole', async (t) => {
  const [{ graph, training }] = CASES as [(typeof CASES)[number]];
  const model = saved(t, graph);
  const output = `${model}.autopar`;
  await compile({
    ...{ model, output, training: { ...training, microBatches: 4 } },
    ...{ devices: 2, degrees: { dp: 2 }, axes: 'roles' },
  });
  const { passed, outputs } = await verify({ directory: output });
  t.true(passed);
  t.deepEqual([...new Set(outputs.map(({ name }) => name))].sort(), ['loss', 'y']);
});

test('the samples of a micro-batch say how many there are', async (t) => {
  const [{ graph, training }] = CASES as [(typeof CASES)[number]];
  const model = saved(t, graph);
  const compiled = (options: Partial<NestedCompileOptions>) =>
    compile({ model, output: `${model}.autopar`, force: true, training, devices: 2, planOnly: true, ...options });
  const { plan } = await compiled({ degrees: { dp: 2 }, microBatch: 1 });
  t.deepEqual(plan.schedule, { kind: 'single', microBatches: 4, microBatch: 1, batch: 8 });
  const refused = async (options: Partial<NestedCompileOptions>, says: RegExp) => {
    const error = await t.throwsAsync(compiled(options), { instanceOf: AutoparError });
    t.regex(`${error?.message} (${error?.hint})`, says);
  };
  await refused({ microBatch: 2, axes: 'roles' }, /dp is not given.*--micro-batches/);
  const open = await compiled({ microBatch: 2 });
  const { microBatches, microBatch, batch } = open.plan.schedule;
  t.deepEqual([microBatch, batch], [2, 8], 'a proposal says what dp is');
  t.is(microBatches * 2 * open.plan.degrees.dp, 8);
  await refused({ degrees: { dp: 2 }, microBatch: 3 }, /8 is not a multiple of dp 2 · micro-batch 3/);
  await refused(
    { degrees: { dp: 2 }, microBatch: 2, training: { ...training, microBatches: 4 } },
    /--micro-batch 2 contradicts --micro-batches 4: a batch of 8 on dp 2 has 2 of that size/,
  );
  await refused(
    { degrees: { dp: 2 }, microBatch: 1, interleave: 2 },
    /--interleave 2 .* with --micro-batch 1 of a batch of 8/,
  );
  await refused({ training: { ...training, microBatches: 3 } }, /8 cannot be cut into 3 equal/);
  await refused(
    { degrees: { dp: 2 }, training: { ...training, microBatches: 8 } },
    /dp 2 does not divide the micro-batch of 1/,
  );
});

test('an operator that mixes samples is named', async (t) => {
  const training: Training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 1 }, microBatches: 2 };
  const refused = async (
    write: (builder: GraphBuilder, hidden: string) => string,
    says: RegExp,
    loss: Training['loss'] = { kind: 'mse' },
  ) => {
    const builder = new GraphBuilder('mixing', 1);
    const x = builder.input('x', 'float32', [4, 6]);
    const hidden = builder.operator('MatMul', [x, builder.parameter('fc.weight', [6, 3])]);
    builder.output('y', write(builder, hidden));
    const model = saved(t, builder.build());
    const error = await t.throwsAsync(
      compile({ model, output: `${model}.autopar`, devices: 1, training: { ...training, loss } }),
      { instanceOf: AutoparError },
    );
    t.is(error?.code, 'mixes-samples');
    t.regex(error?.message ?? '', says);
  };
  await refused(
    (builder, hidden) =>
      builder.operator('Sub', [hidden, builder.operator('ReduceMean', [hidden], { axes: [0], keepdims: 1 })]),
    /ReduceMean.*depends on the others/,
  );
  await refused((builder, hidden) => builder.operator('Softmax', [hidden], { axis: 0 }), /Softmax/);
  const own = { kind: 'model-output' } as const;
  await refused(
    (builder) => builder.operator('ReduceSum', [builder.parameter('other', [3])], { axes: [0], keepdims: 0 }),
    /computes a loss without samples/,
    own,
  );
  await refused(
    (builder, hidden) => {
      builder.output('hidden', hidden);
      const other = builder.input('other', 'float32', [5, 6]);
      return builder.operator('MatMul', [other, builder.parameter('head.weight', [6, 3])]);
    },
    /computes a loss without samples/,
    { kind: 'mse', output: 'y' },
  );
  const norm = (op: string) => (builder: GraphBuilder, hidden: string) =>
    builder.operator(op, [hidden], { axes: [0, 1], keepdims: 0 });
  await refused(norm('ReduceL2'), /ReduceL2/, own);
  await refused(norm('ReduceMax'), /largest or smallest/, own);
  await refused(
    (builder, hidden) =>
      builder.operator('Mul', [norm('ReduceMean')(builder, hidden), builder.constant('two', floats([2]))]),
    /ReduceMean/,
    own,
  );
});

for (const op of ['ReduceMean', ...(EVERYTHING ? ['ReduceSum', 'ReduceSumSquare'] : [])]) {
  test(`a loss of the model's own is the sum of its micro-batches' parts: ${op}`, async (t) => {
    const builder = new GraphBuilder('own', 1);
    const x = builder.input('x', 'float32', [8, 6]);
    const hidden = builder.operator('MatMul', [x, builder.parameter('fc.weight', [6, 3])]);
    const bent = builder.operator('Tanh', [hidden]);
    builder.output('loss', builder.operator(op, [bent], { axes: [0, 1], keepdims: 0 }));
    const file = saved(t, builder.build());
    const training: Training = { loss: { kind: 'model-output' }, optimizer: { kind: 'sgd', learningRate: 0.05 } };
    const whole = await train(file, training, { dp: 1, tp: 1 });
    const parts = await train(file, { ...training, microBatches: 4 }, { dp: 2, tp: 1 });
    t.is(whole.losses.length, 5);
    for (const [step, loss] of whole.losses.entries())
      t.true(Math.abs((parts.losses[step] ?? NaN) - loss) <= 1e-5 * Math.max(1, Math.abs(loss)), `step ${step}`);
  });
}

test('gradients that ranks add up are those of the mean at as many times the learning rate, and dp is asked for', async (t) => {
  const file = saved(t, mlp('mlp', { batch: 4, widths: [8, 16, 8] }, 3));
  const at = (learningRate: number): Training => ({ loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate } });
  const degrees = { dp: 2, tp: 1 };
  const mean = await train(file, at(0.1), degrees);
  const sum = await train(file, { ...at(0.05), gradientReduction: 'sum' }, degrees);
  for (const [step, loss] of mean.losses.entries()) t.true(Math.abs((sum.losses[step] ?? 9) - loss) < 1e-6, `${step}`);
  for (const [index, values] of mean.state.entries())
    for (const [at, value] of values.entries())
      t.true(Math.abs((sum.state[index]?.[at] ?? 9) - value) < 1e-6, `${index} ${at}`);
  const open = compile({ model: file, training: { ...at(0.1), gradientReduction: 'sum' }, devices: 2 });
  const error = await t.throwsAsync(open, { instanceOf: AutoparError });
  t.regex(error?.message ?? '', /--gradient-reduction sum .* dp is not given/);
});

slow(
  'statistics of a batch are those of the whole batch: refused, unless parts have their own or the running ones are kept',
  async (t) => {
    const sizes = { batch: 4, channels: 2, size: 6, widths: [4], classes: 3, dropout: 0.2 };
    const file = saved(t, normalisedCnn('normalised', sizes, 1));
    const training: Training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'sgd', learningRate: 0.05 } };
    const microBatches = 2;
    const error = await t.throwsAsync(train(file, { ...training, microBatches }, { dp: 1, tp: 1 }), {
      instanceOf: AutoparError,
    });
    t.is(error?.code, 'mixes-samples');
    t.regex(error?.message ?? '', /BatchNormalization/);
    // Each micro-batch, or each shard of it, by its own: verify follows what was asked.
    for (const [batchStatistics, degrees] of [
      ['micro-batch', { dp: 2, tp: 1 }],
      ['shard', { dp: 2, tp: 1 }],
    ] as const) {
      const output = `${file}.${batchStatistics}.autopar`;
      const asked = { ...training, microBatches, batchStatistics };
      const { plan, verification } = await compile({
        ...{ model: file, output, training: asked, degrees, axes: 'roles', verify: true },
      });
      t.true(verification?.passed, batchStatistics);
      const reduced = Object.keys(plan.predicted.parts).some((part) => part.startsWith('all-reduce'));
      t.true(reduced, 'gradients are reduced');
    }
    const open = compile({ model: file, training: { ...training, batchStatistics: 'shard' }, devices: 2 });
    t.regex((await t.throwsAsync(open, { instanceOf: AutoparError }))?.message ?? '', /dp is not given/);
    const kept: Training = { ...training, freezeBatchStatistics: true };
    const whole = await train(file, kept, { dp: 1, tp: 1 });
    const parts = await train(file, { ...kept, microBatches }, { dp: 1, tp: 1 });
    for (const [step, loss] of whole.losses.entries())
      t.true(Math.abs((parts.losses[step] ?? NaN) - loss) <= 1e-5 * Math.max(1, loss), `step ${step}`);
  },
);
