import { createRequire } from 'node:module';
import test from 'ava';
import { modulePath } from '../../../src/ir/onnx/module-path.js';
import { readOnnx } from '../../../src/ir/onnx/reader.js';
import { decodeModel, encodeModel, type TensorProto } from '../../../src/ir/onnx/schema.js';
import { readTensorProto } from '../../../src/ir/onnx/tensor-file.js';
import { initializerOf } from '../../../src/ir/onnx/tensors.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { model, node, ramp, saved, tensor, value } from '../model-maker.js';

interface OnnxProto {
  readonly onnx: { readonly TensorProto: { encode(tensor: object): { finish(): Uint8Array } } };
}
const { onnx } = createRequire(import.meta.url)('onnx-proto') as OnnxProto;

const place = { file: '/models/m.onnx', absentAllowed: false };

function valuesOf(proto: TensorProto): readonly number[] {
  const { dtype, shape, source } = initializerOf(proto, place);
  return source.kind === 'inline' ? numbersOf({ dtype, shape, data: source.data }) : [];
}

test('a tensor’s values lie in raw bytes or in one of five lists', (t) => {
  t.deepEqual(valuesOf({ dims: [2], data_type: 1, float_data: [1.5, -2] }), [1.5, -2]);
  t.deepEqual(valuesOf({ dims: [2], data_type: 11, double_data: [1.5, -2] }), [1.5, -2]);
  t.deepEqual(valuesOf({ dims: [2], data_type: 7, int64_data: [5, -6] }), [5, -6]);
  t.deepEqual(valuesOf({ dims: [2], data_type: 6, int32_data: [5, -6] }), [5, -6]);
  t.deepEqual(valuesOf({ dims: [2], data_type: 3, int32_data: [5, -6] }), [5, -6]);
  t.deepEqual(valuesOf({ dims: [2], data_type: 9, int32_data: [0, 1] }), [0, 1]);
  t.deepEqual(valuesOf({ dims: [2], data_type: 10, int32_data: [0x3c00, 0xc000] }), [1, -2]);
  t.deepEqual(valuesOf({ dims: [1], data_type: 12, uint64_data: [7] }), [7]);
  t.deepEqual(valuesOf({ dims: [], data_type: 1, float_data: [3] }), [3]);
  t.deepEqual(valuesOf({ dims: [0], data_type: 1 }), []);
});

test('strings are refused by name', (t) => {
  t.throws(() => initializerOf({ name: 's', dims: [1], data_type: 8, string_data: [new Uint8Array(1)] }, place), {
    message: /'s'.*string/,
  });
});

test('.pb files as another library writes them', (t) => {
  const bytes = onnx.TensorProto.encode({ dims: [2, 2], dataType: 7, int64Data: [1, 2, 3, -4], name: 'ids' }).finish();
  const read = readTensorProto(bytes, 'ids.pb');
  t.is(read.dtype, 'int64');
  t.deepEqual(numbersOf(read), [1, 2, 3, -4]);
  t.throws(() => readTensorProto(bytes.slice(0, 5), 'ids.pb'), { message: /truncated/ });
});

test('unknown fields survive a round trip', (t) => {
  const plain = encodeModel(model({ node: [node('Relu', ['x'], ['y'])] }));
  // Field 100, varint 42: a field of a future version.
  const future = new Uint8Array([...plain, 0xa0, 0x06, 42]);
  t.deepEqual([...encodeModel(decodeModel(future))], [...future]);
});

test('named dimensions, expressions, unknown ones and subgraphs are read as they stand', async (t) => {
  const branch = { name: 'b', node: [node('Relu', ['x'], ['r'])], output: [value('r', [2])] };
  const file = await saved(
    model({
      node: [node('If', ['c'], ['y'], { then_branch: branch, else_branch: branch })],
      input: [
        value('x', ['N', 's0 + 1', 3, 0]),
        { name: 'c', type: { tensor_type: { elem_type: 9, shape: { dim: [{}] } } } },
      ],
      output: [{ name: 'y' }],
      initializer: [tensor('w', [1], [2], 'int64'), ramp('v', [2, 2])],
    }),
  );
  const { graph, opsets } = await readOnnx(file);
  t.deepEqual(graph.inputs[0], { name: 'x', dtype: 'float32', shape: ['N', 's0 + 1', 3, 0] });
  t.deepEqual(graph.inputs[1], { name: 'c', dtype: 'bool', shape: [null] });
  t.deepEqual(graph.outputs[0], { name: 'y', dtype: null, shape: null });
  t.deepEqual([...graph.initializers.keys()], ['w', 'v']);
  t.deepEqual([...opsets], [['', 18]]);
  t.like(graph.nodes[0]?.attributes['then_branch'], { name: 'b' });
});

test('module paths from both exporters', (t) => {
  const scopes = new Map([
    ['pkg.torch.onnx.name_scopes', "['', 'm', 'm.model', 'm.model.layers.0', 'm.model.layers.0.mlp', 'linear_5']"],
  ]);
  t.deepEqual(modulePath('node_linear_5', scopes), ['m', 'model', 'layers.0', 'mlp']);
  const namespace = new Map([
    ['namespace', ': builtins.W2/m: transformers.Llama/m.model: transformers.Model/linear: aten.linear.default'],
  ]);
  t.deepEqual(modulePath('node_linear', namespace), ['m', 'model']);
  t.deepEqual(modulePath('/b.0/qkv/MatMul', new Map()), ['b.0', 'qkv']);
  t.deepEqual(modulePath('MatMul_3', new Map()), []);
});
