import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { onnxOfDtype } from '../../../src/ir/dtype.js';
import { encodeModel } from '../../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { runOnnx } from '../../../src/runtime/reference.js';
import { float, model, node, saved, tensor, value } from '../model-maker.js';
import { compare, noise, operators, sameResults } from '../same-results.js';

const x = { x: noise([2, 3, 4, 4]) };
const image = value('x', [2, 3, 4, 4]);

test('Softmax before opset 13 flattened everything from its axis on', async (t) => {
  const old = model(
    { node: [node('Softmax', ['x'], ['y'], { axis: 1 })], input: [image], output: [value('y', [2, 3, 4, 4])] },
    11,
  );
  const imported = await sameResults(t, old, x);
  t.deepEqual(operators(imported), ['Reshape', 'Softmax', 'Reshape']);
});

test('Softmax over the last axis needs no flattening', async (t) => {
  const old = model(
    { node: [node('LogSoftmax', ['x'], ['y'], { axis: 3 })], input: [image], output: [value('y', [2, 3, 4, 4])] },
    9,
  );
  t.deepEqual(operators(await sameResults(t, old, x)), ['LogSoftmax']);
});

test('axes, starts, ends and splits were attributes', async (t) => {
  const old = model(
    {
      node: [
        node('Slice', ['x'], ['a'], { starts: [1, 0], ends: [1000, 2], axes: [1, 3] }),
        node('Unsqueeze', ['a'], ['b'], { axes: [0] }),
        node('Squeeze', ['b'], ['c'], { axes: [0] }),
        node('Split', ['c'], ['d', 'e'], { axis: 2, split: [1, 3] }),
        node('ReduceSum', ['e'], ['f'], { axes: [-1], keepdims: 0 }),
        node('ReduceMean', ['d'], ['y'], { axes: [1, 2], keepdims: 1 }),
      ],
      input: [image],
      output: [value('f', [2, 2, 3]), value('y', [2, 1, 1, 2])],
    },
    9,
  );
  const imported = await sameResults(t, old, x);
  const slice = imported.graph.nodes.find((item) => item.op === 'Slice');
  t.deepEqual(slice?.attributes, { starts: [1, 0], ends: [3, 2], axes: [1, 3], steps: [1, 1] });
});

test('Pad and Clip had their values in attributes', async (t) => {
  const old = model(
    {
      node: [
        node('Pad', ['x'], ['a'], { mode: 'constant', pads: [0, 0, 1, 1, 0, 0, 1, 2], value: float(0.5) }),
        node('Clip', ['a'], ['y'], { min: float(-0.25), max: float(0.25) }),
      ],
      input: [image],
      output: [value('y', [2, 3, 6, 7])],
    },
    9,
  );
  await sameResults(t, old, x);
});

test('Upsample and Resize-10 are Resize with asymmetric coordinates', async (t) => {
  const scales = tensor('s', [4], [1, 1, 2, 3]);
  for (const [op, opset] of [
    ['Upsample', 9],
    ['Resize', 10],
  ] as const) {
    const old = model(
      {
        node: [node(op, ['x', 's'], ['y'], { mode: 'nearest' })],
        initializer: [scales],
        input: [image],
        output: [value('y', [2, 3, 8, 12])],
      },
      opset,
    );
    t.deepEqual(operators(await sameResults(t, old, x)), ['Resize']);
  }
});

test('BatchNormalization, Dropout and TopK of old opsets', async (t) => {
  const vector = (name: string): ReturnType<typeof tensor> => tensor(name, [3], [0.5, 1, 1.5]);
  const old = model(
    {
      node: [
        node('BatchNormalization', ['x', 'scale', 'bias', 'mean', 'var'], ['a'], { epsilon: float(1e-3) }),
        node('Dropout', ['a'], ['b'], { ratio: float(0.5) }),
        node('TopK', ['b'], ['v', 'i'], { k: 2, axis: -1 }),
      ],
      initializer: [vector('scale'), vector('bias'), vector('mean'), vector('var')],
      input: [image],
      output: [value('v', [2, 3, 4, 2]), value('i', [2, 3, 4, 2], 'int64')],
    },
    9,
  );
  t.deepEqual(operators(await sameResults(t, old, x)), ['BatchNormalization', 'TopK']);
});

