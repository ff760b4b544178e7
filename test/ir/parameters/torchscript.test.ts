/**
 * @file Files of PyTorch's TorchScript exporter, which states no kinds: what is trained in them, under which names, and which of
 * their operators are in equal layers.
 */
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { importedFor, trainingForm } from '../../../src/api/models/training-form.js';
import type { GraphProto, NodeProto } from '../../../src/ir/onnx/schema.js';
import { model, node, ramp, saved, value } from '../model-maker.js';

/** An operator under the name that the exporter gives it: the path of its module, and its type. */
function at(path: string, op: string, inputs: readonly string[], output: string): NodeProto {
  return node(op, inputs, [output], {}, { name: `${path}/${op}` });
}

/** The file as `compile --train` reads it, and its trained parameters, sorted. */
async function training(graph: GraphProto) {
  const file = await saved(model(graph, 17, { producer_name: 'pytorch' }));
  const imported = await importModel(file, importedFor({}));
  return { trained: [...trainingForm(imported, {}).trained].sort() };
}

const X = [value('x', [2, 4])];
const Y = [value('y', [2, 4])];

test('a module that is called twice has one matrix, which the exporter transposes for each call', async (t) => {
  const { trained } = await training({
    node: [
      node('Identity', ['onnx::MatMul_1'], ['onnx::MatMul_2'], {}, { name: 'Identity_0' }),
      at('/layer/query', 'MatMul', ['x', 'onnx::MatMul_1'], 'a'),
      at('/layer/query', 'Add', ['a', 'layer.query.bias'], 'b'),
      at('/layer/query_1', 'MatMul', ['b', 'onnx::MatMul_2'], 'c'),
      at('/layer/query_1', 'Add', ['c', 'layer.query.bias'], 'y'),
    ],
    initializer: [ramp('onnx::MatMul_1', [4, 4]), ramp('layer.query.bias', [4])],
    input: X,
    output: Y,
  });
  t.deepEqual(trained, ['layer.query.bias', 'layer.query.weight']);
});
