/**
 * @file Files of PyTorch's TorchScript exporter, which states no kinds: what is trained in them, under which names, and which of
 * their operators are in equal layers.
 */
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { importedFor, trainingForm } from '../../../src/api/models/training-form.js';
import type { GraphProto, NodeProto } from '../../../src/ir/onnx/schema.js';
import { lettersOf, stageUnits } from '../../../src/search/pipeline/units.js';
import { model, node, ramp, saved, tensor, value } from '../model-maker.js';

/** An operator under the name that the exporter gives it: the path of its module, and its type. */
function at(path: string, op: string, inputs: readonly string[], output: string): NodeProto {
  return node(op, inputs, [output], {}, { name: `${path}/${op}` });
}

/** The file as `compile --train` reads it, and its trained parameters, sorted. */
async function training(graph: GraphProto) {
  const file = await saved(model(graph, 17, { producer_name: 'pytorch' }));
  const imported = await importModel(file, importedFor({}));
  return { graph: imported.graph, trained: [...trainingForm(imported, {}).trained].sort() };
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

/** A layer of a model whose positions stand before the layers, and whose mask every layer makes. */
function layer(index: number, input: string, output: string): readonly NodeProto[] {
  const path = `/h.${index}`;
  return [
    at(`${path}/fc`, 'MatMul', [input, `onnx::MatMul_${index}`], `p${index}`),
    at(path, 'Neg', ['mask'], `m${index}`),
    at(path, 'Add', [`p${index}`, `m${index}`], `s${index}`),
    at(path, 'Tanh', [`s${index}`], output),
  ];
}

test('what every layer computes is no operator of the first, nor is one of the outermost module: layers are equal', async (t) => {
  const { graph } = await training({
    node: [at('', 'Add', ['x', 'positions'], 'e'), ...layer(0, 'e', 'a'), ...layer(1, 'a', 'b'), ...layer(2, 'b', 'y')],
    initializer: [ramp('positions', [2, 4]), ...[0, 1, 2].map((index) => ramp(`onnx::MatMul_${index}`, [4, 4]))],
    input: [...X, value('mask', [2, 4])],
    output: Y,
  });
  t.deepEqual(
    graph.nodes.filter(({ layer }) => layer === null).map(({ op }) => op),
    ['Add', 'Neg'],
  );
  t.is(lettersOf(stageUnits(graph, 1)), 'E t*3');
});

test('repeated elements are read where they are used, in the layer that uses them', async (t) => {
  const elements = [0.123456, 0.234567, 0.345678];
  const block = (index: number, input: string, output: string) => [
    at(`/h.${index}/fc`, 'MatMul', [input, `onnx::MatMul_${index}`], `p${index}`),
    at(`/h.${index}`, 'Add', [`p${index}`, `onnx::Add_${index}`], output),
  ];
  const { graph, trained } = await training({
    node: [at('', 'Relu', ['x'], 'e'), ...block(0, 'e', 'a'), ...block(1, 'a', 'y')],
    initializer: [0, 1].flatMap((index) => [
      ramp(`onnx::MatMul_${index}`, [4, 4]),
      tensor(
        `onnx::Add_${index}`,
        [2, 4],
        [0, 1, 2, 0, 0, 1, 2, 0].map((place) => (elements[place] ?? 0) + index),
      ),
    ]),
    input: X,
    output: Y,
  });
  t.is(lettersOf(stageUnits(graph, 1)), 'E t*2');
  t.is(trained.length, 4);
});
