/**
 * @file Training on local ranks: losses of all degrees agree, a step is what finite differences say, and what cannot be trained
 * is refused with the way.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { floats, GraphBuilder } from '../../../models/builder.js';
import { mlp } from '../../../models/mlp.js';
import { compile } from '../../../src/api/compile.js';
import { randomInputs } from '../../../src/api/execution/inputs.js';
import { importModel } from '../../../src/api/models/import.js';
import { type Training, withTraining } from '../../../src/api/models/training.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import { openCompiled } from '../../../src/api/verify.js';
import { AutoparError } from '../../../src/ir/error.js';
import type { ErrorCode } from '../../../src/ir/error-codes.js';
import type { Graph } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { runProgram } from '../../../src/runtime/run-program.js';
import { EVERYTHING } from '../../selection.js';

function folder(t: ExecutionContext): string {
  const made = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

function saved(t: ExecutionContext, graph: Graph): string {
  const file = join(folder(t), 'model.onnx');
  writeFileSync(file, writeOnnx(graph));
  return file;
}

const SMALL = mlp('small', { batch: 8, widths: [6, 10, 4] }, 1);

async function losses(
  t: ExecutionContext,
  model: string,
  training: Training,
  degrees: { readonly dp: number; readonly tp: number },
  steps: number,
): Promise<readonly number[]> {
  const output = join(folder(t), 'out');
  await compile({ model, output, training, devices: degrees.dp * degrees.tp, degrees, axes: 'roles' });
  const { imported } = await openCompiled(output);
  const { history } = await runProgram(output, randomInputs(imported.graph, 3), { steps });
  return history['loss'] ?? [];
}

const OPTIMIZERS: readonly Training['optimizer'][] = [
  { kind: 'sgd', learningRate: 0.05, momentum: 0.9, nesterov: true, weightDecay: 0.01 },
  { kind: 'adamw', learningRate: 0.02, schedule: { warmup: 3, shape: 'cosine', total: 12 }, clipNorm: 0.5 },
  { kind: 'lamb', learningRate: 0.02 },
];

for (const optimizer of OPTIMIZERS) {
  test(`one rank, dp, tp and both take the same steps: ${optimizer.kind}`, async (t) => {
    const file = saved(t, SMALL);
    const training: Training = { loss: { kind: 'mse' }, optimizer };
    const alone = await losses(t, file, training, { dp: 1, tp: 1 }, 12);
    t.is(alone.length, 12);
    t.true((alone.at(-1) ?? 1) < 0.8 * (alone[0] ?? 0), 'it learns');
    const all = [
      { dp: 2, tp: 2 },
      { dp: 2, tp: 1 },
      { dp: 1, tp: 2 },
    ];
    for (const degrees of EVERYTHING ? all : all.slice(0, 1)) {
      const shared = await losses(t, file, training, degrees, 12);
      for (const [step, loss] of alone.entries())
        t.true(
          Math.abs((shared[step] ?? 0) - loss) < 1e-5 * Math.max(1, loss),
          `${JSON.stringify(degrees)}, step ${step}`,
        );
    }
  });
}

test('a step of gradient descent is what finite differences of the loss say', async (t) => {
  const training: Training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 1 } };
  const { graph } = withTraining(await importModel(saved(t, SMALL)), training);
  const inputs = randomInputs(graph, 5);
  const before = graph.initial?.get('fc0.weight');
  const pair = graph.state.find(({ input }) => input === 'fc0.weight');
  if (before?.source.kind !== 'inline' || !pair) throw new Error('no weight fc0.weight');
  const values = numbersOf({ ...before, data: before.source.data });
  const lossAt = async (index: number, step: number): Promise<number> => {
    const moved = values.map((value, at) => (at === index ? value + step : value));
    const source = { kind: 'inline' as const, data: constant('float32', moved, before.shape).data };
    const initial = new Map(graph.initial).set('fc0.weight', { ...before, source });
    return numbersOf((await runGraph({ ...graph, initial }, inputs))['loss'] as never)[0] ?? 0;
  };
  const after = numbersOf((await runGraph(graph, inputs))[pair.output] as never);
  for (const index of [0, 7, 23, 41]) {
    const slope = ((await lossAt(index, 1e-2)) - (await lossAt(index, -1e-2))) / 2e-2;
    const taken = (values[index] ?? 0) - (after[index] ?? 0);
    t.true(Math.abs(taken - slope) < 2e-2 * Math.max(0.1, Math.abs(slope)), `${taken} against ${slope}`);
  }
});

test('weights of outputs that the loss does not need are not trained, and noted, unless they are named', async (t) => {
  const heads = new GraphBuilder('heads', 1);
  const hidden = heads.operator('MatMul', [heads.input('x', 'float32', [4, 6]), heads.parameter('body', [6, 4])]);
  heads.output('y', heads.operator('MatMul', [hidden, heads.parameter('head', [4, 3])]));
  heads.output('z', heads.operator('MatMul', [hidden, heads.parameter('other', [4, 3])]));
  const imported = await importModel(saved(t, heads.build()));
  const training: Training = { loss: { kind: 'mse', output: 'y' }, optimizer: { kind: 'sgd', learningRate: 1 } };
  const { notes, gradients } = withTraining(imported, training);
  t.deepEqual([...(gradients?.keys() ?? [])], ['body', 'head']);
  t.true(notes.includes('not trained: other (the loss does not depend on it)'));
  const named = t.throws(() => withTraining(imported, { ...training, trainable: ['other'] }), {
    instanceOf: AutoparError,
  });
  t.is(named?.code, 'no-gradient');
});

test('what cannot be trained is refused with what is wrong', async (t) => {
  const refused = async (graph: Graph, training: Partial<Training>, code: ErrorCode): Promise<string> => {
    const imported = await importModel(saved(t, graph));
    const whole: Training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 1 }, ...training };
    const error = t.throws(() => withTraining(imported, whole), { instanceOf: AutoparError });
    t.is(error?.code, code);
    return error?.message ?? '';
  };
  t.regex(await refused(SMALL, { loss: { kind: 'model-output' } }, 'loss-not-scalar'), /'y' is float32 \[8, 4\]/);
  t.regex(await refused(SMALL, { frozen: ['fc*'] }, 'nothing-to-train'), /no floating-point parameter/);
  t.regex(await refused(SMALL, { frozen: ['nothing*'] }, 'unknown-parameter'), /--frozen nothing\*/);
  t.regex(await refused(SMALL, { loss: { kind: 'mse', output: 'z' } }, 'no-loss-output'), /no output 'z'/);

  const twice = { ...SMALL, outputs: ['y', 'y'] };
  t.regex(await refused(twice, {}, 'ambiguous-loss'), /several outputs of the model have the name 'y'/);
  t.regex(await refused(twice, { loss: { kind: 'mse', output: 'y' } }, 'ambiguous-loss'), /several outputs/);

  const whole = new GraphBuilder('whole', 1);
  const table = whole.constant('table', constant('int64', new Array<number>(24).fill(1), [6, 4]));
  const product = whole.operator('MatMul', [whole.input('x', 'float32', [8, 6]), whole.parameter('w', [6, 4])]);
  whole.output('y', product);
  whole.output('z', whole.operator('Add', [table, table]));
  t.regex(await refused(whole.build(), { trainable: ['z*'] }, 'nothing-to-train'), /'z\*' hold whole numbers/);

  const steps = new GraphBuilder('steps', 1);
  const x = steps.input('x', 'float32', [4, 6]);
  const rounded = steps.operator('Floor', [steps.operator('MatMul', [x, steps.parameter('fc.weight', [6, 3])])]);
  steps.output('y', steps.operator('Mul', [rounded, steps.constant('half', floats([0.5]))]));
  t.regex(await refused(steps.build(), {}, 'no-gradient'), /'fc\.weight'.*Floor/);

  const tables = new GraphBuilder('tables', 1);
  const hidden = tables.operator('MatMul', [
    tables.input('x', 'float32', [4, 6]),
    tables.parameter('fc.weight', [6, 3]),
  ]);
  const scales = { offset: [0], scale: [2] };
  const [scaled = ''] = tables.operators('Scaler', [tables.operator('Relu', [hidden])], scales, 1, 'ai.onnx.ml');
  tables.output('y', scaled);
  // Weight and node are named, and no tensor between them.
  t.regex(
    await refused(tables.build(), {}, 'no-gradient'),
    /^node '\S+' \(Scaler\) .*, and is between 'fc\.weight' and the loss$/,
  );
});
