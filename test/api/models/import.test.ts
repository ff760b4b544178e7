import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import type { ConstantTensor } from '../../../src/ir/graph.js';
import type { NodeProto } from '../../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { operatorOf } from '../../../src/ir/operator-of.js';
import { entryOf } from '../../../src/ir/ops/index.js';
import { runOnnx } from '../../../src/runtime/reference.js';
import { model, node, ramp, saved, tensor, value } from '../../ir/model-maker.js';
import { compare } from '../../ir/same-results.js';
import { missing } from '../../missing.js';
import { ABSENT, dimsOf, sharedCases } from '../shared-models.js';

/** Models whose samples do not depend on each other: at another batch each row is as before. */
const DEPENDENT = ['moe_top1_capacity', 'train_step_manual', 'two_tower_shared'];

const cases = sharedCases();
if (missing(cases.length === 0, ABSENT)) test.skip('shared models', (t) => t.pass());

for (const item of cases) {
  test(`${item.name}: imported and written back it gives what PyTorch gave`, async (t) => {
    const imported = await importModel(item.file, { dims: await dimsOf(item) });
    const { graph } = imported;
    t.true(imported.weightsPresent);
    t.is(new Set(graph.nodes.map((found) => found.name)).size, graph.nodes.length);
    for (const found of graph.nodes) {
      for (const name of [...found.inputs, ...found.outputs]) t.true(name === null || graph.tensors.has(name));
      const entry = entryOf(found.op, found.domain);
      if (!entry) continue;
      const inferred = entry.infer(operatorOf(graph, found));
      found.outputs.forEach((name, index) => {
        if (name !== null) t.deepEqual(graph.tensors.get(name)?.shape, inferred[index]?.shape);
      });
    }
    const results = await runOnnx(writeOnnx(graph), item.inputs);
    compare(t, results, item.outputs, item.tolerance.rtol, item.tolerance.atol);
  });

  if (DEPENDENT.some((name) => item.name.endsWith(name))) continue;
  test(`${item.name}: at four times its batch each sample is computed as before`, async (t) => {
    const [first] = Object.values(item.inputs);
    const batch = first?.shape[0] ?? 1;
    const imported = await importModel(item.file, { dims: await dimsOf(item), globalBatch: 4 * batch });
    const inputs = Object.fromEntries(Object.entries(item.inputs).map(([name, input]) => [name, tiled(input, 0)]));
    const expected = Object.fromEntries(
      Object.entries(item.outputs).map(([name, output]) => [
        name,
        tiled(
          output,
          imported.graph.tensors.get(name)?.shape.findIndex((size, axis) => size !== output.shape[axis]) ?? -1,
        ),
      ]),
    );
    compare(t, await runOnnx(writeOnnx(imported.graph), inputs), expected, item.tolerance.rtol, item.tolerance.atol);
  });
}

/** Four copies one after the other along an axis; the value itself where the axis is none. */
function tiled(input: ConstantTensor, axis: number): ConstantTensor {
  if (axis < 0) return input;
  const inner = input.shape.slice(axis).reduce(
    (product, size) => product * size,
    input.data.length /
      Math.max(
        1,
        input.shape.reduce((product, size) => product * size, 1),
      ),
  );
  const runs = Array.from({ length: input.data.length / inner }, (_, index) =>
    input.data.subarray(index * inner, (index + 1) * inner),
  );
  const data = Buffer.concat(runs.flatMap((run) => [run, run, run, run]));
  return {
    dtype: input.dtype,
    shape: input.shape.map((size, index) => (index === axis ? size * 4 : size)),
    data: new Uint8Array(data),
  };
}

test('the record that importing gives', async (t) => {
  const file = await saved(
    model({
      node: [node('MatMul', ['x', 'l.0.w'], ['y'])],
      initializer: [ramp('l.0.w', [3, 3])],
      input: [value('x', ['N', 3])],
      output: [value('y', ['N', 3])],
    }),
    'small.net.onnx',
  );
  const imported = await importModel(file, { dims: { N: 4 }, globalBatch: 8 });
  const note =
    'a step takes a batch of 8 (--global-batch): N 4 is the batch at which the model was read, before it was rebuilt';
  t.like(imported, { name: 'small.net', file, dims: { N: 4 }, notes: [note], weightsPresent: true });
  t.deepEqual((await importModel(file, { dims: { 'x[0]': 4 }, globalBatch: 4 })).notes, []);
  t.regex((await importModel(file, { dims: { 'x[0]': 4 }, globalBatch: 8 })).notes.join(), /: x\[0\] 4 is the batch/);
  t.deepEqual(
    imported.passes.map((pass) => pass.name),
    ['inline-functions', 'opset', 'fold', 'normalise', 'resize-batch', 'recognise-blocks', 'find-layers'],
  );
  t.deepEqual(imported.graph.tensors.get('y')?.shape, [8, 3]);
});

test('a model of six thousand nodes is imported, its arithmetic on shapes folded away', async (t) => {
  const layers = 400;
  const nodes: NodeProto[] = [];
  let x = 'x';
  for (let layer = 0; layer < layers; layer++) {
    const own = (name: string): string => `/l.${layer}/${name}`;
    nodes.push(
      node('Shape', [x], [own('s')]),
      node('Gather', [own('s'), 'zero'], [own('n')], { axis: 0 }),
      node('Unsqueeze', [own('n'), 'zeros'], [own('n1')]),
      node('Concat', [own('n1'), 'heads'], [own('target')], { axis: 0 }),
      node('MatMul', [x, 'w'], [own('m')]),
      node('Reshape', [own('m'), own('target')], [own('h')]),
      node('Transpose', [own('h')], [own('t')], { perm: [0, 2, 1, 3] }),
      node('Softmax', [own('t')], [own('p')], { axis: -1 }),
      node('Transpose', [own('p')], [own('b')], { perm: [0, 2, 1, 3] }),
      node('Shape', [x], [own('s2')]),
      node('Reshape', [own('b'), own('s2')], [own('r')]),
      node('Identity', [own('r')], [own('i')]),
      node('Dropout', [own('i')], [own('d')]),
      node('Relu', [own('d')], [own('e')]),
      node('Add', [own('e'), x], [own('y')]),
    );
    x = own('y');
  }
  const file = await saved(
    model(
      {
        node: [...nodes, node('Identity', [x], ['y'])],
        initializer: [
          ramp('w', [16, 16]),
          tensor('zero', [], [0], 'int64'),
          tensor('zeros', [1], [0], 'int64'),
          tensor('heads', [3], [4, 2, 8], 'int64'),
        ],
        input: [value('x', ['N', 4, 16])],
        output: [value('y', ['N', 4, 16])],
      },
      17,
    ),
  );
  const { graph } = await importModel(file, { dims: { N: 4 }, globalBatch: 8 });
  t.is(graph.nodes.length, layers * 8);
});
