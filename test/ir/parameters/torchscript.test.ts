/**
 * @file Files of PyTorch's TorchScript exporter, which states no kinds: what is trained in them, under which names, and which of
 * their operators are in equal layers.
 */
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { decayOf } from '../../../src/api/models/training.js';
import { importedFor, trainingForm } from '../../../src/api/models/training-form.js';
import type { GraphProto, NodeProto } from '../../../src/ir/onnx/schema.js';
import { constant } from '../../../src/ir/ops/constants.js';
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

/** A literal, as the exporter writes it. */
function literal(name: string, shape: readonly number[], values: readonly number[]): NodeProto {
  return node('Constant', [], [name], { value: constant('float32', values, shape) });
}

/** Numbers as of a trained weight: no table of a formula. */
function noisy(count: number): readonly number[] {
  return Array.from({ length: count }, (_, index) => Math.sin(((index + 1) * 12.9898) ** 2) / 2);
}

function noise(name: string, shape: readonly number[]) {
  return tensor(name, shape, noisy(shape.reduce((product, size) => product * size, 1)));
}

test('what operators with weights make of literals is trained, as the first layer of a decoder of queries', async (t) => {
  const { trained } = await training({
    node: [
      literal('zeros', [2, 4], [0, 0, 0, 0, 0, 0, 0, 0]),
      literal('sixteen', [], [16]),
      at('', 'Add', ['zeros', 'query.weight'], 'queries'),
      at('/fc', 'MatMul', ['queries', 'onnx::MatMul_1'], 'p'),
      at('/fc', 'Add', ['fc.bias', 'p'], 'q'),
      at('', 'Tanh', ['q'], 'r'),
      at('', 'Mul', ['r', 'sixteen'], 's'),
      at('', 'Add', ['x', 's'], 'y'),
    ],
    initializer: [noise('query.weight', [2, 4]), noise('onnx::MatMul_1', [4, 4]), noise('fc.bias', [4])],
    input: X,
    output: Y,
  });
  t.deepEqual(trained, ['fc.bias', 'fc.weight', 'query.weight']);
});

test('a weight that passes Resize, Exp, a number or a normalisation before it meets data is trained', async (t) => {
  const { trained } = await training({
    node: [
      literal('one', [], [1]),
      node('Resize', ['grid', '', 'scales'], ['resized'], { mode: 'linear' }, { name: '/Resize' }),
      at('', 'Add', ['x', 'resized'], 'a'),
      at('', 'Exp', ['a_log'], 'e'),
      at('', 'Neg', ['e'], 'n'),
      at('', 'Mul', ['steps', 'n'], 'decays'),
      at('', 'Add', ['g', 'one'], 'gain'),
      at('', 'Mul', ['decays', 'gain'], 'b'),
      at('/norm', 'LayerNormalization', ['table', 'norm.weight'], 'rows'),
      at('', 'MatMul', ['a', 'rows'], 'y'),
    ],
    initializer: [
      noise('grid', [1, 1, 3]),
      tensor('scales', [3], [1, 1, 2]),
      noise('a_log', [6, 3]),
      noise('g', [3]),
      noise('table', [6, 3]),
      noise('norm.weight', [3]),
    ],
    input: [value('x', [2, 4, 6]), value('steps', [2, 6, 1])],
    output: [value('y', [2, 4, 3]), value('b', [2, 6, 3])],
  });
  t.deepEqual(trained, ['a_log', 'g', 'grid', 'norm.weight', 'table']);
});

test('positions times frequencies, and masks that a formula makes of a buffer, are not trained', async (t) => {
  const { trained } = await training({
    node: [
      literal('one', [], [1]),
      literal('low', [], [-1e4]),
      at('', 'Mul', ['steps', 'rotary.inv_freq'], 'angles'),
      at('', 'Cos', ['angles'], 'c'),
      at('', 'Mul', ['x', 'c'], 'a'),
      at('', 'Sub', ['one', 'mask'], 'hidden'),
      at('', 'Mul', ['hidden', 'low'], 'm'),
      at('', 'Add', ['a', 'm'], 'scores'),
      node('Softmax', ['scores'], ['y'], { axis: -1 }, { name: '/Softmax' }),
    ],
    initializer: [
      tensor('rotary.inv_freq', [4], [1, 0.1, 0.01, 0.001]),
      tensor('mask', [2, 4], [1, 0, 1, 1, 1, 1, 0, 1]),
    ],
    input: [...X, value('steps', [2, 1])],
    output: Y,
  });
  t.deepEqual(trained, []);
});

test('rows of sines and cosines over a grid of positions are a table', async (t) => {
  const rows = Array.from({ length: 9 }, (_, place) =>
    [place % 3, Math.floor(place / 3)].flatMap((at) => [
      Math.sin(at),
      Math.sin(at / 9),
      Math.cos(at),
      Math.cos(at / 9),
    ]),
  );
  const { trained } = await training({
    node: [at('', 'Add', ['x', 'pos_embed'], 'y')],
    initializer: [tensor('pos_embed', [1, 9, 8], rows.flat())],
    input: [value('x', [2, 9, 8])],
    output: [value('y', [2, 9, 8])],
  });
  t.deepEqual(trained, []);
});

