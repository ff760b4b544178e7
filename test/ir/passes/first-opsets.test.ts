import test, { type ExecutionContext } from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { encodeModel, type GraphProto } from '../../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { runOnnx } from '../../../src/runtime/reference.js';
import { float, model, node, ramp, saved, value } from '../model-maker.js';
import { compare, type Feeds, noise, sameResults } from '../same-results.js';

/** ONNX Runtime runs few operators of opset 6: they are written out in opset 13 to compare with. */
async function same(
  t: ExecutionContext,
  old: GraphProto,
  opset: number,
  today: GraphProto,
  feeds: Feeds,
): Promise<void> {
  const { graph } = await importModel(await saved(model(old, opset)));
  compare(t, await runOnnx(writeOnnx(graph), feeds), await runOnnx(encodeModel(model(today, 13)), feeds));
}

const y = [value('y', ['a', 'b', 'c'])];

test('broadcasting where an attribute says so, from the axis that it says', async (t) => {
  const input = [value('x', [2, 3, 4])];
  const graph = (shape: readonly number[], nodes: GraphProto['node']): GraphProto => ({
    node: nodes ?? [],
    initializer: [
      ramp('w', shape),
      { ...ramp('sizes', []), data_type: 7, dims: [2], raw_data: constant('int64', [3, 1], [2]).data },
    ],
    input,
    output: y,
  });
  for (const op of ['Add', 'Sub', 'Mul', 'Div']) {
    const feeds = { x: noise([2, 3, 4]) };
    const middle = graph([3], [node(op, ['x', 'w'], ['y'], { broadcast: 1, axis: 1 })]);
    const reshaped = graph([3], [node('Reshape', ['w', 'sizes'], ['v']), node(op, ['x', 'v'], ['y'])]);
    await same(t, middle, 6, reshaped, feeds);
    const last = graph([3, 4], [node(op, ['x', 'w'], ['y'], { broadcast: 1 })]);
    await same(t, last, 6, graph([3, 4], [node(op, ['x', 'w'], ['y'])]), feeds);
  }
});

test('Gemm, PRelu, Concat, Selu and Pad in their first forms', async (t) => {
  const square = (nodes: GraphProto['node'], initializer: GraphProto['initializer'] = []): GraphProto => ({
    node: nodes ?? [],
    initializer,
    input: [value('x', [2, 3])],
    output: [value('y', ['a', 'b'])],
  });
  const feeds = { x: noise([2, 3]) };
  const weights = [ramp('w', [3, 5]), ramp('b', [5])];
  const gemm = (attributes: Parameters<typeof node>[3]) =>
    square([node('Gemm', ['x', 'w', 'b'], ['y'], attributes)], weights);
  await same(t, gemm({ broadcast: 1, alpha: float(0.5) }), 6, gemm({ alpha: float(0.5) }), feeds);
  await same(
    t,
    square([node('Concat', ['x', 'x'], ['y'])]),
    3,
    square([node('Concat', ['x', 'x'], ['y'], { axis: 1 })]),
    feeds,
  );
  await same(
    t,
    square([node('Selu', ['x'], ['y'], { consumed_inputs: [0] })]),
    1,
    square([node('Selu', ['x'], ['y'], { alpha: float(1.6732), gamma: float(1.0507) })]),
    feeds,
  );
  const pads = { ...ramp('pads', []), data_type: 7, dims: [4], raw_data: constant('int64', [0, 1, 0, 2], [4]).data };
  await same(
    t,
    square([node('Pad', ['x'], ['y'], { paddings: [0, 1, 0, 2] })]),
    1,
    square([node('Pad', ['x', 'pads'], ['y'])], [pads]),
    feeds,
  );
  const image = (shape: readonly number[], opsetNode = node('PRelu', ['x', 'w'], ['y'])): GraphProto => ({
    node: [opsetNode],
    initializer: [ramp('w', shape)],
    input: [value('x', [2, 3, 4])],
    output: y,
  });
  await same(t, image([3]), 6, image([3, 1]), { x: noise([2, 3, 4]) });
});

