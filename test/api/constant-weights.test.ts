/**
 * @file Weights that a file has as Constant nodes, as paddle2onnx writes them, are planned, trained and exported like
 * initializers.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { mlp } from '../../models/mlp.js';
import { Checkpoints } from '../../src/api/execution/checkpoints.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { compile, exportWeights, importModel, openSession } from '../../src/api/index.js';
import { readCompiled } from '../../src/api/output/folder.js';
import { openCompiled } from '../../src/api/verify.js';
import { decodeModel, encodeModel, type ModelProto } from '../../src/ir/onnx/schema.js';
import { loadWeight } from '../../src/ir/onnx/tensors.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { numbersOf } from '../../src/ir/ops/constants.js';

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

const held = decodeModel(writeOnnx(mlp('mlp', { batch: 8, widths: [6, 10, 4] }, 1)));

/** The model with its initializers as Constant nodes. */
function inConstants(model: ModelProto): ModelProto {
  const { initializer = [], node = [], ...graph } = model.graph ?? {};
  const constants = initializer.map(({ name = '', ...tensor }) => ({
    ...{ name: `make ${name}`, op_type: 'Constant', output: [name] },
    attribute: [{ name: 'value', type: 4, t: tensor }],
  }));
  return { ...model, producer_name: '', graph: { ...graph, node: [...constants, ...node] } };
}

function saved(name: string, model: ModelProto): string {
  const file = join(folder, `${name}.onnx`);
  writeFileSync(file, encodeModel(model));
  return file;
}

async function weightsOf(file: string): Promise<Readonly<Record<string, readonly number[]>>> {
  const { weights } = (await importModel(file)).graph;
  const values = [...weights].map(async ([name, { dtype, shape, source, role }]) => {
    const data = await loadWeight(source);
    return data && role === 'parameter' ? [[name, numbersOf({ dtype, shape, data }).map(Number)] as const] : [];
  });
  return Object.fromEntries((await Promise.all(values)).flat());
}

/** The weights of a model that is trained for a step, as its file has them. */
async function trained(name: string, model: string) {
  const directory = join(folder, name);
  const training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 } } as const;
  const { verification } = await compile({ model, output: directory, training, devices: 2, verify: true });
  const { imported } = await openCompiled(directory);
  const session = await openSession(directory);
  const checkpoints = await Checkpoints.open(directory, await readCompiled(directory));
  await session.step(randomInputs(imported.graph, 1));
  await checkpoints.save(session, { step: 1, state: {} });
  await session.close();
  await checkpoints.close();
  const output = join(folder, `${name}-trained.onnx`);
  await exportWeights({ directory, output });
  return { passed: verification?.passed, weights: await weightsOf(output), output };
}

test('weights in Constant nodes are trained and exported like initializers', async (t) => {
  const [wanted, got] = [await trained('held', saved('h', held)), await trained('made', saved('m', inConstants(held)))];
  t.true(got.passed);
  t.is(Object.keys(wanted.weights).length, 4);
  t.deepEqual(got.weights, wanted.weights);
  t.notDeepEqual(got.weights, await weightsOf(saved('m', inConstants(held))));
  t.is(decodeModel(readFileSync(got.output)).graph?.initializer?.length, 4);
});

test('beside weights, and in files of PyTorch, constants are literals', async (t) => {
  const ofPyTorch = { ...inConstants(held), producer_name: 'pytorch' };
  const { graph } = inConstants(held);
  const one = held.graph?.initializer?.slice(0, 1) ?? [];
  const node = graph?.node?.filter(({ output }) => output?.[0] !== one[0]?.name) ?? [];
  const beside = { ...inConstants(held), graph: { ...graph, node, initializer: one } };
  t.deepEqual(Object.keys(await weightsOf(saved('pytorch', ofPyTorch))), []);
  t.deepEqual(Object.keys(await weightsOf(saved('beside', beside))), [one[0]?.name ?? '']);
});