test('GroupNormalization-18 scaled groups, not channels', async (t) => {
  const old = model(
    {
      node: [node('GroupNormalization', ['x', 's', 'b'], ['y'], { num_groups: 2 })],
      initializer: [tensor('s', [2], [0.5, 2]), tensor('b', [2], [1, -1])],
      input: [value('x', [2, 4, 3])],
      output: [value('y', [2, 4, 3])],
    },
    18,
  );
  await sameResults(t, old, { x: noise([2, 4, 3]) });
});

test('opset 13 Split without sizes and opset 18 Pad with axes', async (t) => {
  const recent = model(
    {
      node: [
        node('Split', ['x'], ['a', 'b', 'c'], { axis: 1 }),
        node('Pad', ['b', 'pads', '', 'axes'], ['y'], { mode: 'edge' }),
      ],
      initializer: [tensor('pads', [2], [1, 0], 'int64'), tensor('axes', [1], [-1], 'int64')],
      input: [image],
      output: [value('a', [2, 1, 4, 4]), value('y', [2, 1, 4, 5]), value('c', [2, 1, 4, 4])],
    },
    18,
    {},
  );
  const split = (recent.graph?.node ?? [])[0];
  t.truthy(split);
  await sameResults(
    t,
    {
      ...recent,
      graph: {
        ...recent.graph,
        node: [
          node('Split', ['x'], ['a', 'b', 'c'], { axis: 1, num_outputs: 3 }),
          ...(recent.graph?.node ?? []).slice(1),
        ],
      },
    },
    x,
  );
});

test('a negative step slices backwards', async (t) => {
  const backwards = model(
    {
      node: [node('Slice', ['x', 's', 'e', 'a', 'p'], ['y'])],
      initializer: [
        tensor('s', [1], [-1], 'int64'),
        tensor('e', [1], [-(2 ** 62)], 'int64'),
        tensor('a', [1], [1], 'int64'),
        tensor('p', [1], [-1], 'int64'),
      ],
      input: [image],
      output: [value('y', [2, 3, 4, 4])],
    },
    13,
  );
  await sameResults(t, backwards, x);
});

test('old and new spellings of one graph get the same attributes', async (t) => {
  const old = model(
    { node: [node('Unsqueeze', ['x'], ['y'], { axes: [-1] })], input: [image], output: [value('y', [2, 3, 4, 4, 1])] },
    11,
  );
  const recent = model(
    {
      node: [node('Unsqueeze', ['x', 'a'], ['y'])],
      initializer: [tensor('a', [1], [4], 'int64')],
      input: [image],
      output: [value('y', [2, 3, 4, 4, 1])],
    },
    20,
  );
  const [first, second] = [await sameResults(t, old, x), await sameResults(t, recent, x)];
  t.deepEqual(first.graph.nodes[0]?.attributes, { axes: [4] });
  t.is(first.fingerprint.length, 64);
  t.deepEqual(second.graph.nodes[0]?.attributes, { axes: [4] });
  t.is(constant('int64', [4]).data.length, 8);
});

test('LayerNormalization before opset 17 took scale and bias of another type than the data', async (t) => {
  const parts = [1.5, -0.5, 0.25, 2];
  for (const opset of [12, 16])
    for (const [data, scale] of [
      ['float16', 'float32'],
      ['float32', 'float16'],
    ] as const) {
      const old = model(
        {
          node: [
            node('Cast', ['x'], ['given'], { to: onnxOfDtype(data) }),
            node('LayerNormalization', ['given', 's', 'b'], ['y'], { axis: 3 }),
          ],
          input: [image],
          output: [value('y', [2, 3, 4, 4], scale)],
          initializer: [tensor('s', [4], parts, scale), tensor('b', [4], parts, scale)],
        },
        opset,
      );
      const { graph } = await importModel(await saved(old));
      t.is(graph.tensors.get('y')?.dtype, scale);
      // Two steps of float16: ONNX Runtime makes plain operators of it, which round apart.
      compare(t, await runOnnx(writeOnnx(graph), x), await runOnnx(encodeModel(old), x), 2 ** -9, 2 ** -9);
    }
});
