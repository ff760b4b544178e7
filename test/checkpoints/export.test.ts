/**
 * @file Parameters that an exporter stored once, with trained values: each has its own initializer in the exported file, and
 * ONNX Runtime computes of it what the program's next step computes.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { Checkpoints } from '../../src/api/execution/checkpoints.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { type CompileOptions, compile, exportWeights, importModel, openSession } from '../../src/api/index.js';
import { readCompiled } from '../../src/api/output/folder.js';
import { openCompiled } from '../../src/api/verify.js';
import { loadWeight } from '../../src/ir/onnx/tensors.js';
import { numbersOf } from '../../src/ir/ops/constants.js';
import { openSafetensors } from '../../src/program/safetensors.js';
import { runOnnx } from '../../src/runtime/reference.js';
import { model, node, ramp, recordOf, saved, tensor, traced, value } from '../ir/model-maker.js';
import { difference } from '../pipelines/difference.js';

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

const ones = (name: string) => tensor(name, [8], Array(8).fill(1));

/** As PyTorch's exporter of traced programs writes it: the record names the parameter that an operator reads. */
const recorded = model({
  node: [
    traced('MatMul', ['x', 'l1.weight'], 'a', 'l1.weight'),
    traced('Mul', ['a', 'n1.weight'], 'b', 'n1.weight'),
    traced('MatMul', ['b', 'l1.weight'], 'c', 'l2.weight'),
    traced('Mul', ['c', 'n1.weight'], 'd', 'n2.weight'),
    traced('MatMul', ['d', 'l3.weight'], 'e', 'l3.weight'),
    traced('Mul', ['e', 'n1.weight'], 'y', 'n3.weight'),
  ],
  initializer: [ramp('l1.weight', [8, 8]), ones('n1.weight'), ramp('l3.weight', [8, 8])].map((item) => ({
    ...item,
    metadata_props: [{ key: 'pkg.torch.export.graph_signature.InputSpec.kind', value: 'PARAMETER' }],
  })),
  input: [value('x', [8, 8])],
  output: [value('y', [8, 8])],
  metadata_props: [recordOf(['l1.weight', 'l2.weight', 'l3.weight', 'n1.weight', 'n2.weight', 'n3.weight'])],
});

const named = (op: string, inputs: readonly string[], output: string, name: string, attributes = {}) =>
  node(op, inputs, [output], attributes, { name });

/** As TorchScript writes it: an Identity has the name of the second parameter; one Transpose serves the layers of both. */
const scripted = model(
  {
    node: [
      named('Identity', ['h.0.w'], 'h.1.w', 'Identity_0'),
      named('Transpose', ['h.0.s'], 'turned', 'Transpose_0', { perm: [1, 0] }),
      named('MatMul', ['x', 'h.0.w'], 'a', '/h/0/w/MatMul'),
      named('MatMul', ['a', 'turned'], 'b', '/h/0/s/MatMul'),
      named('MatMul', ['b', 'h.1.w'], 'c', '/h/1/w/MatMul'),
      named('MatMul', ['c', 'turned'], 'y', '/h/1/s/MatMul'),
    ],
    initializer: [ramp('h.0.w', [8, 8]), tensor('h.0.s', [8, 8], Array(64).fill(0.1))],
    input: [value('x', [8, 8])],
    output: [value('y', [8, 8])],
  },
  18,
  { producer_name: 'pytorch', producer_version: '2.0.0' },
);

for (const { title, file, initializers, frozen } of [
  {
    title: "stored once by the record of PyTorch's exporter",
    file: recorded,
    initializers: 'l1.weight l2.weight l3.weight n1.weight n2.weight n3.weight',
    frozen: [],
  },
  {
    title: 'stored once, one of them frozen',
    file: recorded,
    initializers: 'l1.weight l2.weight l3.weight n1.weight n2.weight n3.weight',
    frozen: ['n2.weight', 'l2.weight'],
  },
  {
    title: 'read through an Identity or by one Transpose for both',
    file: scripted,
    initializers: 'h.0.s h.0.w h.1.s.s h.1.w',
    frozen: [],
  },
]) {
  test.serial(`exported: ${title}`, async (t) => {
    const directory = join(folder, title.replaceAll(/\W+/g, '-'));
    const source = await saved(file);
    const training: NonNullable<CompileOptions['training']> = {
      loss: { kind: 'mse' },
      optimizer: { kind: 'sgd', learningRate: 0.01 },
      ...(frozen.length > 0 ? { frozen } : {}),
    };
    await compile({ model: source, output: directory, devices: 1, training });
    const { imported } = await openCompiled(directory);
    const inputs = randomInputs(imported.graph, 1);
    const session = await openSession(directory);
    const checkpoints = await Checkpoints.open(directory, await readCompiled(directory));
    for (let step = 1; step <= 2; step++) await session.step(inputs);
    await checkpoints.save(session, { step: 2, state: {} });
    const { outputs } = await session.step(inputs);
    await session.close();
    await checkpoints.close();
    const trained = join(directory, 'trained.onnx');
    await exportWeights({ directory, output: trained });
    const { weights } = (await importModel(trained, { keepsParameters: true })).graph;
    t.is([...weights.keys()].sort().join(' '), initializers);
    for (const name of frozen) {
      const before = name.replace('2', '1');
      const value = (await importModel(source, { keepsParameters: true })).graph.weights.get(before);
      const [kept, own] = [weights.get(name), value].map((weight) => weight && loadWeight(weight.source));
      t.deepEqual(await kept, await own, name);
    }
    const x = inputs['x'];
    const [now, before] = x ? [await runOnnx(trained, { x }), await runOnnx(source, { x })] : [];
    const numbers = (tensor: (typeof outputs)[string] | undefined) => (tensor ? numbersOf(tensor).map(Number) : []);
    t.true(difference(numbers(outputs['y']), numbers(now?.['y'])) < 1e-5);
    t.true(difference(numbers(outputs['y']), numbers(before?.['y'])) > 1e-3);
  });
}

test.serial('of weights with made-up names, safetensors have matmuls transposed and tables as they are', async (t) => {
  const directory = join(folder, 'made-up');
  const read = { key: 'pkg.torch.onnx.fx_node', value: '%rows : (args = (%p_table_weight, %ids))' };
  const source = await saved(
    model({
      node: [
        node('Gather', ['val_7', 'ids'], ['rows'], {}, { name: 'node_rows', metadata_props: [read] }),
        traced('MatMul', ['rows', 'val_9'], 'y', 'fc.weight'),
      ],
      initializer: [ramp('val_7', [6, 8]), ramp('val_9', [8, 4])],
      input: [value('ids', [8], 'int64')],
      output: [value('y', [8, 4])],
      metadata_props: [recordOf(['table.weight', 'fc.weight'])],
    }),
  );
  const training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.01 } } as const;
  await compile({ model: source, output: directory, devices: 1, training });
  const { imported } = await openCompiled(directory);
  const session = await openSession(directory);
  const checkpoints = await Checkpoints.open(directory, await readCompiled(directory));
  await session.step(randomInputs(imported.graph, 1));
  await checkpoints.save(session, { step: 1, state: {} });
  await session.close();
  await checkpoints.close();
  const output = join(directory, 'trained.safetensors');
  await exportWeights({ directory, output });
  const file = await openSafetensors(output);
  const shapes = [...file.entries].map(([name, { shape }]) => `${name} ${shape.join()}`);
  await file.close();
  t.deepEqual(shapes.sort(), ['fc.weight 4,8', 'table.weight 6,8']);
});