test('elements that are read at fixed indices are trained, beside a mask too', async (t) => {
  const elements = [0.123456, 0.234567, 0.345678, 0.456789];
  const { trained } = await training({
    node: [
      literal('mask', [2, 4], [0, 0, -100, 0, 0, -100, 0, 0]),
      at('', 'Add', ['onnx::Add_1', 'mask'], 'm'),
      at('', 'Add', ['x', 'm'], 's'),
      node('Softmax', ['s'], ['y'], { axis: -1 }, { name: '/Softmax' }),
    ],
    initializer: [
      tensor(
        'onnx::Add_1',
        [2, 4],
        [0, 1, 2, 3, 3, 0, 1, 2].map((place) => elements[place] ?? 0),
      ),
    ],
    input: X,
    output: Y,
  });
  t.is(trained.length, 1);
});

test('a table of which the exporter looked up rows for every sample stays a matrix, which decays', async (t) => {
  const [length, width] = [3, 4];
  const table = noisy(length * width);
  const { graph, trained } = await training({
    node: [at('', 'Add', ['x', 'onnx::Add_1'], 'y')],
    initializer: [tensor('onnx::Add_1', [2, length, width], [...table, ...table])],
    input: [value('x', [2, length, width])],
    output: [value('y', [2, length, width])],
  });
  const [name = ''] = trained;
  t.deepEqual(graph.tensors.get(name)?.shape, [length, width]);
  t.true(decayOf(graph, { loss: { kind: 'mse' }, optimizer: { kind: 'adamw', learningRate: 1 } })(name));
});

test('a parameter has the name of its module, whose children another module calls', async (t) => {
  const { trained } = await training({
    node: [
      at('/decoder/fc', 'MatMul', ['x', 'onnx::MatMul_1'], 'p'),
      at('/decoder/fc', 'Add', ['model.decoder.fc.bias', 'p'], 'y'),
    ],
    initializer: [noise('onnx::MatMul_1', [4, 4]), noise('model.decoder.fc.bias', [4])],
    input: X,
    output: Y,
  });
  t.deepEqual(trained, ['model.decoder.fc.bias', 'model.decoder.fc.weight']);
});

test("a table that a module multiplies by its matrix does not take the matrix' name", async (t) => {
  const { graph } = await training({
    node: [
      at('/fc', 'MatMul', ['onnx::MatMul_1', 'onnx::MatMul_2'], 'p'),
      at('/fc', 'Add', ['fc.bias', 'p'], 'q'),
      at('', 'Add', ['x', 'q'], 'y'),
    ],
    initializer: [noise('onnx::MatMul_1', [2, 3]), noise('onnx::MatMul_2', [3, 4]), noise('fc.bias', [4])],
    input: X,
    output: Y,
  });
  t.deepEqual(graph.weights.get('fc.weight')?.shape, [3, 4]);
});

test('a kernel that is normalised itself is trained, also by its mean and variance', async (t) => {
  const { trained } = await training({
    node: [
      literal('zeros', [2], [0, 0]),
      node('ReduceMean', ['conv.weight'], ['mean'], { axes: [0, 2], keepdims: 0 }, { name: '/conv/ReduceMean' }),
      at('/conv', 'Mul', ['conv.weight', 'conv.weight'], 'squares'),
      node('ReduceMean', ['squares'], ['variance'], { axes: [0, 2], keepdims: 0 }, { name: '/conv/ReduceMean_1' }),
      at('/conv', 'BatchNormalization', ['conv.weight', 'conv.gain', 'zeros', 'mean', 'variance'], 'kernel'),
      at('/conv', 'Conv', ['x', 'kernel'], 'y'),
    ],
    initializer: [noise('conv.weight', [1, 2, 3]), noise('conv.gain', [2])],
    input: [value('x', [2, 2, 5])],
    output: [value('y', [2, 1, 3])],
  });
  t.deepEqual(trained, ['conv.gain', 'conv.weight']);
});

test('a table that passes Dropout, or has a mask added to it, is trained', async (t) => {
  const { trained } = await training({
    node: [
      literal('ratio', [], [0.5]),
      literal('mask', [2, 4], [0, 0, -100, 0, 0, -100, 0, 0]),
      at('/dropout', 'Dropout', ['positions', 'ratio'], 'dropped'),
      at('', 'Add', ['x', 'dropped'], 'a'),
      at('', 'Add', ['bias_table', 'mask'], 'm'),
      at('', 'Add', ['a', 'm'], 's'),
      node('Softmax', ['s'], ['y'], { axis: -1 }, { name: '/Softmax' }),
    ],
    initializer: [noise('positions', [2, 4]), noise('bias_table', [2, 4])],
    input: X,
    output: Y,
  });
  t.deepEqual(trained, ['bias_table', 'positions']);
});
