/**
 * @file Training forms end to end: all meshes draw the same masks and take the same statistics, a compiled folder brings its form
 * back, and options that do not fit are refused.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { gpt } from '../../../models/gpt.js';
import { normalisedCnn } from '../../../models/normalised-cnn.js';
import { sharedLayers } from '../../../models/shared-layers.js';
import { compile } from '../../../src/api/compile.js';
import { randomInputs } from '../../../src/api/execution/inputs.js';
import { type ImportedModel, importModel } from '../../../src/api/models/import.js';
import { type Training, withTraining } from '../../../src/api/models/training.js';
import { importedFor } from '../../../src/api/models/training-form.js';
import { inspectTraining } from '../../../src/api/reports/inspect-training.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import { openCompiled, verify } from '../../../src/api/verify.js';
import { AutoparError } from '../../../src/ir/error.js';
import type { Graph } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { runProgram } from '../../../src/runtime/run-program.js';
import { slowTests } from '../../selection.js';

const PLAIN: Training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'sgd', learningRate: 0.05 } };
const CNN = { batch: 8, channels: 3, size: 8, widths: [4, 8], classes: 4, dropout: 0.25 };

function folder(t: ExecutionContext): string {
  const made = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

interface Compiled {
  readonly output: string;
  readonly graph: Graph;
}

async function compiled(
  t: ExecutionContext,
  model: Graph,
  training: Partial<Training> = {},
  [dp, tp]: readonly [number, number] = [1, 1],
): Promise<Compiled> {
  const place = folder(t);
  const [file, output] = [join(place, 'model.onnx'), join(place, 'out')];
  writeFileSync(file, writeOnnx(model));
  await compile({
    model: file,
    output,
    training: { ...PLAIN, ...training },
    devices: dp * tp,
    degrees: { dp, tp },
    axes: 'roles',
  });
  return { output, graph: (await openCompiled(output)).imported.graph };
}

async function lossesOf({ output, graph }: Compiled, steps: number): Promise<readonly number[]> {
  return (await runProgram(output, randomInputs(graph, 3), { steps })).history['loss'] ?? [];
}

/** The model with its step of training, not compiled. */
async function formed(t: ExecutionContext, model: Graph, training: Partial<Training>): Promise<ImportedModel> {
  const file = join(folder(t), 'model.onnx');
  writeFileSync(file, writeOnnx(model));
  return withTraining(await importModel(file, importedFor(training)), { ...PLAIN, ...training });
}

const MODELS: Readonly<Record<string, Graph>> = {
  'batch statistics': normalisedCnn('cnn', { ...CNN, fresh: true, exported: true }, 1),
  'shared layers': sharedLayers(
    'shared',
    { batch: 4, sequence: 4, width: 8, vocabulary: 16, calls: 2, dropout: 0.2, exported: true },
    2,
  ),
};

for (const [name, model] of Object.entries(MODELS)) {
  slowTests(test)(`one rank and dp × tp take the same steps with the same masks: ${name}`, async (t) => {
    const alone = await lossesOf(await compiled(t, model), 4);
    t.is(alone.length, 4);
    const shared = await compiled(t, model, {}, [2, 2]);
    const losses = await lossesOf(shared, 4);
    for (const [step, loss] of alone.entries())
      t.true(Math.abs((losses[step] ?? Number.NaN) - loss) < 1e-5 * loss, `step ${step}`);
    const { passed, tensors } = await verify({ directory: shared.output, tensors: true });
    t.true(passed);
    const masks = tensors.filter((tensor) => tensor.name.endsWith('/kept'));
    t.true(masks.length > 0);
    for (const { dtype, worstAbsolute } of masks) t.deepEqual([dtype, worstAbsolute], ['bool', 0]);
  });
}

test('a seed gives one training, another seed another', async (t) => {
  const of = async (training: Partial<Training>) => {
    const { graph } = await formed(t, normalisedCnn('cnn', CNN, 1), training);
    return (await runGraph(graph, randomInputs(graph, 3)))['loss'];
  };
  const first = await of({});
  t.deepEqual(await of({ dropoutSeed: 0 }), first);
  t.notDeepEqual(await of({ dropoutSeed: 1 }), first);
});

