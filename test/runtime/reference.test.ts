import test from 'ava';
import { onnxOfDtype } from '../../src/ir/dtype.js';
import { AutoparError } from '../../src/program/values.js';
import { loadOrt } from '../../src/runtime/ort.js';
import { runOnnx } from '../../src/runtime/reference.js';
import { model, node, saved, tensor, value } from '../ir/model-maker.js';
import { float32, floats, tinyModel } from './tiny-program.js';

const relu = tinyModel(
  [{ op: 'Relu', inputs: ['a'], outputs: ['b'] }],
  [{ name: 'a', shape: [2] }],
  [{ name: 'b', shape: [2] }],
);

test('a whole model runs from its bytes and gives every output', async (t) => {
  const { b } = await runOnnx(relu, { a: float32([-1, 2], [2]) });
  t.deepEqual([floats(b), b?.dtype, b?.shape], [[0, 2], 'float32', [2]]);
});

test('a quantised model that ONNX Runtime makes invalid by its optimisations runs as it is', async (t) => {
  const quantised = model(
    {
      node: [
        node('QuantizeLinear', ['x', 'scale', 'zero'], ['q']),
        node('DequantizeLinear', ['q', 'scale', 'zero'], ['d']),
        node('Reshape', ['d', 'flat'], ['r']),
        node('Neg', ['r'], ['y']),
      ],
      initializer: [tensor('scale', [], [0.5]), tensor('zero', [], [0], 'int8'), tensor('flat', [1], [4], 'int64')],
      input: [value('x', [2, 2])],
      output: [value('y', [4])],
    },
    21,
  );
  const { y } = await runOnnx(await saved(quantised), { x: float32([0, 1, 2.2, -3], [2, 2]) });
  t.deepEqual(floats(y), [-0, -1, -2, 3]);
});

test('a transpose that is an output as well as an operand of a sum of products is written', async (t) => {
  const product = model({
    node: [
      node('Transpose', ['a'], ['turned'], { perm: [1, 0] }),
      node('Transpose', ['w'], ['u'], { perm: [1, 0] }),
      node('MatMul', ['turned', 'u'], ['product']),
      node('Add', ['product', 'bias'], ['y']),
    ],
    input: [value('a', [2, 2]), value('w', [2, 2]), value('bias', [2])],
    output: [value('turned', [2, 2]), value('y', [2, 2])],
  });
  const inputs = { a: float32([1, 2, 3, 4], [2, 2]), w: float32([1, 0, 1, 1], [2, 2]), bias: float32([10, 20], [2]) };
  const { turned, y } = await runOnnx(await saved(product), inputs);
  t.deepEqual(
    [floats(turned), floats(y)],
    [
      [1, 3, 2, 4],
      [11, 24, 12, 26],
    ],
  );
});

test('what ONNX Runtime refuses is said with its words', async (t) => {
  const missing = await t.throwsAsync(runOnnx(relu, {}), { instanceOf: AutoparError });
  t.deepEqual([missing?.code, missing?.exit], ['reference-failed', 'input']);
  const absent = await t.throwsAsync(runOnnx('/nowhere/model.onnx', {}), { instanceOf: AutoparError });
  t.is(absent?.where.file, '/nowhere/model.onnx');
});

test('a model is refused whose inputs or outputs cannot be passed', async (t) => {
  for (const dtype of ['int4', 'uint4', 'bfloat16', 'float8e4m3fn'] as const) {
    const file = model(
      {
        node: [node('Cast', ['x'], ['y'], { to: onnxOfDtype(dtype) })],
        input: [value('x', [4])],
        output: [value('y', [4], dtype)],
      },
      21,
    );
    const error = await t.throwsAsync(runOnnx(await saved(file), { x: float32([0, 1, 2, 3], [4]) }), {
      instanceOf: AutoparError,
    });
    t.deepEqual([error?.code, error?.exit], ['unsupported-operator', 'backendAbsent']);
    t.regex(error?.message ?? '', new RegExp(`is ${dtype}, which onnxruntime-node does not pass`));
  }
});

test('an installation without its native part is told how to be mended', async (t) => {
  const fail = () => Promise.reject(new Error('Cannot find module onnxruntime_binding.node'));
  const error = await t.throwsAsync(loadOrt(fail), { instanceOf: AutoparError });
  t.deepEqual([error?.code, error?.exit], ['backend-absent', 'backendAbsent']);
  t.regex(error?.hint ?? '', /ONNXRUNTIME_NODE_INSTALL=skip npm install/);
});