test('what ONNX Runtime runs of opset 6 is the same after import', async (t) => {
  const graph: GraphProto = {
    node: [
      node('Conv', ['x', 'w'], ['c'], { kernel_shape: [3], pads: [1, 1] }),
      node('LeakyRelu', ['c'], ['l'], { alpha: float(0.2) }),
      node('Softmax', ['l'], ['y'], { axis: 1 }),
    ],
    initializer: [ramp('w', [4, 3, 3])],
    input: [value('x', [2, 3, 5])],
    output: y,
  };
  await sameResults(t, model(graph, 6), { x: noise([2, 3, 5]) });
});

test('training, and operators that had another form, are refused by name', async (t) => {
  const one = (op: string, inputs: readonly string[], attributes = {}): GraphProto => ({
    node: [node(op, inputs, ['y'], attributes, { name: 'old' })],
    initializer: ['s', 'b', 'm', 'v'].map((name) => ramp(name, [3])),
    input: [value('x', [2, 3, 4])],
    output: y,
  });
  const learning = one('BatchNormalization', ['x', 's', 'b', 'm', 'v']);
  await t.throwsAsync(async () => importModel(await saved(model(learning, 6))), {
    code: 'unsupported-attribute',
    message: /'old' \(BatchNormalization of opset 6\) is in training mode/,
  });
  const tile = one('Tile', ['x', 's', 'b']);
  await t.throwsAsync(async () => importModel(await saved(model(tile, 5))), {
    code: 'opset-too-old',
    message: /'old' is Tile of opset 5/,
  });
});

test('defaults and names that later opsets changed', async (t) => {
  const boxes = constant('float32', [0, 0, 7, 7, 1, 1, 5, 6], [2, 4]);
  const aligned: GraphProto = {
    node: [node('RoiAlign', ['x', 'boxes', 'which'], ['y'], { output_height: 3, output_width: 2 })],
    input: [value('x', [2, 3, 8, 8]), value('boxes', [2, 4]), value('which', [2], 'int64')],
    output: [value('y', [2, 3, 3, 2])],
  };
  await sameResults(t, model(aligned, 10), { x: noise([2, 3, 8, 8]), boxes, which: constant('int64', [0, 1], [2]) });
  for (const mode of ['bilinear', 'bicubic', 'nearest']) {
    const sampled: GraphProto = {
      node: [node('GridSample', ['x', 'grid'], ['y'], { mode })],
      input: [value('x', [2, 3, 5, 6]), value('grid', [2, 4, 3, 2])],
      output: [value('y', [2, 3, 4, 3])],
    };
    await sameResults(t, model(sampled, 16), { x: noise([2, 3, 5, 6]), grid: noise([2, 4, 3, 2], 9) });
  }
  const perActivation: GraphProto = {
    node: [node('BatchNormalization', ['x', 's', 'b', 'm', 'v'], ['y'], { spatial: 0, epsilon: float(0.01) })],
    initializer: [
      ...['s', 'b', 'm'].map((name) => ramp(name, [3, 4])),
      {
        ...ramp('v', [3, 4]),
        raw_data: constant(
          'float32',
          Array.from({ length: 12 }, (_, index) => 0.1 + index / 10),
          [3, 4],
        ).data,
      },
    ],
    input: [value('x', [2, 3, 4])],
    output: y,
  };
  await sameResults(t, model(perActivation, 8), { x: noise([2, 3, 4]) });
  for (const opset of [7, 10, 12]) {
    const dropped: GraphProto = {
      node: [node('Dropout', ['x'], ['y', 'mask'])],
      input: [value('x', [2, 3, 4])],
      output: [...y, value('mask', [2, 3, 4], opset < 10 ? 'float32' : 'bool')],
    };
    await sameResults(t, model(dropped, opset), { x: noise([2, 3, 4]) });
  }
});

test('Compress by a constant is a Gather', async (t) => {
  const condition = { name: 'c', dims: [3], data_type: 9, raw_data: Uint8Array.from([1, 0, 1]) };
  for (const attributes of [{ axis: 1 }, { axis: -1 }, {}]) {
    const graph: GraphProto = {
      node: [node('Compress', ['x', 'c'], ['y'], attributes)],
      initializer: [condition],
      input: [value('x', [2, 3, 4])],
      output: [{ name: 'y', type: { tensor_type: { elem_type: 1 } } }],
    };
    await sameResults(t, model(graph, 11), { x: noise([2, 3, 4]) });
  }
});