test('as exported, and with statistics frozen, operators stay what they are; a note says what is switched', async (t) => {
  const formOf = async (training: Partial<Training>) => {
    const { graph, notes } = await formed(t, normalisedCnn('cnn', CNN, 1), training);
    const modes = graph.nodes.flatMap(({ op, attributes }) =>
      op === 'BatchNormalization' ? [attributes['training_mode']] : [],
    );
    const state = graph.state.map(({ input }) => input);
    return {
      batch: modes.every((mode) => mode === 1),
      statistics: state.filter((name) => name.includes('running')).length,
      dropout: state.includes('dropout/step'),
      notes: notes.map((note) => note.replace(/ \(.*/, '')),
    };
  };
  t.deepEqual(await formOf({}), {
    batch: true,
    statistics: 6,
    dropout: true,
    notes: ['4 BatchNormalizations take statistics of the global batch', 'one Dropout is active'],
  });
  t.deepEqual(await formOf({ freezeBatchStatistics: true }), {
    batch: false,
    statistics: 0,
    dropout: true,
    notes: ['one Dropout is active'],
  });
  t.deepEqual(await formOf({ trainMode: 'as-exported' }), { batch: false, statistics: 0, dropout: false, notes: [] });
});

test('inspect counts running statistics apart from what steps and scales are', async (t) => {
  const file = join(folder(t), 'model.onnx');
  writeFileSync(file, writeOnnx(normalisedCnn('cnn', CNN, 1)));
  const { scalars, statistics } = inspectTraining(await importModel(file, importedFor(PLAIN)), PLAIN);
  t.deepEqual(scalars, ['dropout/step', 'optimizer/step']);
  t.is(statistics.length, 6);
  t.true(statistics.every((name) => name.includes('running_')));
});

test('ties that the user asks for are trained so, and come back with the folder', async (t) => {
  const sizes = { batch: 2, sequence: 4, layers: 1, width: 4, heads: 2, vocabulary: 6 };
  const { output, graph } = await compiled(t, gpt('gpt', sizes, 1), { untie: ['wte.weight'] });
  t.true(graph.state.some(({ input }) => input === 'lm_head.weight'));
  const { passed } = await verify({ directory: output });
  t.true(passed);
  const refused = async (training: Partial<Training>) => {
    const error = await t.throwsAsync(formed(t, gpt('gpt', sizes, 1), training), { instanceOf: AutoparError });
    return [error?.code, error?.exit, error?.message];
  };
  t.deepEqual(await refused({ tie: ['wte.weight=wpe.weight'] }), [
    'tie-mismatch',
    'usage',
    '--tie wte.weight=wpe.weight: wte.weight is float32 [6, 4] and wpe.weight is float32 [1, 4, 4]',
  ]);
  t.deepEqual(await refused({ untie: ['ln_f.bias'] }), [
    'tie-mismatch',
    'usage',
    '--untie ln_f.bias: the parameter has one use only',
  ]);
});

test('weights that the file lacks are made up place by place, and one where the file has one', async (t) => {
  const exported = sharedLayers(
    'absent',
    { batch: 2, sequence: 2, width: 4, vocabulary: 6, calls: 2, exported: true },
    1,
  );
  const place = folder(t);
  const [file, output] = [join(place, 'model.onnx'), join(place, 'out')];
  const weights = new Map(
    [...exported.weights].map(([name, weight]) => [name, { ...weight, source: { kind: 'absent' as const } }]),
  );
  const inputs = [...exported.inputs, ...weights.keys()];
  writeFileSync(file, writeOnnx({ ...exported, inputs, weights: new Map() }));
  await compile({ model: file, output, training: PLAIN, devices: 2, degrees: { dp: 2 }, initRandom: true });
  const { imported } = await openCompiled(output);
  t.true([...(imported.graph.initial?.values() ?? [])].every(({ source }) => source.kind !== 'absent'));
  t.true((await verify({ directory: output })).passed);
});
