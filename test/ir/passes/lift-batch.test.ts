import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { type ExecutionContext } from 'ava';
import fc from 'fast-check';
import { cnn } from '../../../models/cnn.js';
import { gpt } from '../../../models/gpt.js';
import { llama } from '../../../models/llama.js';
import { mlp } from '../../../models/mlp.js';
import { importModel } from '../../../src/api/models/import.js';
import { byteLength } from '../../../src/ir/dtype.js';
import { AutoparError } from '../../../src/ir/error.js';
import { type ConstantTensor, elementCount, type Graph } from '../../../src/ir/graph.js';
import type { ModelProto, NodeProto, TensorProto } from '../../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { runOnnx } from '../../../src/runtime/reference.js';
import { model, node, ramp, saved, tensor, value } from '../model-maker.js';
import { compare, type Feeds, noise } from '../same-results.js';

const BATCH = 3;

/** Sample `index` of arrays of a batch. */
function sample(arrays: Feeds, index: number): Feeds {
  return Object.fromEntries(
    Object.entries(arrays).map(([name, { dtype, shape, data }]) => {
      const rest = shape.slice(1);
      const bytes = byteLength(dtype, elementCount(rest));
      const part = data.slice(index * bytes, (index + 1) * bytes);
      return [name, { dtype, shape: [1, ...rest], data: part }];
    }),
  );
}

/** The model of one sample, rebuilt at a batch, gives each sample what the model itself gives it. */
async function eachSampleAsBefore(t: ExecutionContext, proto: ModelProto, inputs: Feeds): Promise<Graph> {
  const file = await saved(proto);
  const { graph } = await importModel(file, { globalBatch: BATCH, fusedRegions: false });
  const found = await runOnnx(writeOnnx(graph), inputs);
  for (let index = 0; index < BATCH; index++)
    compare(t, sample(found, index), await runOnnx(file, sample(inputs, index)));
  return graph;
}

const floats = (...shape: number[]): ConstantTensor => noise([BATCH, ...shape]);
const int64 = (values: readonly number[], shape: readonly number[] = [values.length]): ConstantTensor =>
  constant('int64', values, shape);
const shapeOf = (name: string, sizes: readonly number[]): TensorProto => tensor(name, [sizes.length], sizes, 'int64');

/** A model of x [1, …] → y [1, …]. */
function single(
  nodes: readonly NodeProto[],
  initializer: readonly TensorProto[],
  [from, to]: readonly [readonly number[], readonly number[]],
): ModelProto {
  return model({ node: nodes, initializer, input: [value('x', [1, ...from])], output: [value('y', [1, ...to])] });
}

test('attention with the sequence first: the batch joins the heads, not the positions', async (t) => {
  const heads = (from: string, to: string, last: readonly number[]): readonly NodeProto[] => [
    node('MatMul', ['s', `w.${from}`], [`${from}.p`]),
    node('Reshape', [`${from}.p`, 'split'], [`${from}.h`]),
    node('Transpose', [`${from}.h`], [to], { perm: last }),
  ];
  const proto = single(
    [
      node('Transpose', ['x'], ['s'], { perm: [1, 0, 2] }),
      ...heads('q', 'qt', [1, 0, 2]),
      ...heads('k', 'kt', [1, 2, 0]),
      ...heads('v', 'vt', [1, 0, 2]),
      node('MatMul', ['qt', 'kt'], ['scores']),
      node('Softmax', ['scores'], ['p'], { axis: -1 }),
      node('MatMul', ['p', 'vt'], ['o']),
      node('Transpose', ['o'], ['ot'], { perm: [1, 0, 2] }),
      node('Reshape', ['ot', 'join'], ['rows']),
      node('MatMul', ['rows', 'w.q'], ['mixed']),
      node('Reshape', ['mixed', 'back'], ['sy']),
      node('Transpose', ['sy'], ['y'], { perm: [1, 0, 2] }),
    ],
    [
      ...['q', 'k', 'v'].map((name) => ramp(`w.${name}`, [6, 6])),
      shapeOf('split', [4, 2, 3]),
      shapeOf('join', [4, 6]),
      shapeOf('back', [4, 1, 6]),
    ],
    [
      [4, 6],
      [4, 6],
    ],
  );
  const graph = await eachSampleAsBefore(t, proto, { x: floats(4, 6) });
  t.true([...graph.tensors.values()].some(({ shape }) => shape.join() === [2 * BATCH, 4, 4].join()));
});

test('a class token that is joined to every sample is repeated for all', async (t) => {
  const proto = single(
    [node('Concat', ['cls', 'x'], ['t'], { axis: 1 }), node('Add', ['t', 'positions'], ['y'])],
    [ramp('cls', [1, 1, 4]), ramp('positions', [1, 6, 4])],
    [
      [5, 4],
      [6, 4],
    ],
  );
  const graph = await eachSampleAsBefore(t, proto, { x: floats(5, 4) });
  t.deepEqual(
    graph.nodes.map((item) => item.op),
    ['Expand', 'Concat', 'Add'],
  );
});

test('a recurrent state that starts at zero has one for each sample', async (t) => {
  const proto = single(
    [
      node('Transpose', ['x'], ['s'], { perm: [1, 0, 2] }),
      node('GRU', ['s', 'w', 'r', '', '', 'h0'], ['states'], { hidden_size: 3 }),
      node('Squeeze', ['states', 'one'], ['flat']),
      node('Transpose', ['flat'], ['y'], { perm: [1, 0, 2] }),
    ],
    [ramp('w', [1, 9, 4]), ramp('r', [1, 9, 3]), tensor('h0', [1, 1, 3], [0, 0, 0]), shapeOf('one', [1])],
    [
      [5, 4],
      [5, 3],
    ],
  );
  await eachSampleAsBefore(t, proto, { x: floats(5, 4) });
});

test('lookups go to their own sample', async (t) => {
  const inputs = { x: floats(5, 2), i: int64([4, -1, 2], [BATCH, 1]) };
  const lookup = (nodes: readonly NodeProto[], initializer: readonly TensorProto[], rest: readonly number[]) =>
    model({
      node: nodes,
      initializer,
      input: [value('x', [1, 5, 2]), value('i', [1, 1], 'int64')],
      output: [value('y', [1, ...rest])],
    });
  const flat = lookup(
    [
      node('Reshape', ['x', 'rows'], ['table']),
      node('Reshape', ['i', 'vector'], ['index']),
      node('Gather', ['table', 'index'], ['y'], { axis: 0 }),
    ],
    [shapeOf('rows', [5, 2]), shapeOf('vector', [1])],
    [2],
  );
  await eachSampleAsBefore(t, flat, inputs);
  const coordinates = lookup(
    [node('Concat', ['zero', 'i'], ['index'], { axis: 1 }), node('GatherND', ['x', 'index'], ['y'])],
    [tensor('zero', [1, 1], [0], 'int64')],
    [2],
  );
  await eachSampleAsBefore(t, coordinates, inputs);
  const written = lookup(
    [
      node('Concat', ['zero', 'i'], ['index'], { axis: 1 }),
      node('Gather', ['x', 'first'], ['row'], { axis: 1 }),
      node('ScatterND', ['x', 'index', 'row'], ['y']),
    ],
    [tensor('zero', [1, 1], [0], 'int64'), tensor('first', [], [1], 'int64')],
    [5, 2],
  );
  await eachSampleAsBefore(t, written, inputs);
});

test('positions that are the same for all samples are looked up and written in each', async (t) => {
  const proto = single(
    [
      node('Reshape', ['x', 'column'], ['table']),
      node('Gather', ['table', 'order'], ['picked'], { axis: 0 }),
      node('Reshape', ['picked', 'row'], ['r']),
      node('ScatterND', ['zeros', 'place', 'r'], ['y']),
    ],
    [
      shapeOf('column', [4, 1]),
      tensor('order', [1, 1, 4], [3, 1, 0, -2], 'int64'),
      shapeOf('row', [1, 1, 4]),
      tensor(
        'zeros',
        [1, 2, 4],
        Array.from({ length: 8 }, () => 0),
      ),
      tensor('place', [1, 1, 2], [0, 1], 'int64'),
    ],
    [[4], [2, 4]],
  );
  await eachSampleAsBefore(t, proto, { x: floats(4) });
});

test('random reshapes, transposes and positions: each sample is computed as before', async (t) => {
  const shapes = [[1, 24], [24], [1, 4, 6], [4, 6], [4, 1, 6], [2, 2, 6], [1, 2, 12], [3, 8], [2, 3, 4], [4, 2, 3, 1]];
  let followed = 0;
  const step = fc.record({ shape: fc.constantFrom(...shapes), turn: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 4 }), async (steps) => {
      let name = 'x';
      const initializer: TensorProto[] = [];
      const nodes = steps.flatMap(({ shape, turn }, index): readonly NodeProto[] => {
        const [from, to, moved] = [name, `r${index}`, `m${index}`];
        const sizes = turn ? shape.toReversed() : shape;
        initializer.push(shapeOf(`s${index}`, shape), ramp(`c${index}`, sizes));
        name = `a${index}`;
        const perm = shape.map((_, axis) => (turn ? shape.length - 1 - axis : axis));
        return [
          node('Reshape', [from, `s${index}`], [to]),
          node('Transpose', [to], [moved], { perm }),
          node('Add', [moved, `c${index}`], [name]),
        ];
      });
      initializer.push(shapeOf('last', [1, 24]));
      const proto = single([...nodes, node('Reshape', [name, 'last'], ['y'])], initializer, [[24], [24]]);
      const refused = await eachSampleAsBefore(t, proto, { x: floats(24) }).then(
        () => false,
        (error: unknown) => error instanceof AutoparError && error.code === 'batch-ambiguous',
      );
      if (!refused) followed++;
    }),
    { numRuns: 60, seed: 5 },
  );
  t.true(followed >= 20, `${followed} of 60 were followed`);
});

test('scores of all pairs and losses over all samples are those of the model at that batch', async (t) => {
  const proto = model(
    {
      node: [
        node('MatMul', ['a', 'w'], ['u']),
        node('MatMul', ['b', 'w'], ['v']),
        node('Transpose', ['v'], ['vt'], { perm: [1, 0] }),
        node('MatMul', ['u', 'vt'], ['scores']),
        node('LogSoftmax', ['scores'], ['p'], { axis: 0 }),
        node('ReduceMean', ['p'], ['loss'], { keepdims: 0, axes: [0, 1] }),
      ],
      initializer: [ramp('w', [4, 4])],
      input: [value('a', ['N', 4]), value('b', ['N', 4])],
      output: [value('scores', ['N', 'N']), value('loss', [])],
    },
    17,
  );
  const file = await saved(proto);
  const inputs = { a: floats(4), b: noise([BATCH, 4], 9) };
  const { graph } = await importModel(file, { dims: { N: 1 }, globalBatch: BATCH, fusedRegions: false });
  compare(t, await runOnnx(writeOnnx(graph), inputs), await runOnnx(file, inputs));
});

test('what cannot be told for a batch is refused at the node, with the reason', async (t) => {
  const refused = async (
    nodes: readonly NodeProto[],
    initializer: readonly TensorProto[],
    shapes: readonly [readonly number[], readonly number[]],
  ): Promise<string> => {
    const file = await saved(single(nodes, initializer, shapes));
    const error: unknown = await importModel(file, { globalBatch: BATCH }).catch((thrown: unknown) => thrown);
    if (!(error instanceof AutoparError)) throw new Error('it was not refused');
    t.is(error.code, 'batch-ambiguous');
    return error.message;
  };
  const first = node('Gather', ['x', 'zero'], ['f'], { axis: 0 }, { name: 'first' });
  const zero = tensor('zero', [], [0], 'int64');
  t.regex(
    await refused([first, node('Unsqueeze', ['f', 'axes'], ['y'])], [zero, shapeOf('axes', [0])], [[4], [4]]),
    /from 1 to 3.*node 'first' \(Gather\): it operates along dimension 0/,
  );
  const running = node('CumSum', ['t', 'zero'], ['y'], {}, { name: 'running' });
  t.regex(
    await refused([node('Reshape', ['x', 'rows'], ['t']), running], [shapeOf('rows', [4, 2]), zero], [[4, 2], [2]]),
    /node 'running' \(CumSum\): it operates along dimension 0/,
  );
  const kernel = [
    node('Reshape', ['x', 'taps'], ['k']),
    node('Reshape', ['x', 'image'], ['i']),
    node('Conv', ['i', 'k'], ['y'], {}, { name: 'dynamic' }),
  ];
  t.regex(
    await refused(kernel, [shapeOf('taps', [2, 2, 2, 2]), shapeOf('image', [1, 2, 2, 4])], [[16], [2, 1, 3]]),
    /node 'dynamic' \(Conv\)/,
  );
});

test('generated models at batch 1, 2 and 3, rebuilt, equal those generated at that batch', async (t) => {
  const ids = (batch: number): Feeds => ({
    ids: int64(
      Array.from({ length: batch * 8 }, (_, index) => (index * 7 + 3) % 16),
      [batch, 8],
    ),
  });
  const sizes = { sequence: 8, layers: 1, width: 16, heads: 4, vocabulary: 16 };
  const families: readonly (readonly [(batch: number) => Graph, (batch: number) => Feeds])[] = [
    [(batch) => gpt('gpt', { batch, ...sizes }, 1), ids],
    [(batch) => llama('llama', { batch, ...sizes, keyHeads: 2, feedForward: 24 }, 2), ids],
    [(batch) => mlp('mlp', { batch, widths: [6, 8, 4] }, 3), (batch) => ({ x: noise([batch, 6]) })],
    [
      (batch) => cnn('cnn', { batch, channels: 3, size: 8, widths: [4, 8], classes: 5 }, 4),
      (batch) => ({ image: noise([batch, 3, 8, 8]) }),
    ],
  ];
  const folder = await mkdtemp(path.join(tmpdir(), 'autopar-batch-'));
  for (const [generate, feeds] of families) {
    const wanted = generate(6);
    const inputs = Object.fromEntries(
      Object.values(feeds(6)).map((array, index) => [wanted.inputs[index] ?? '', array]),
    );
    const expected = await runOnnx(writeOnnx(wanted), inputs);
    for (const batch of [1, 2, 3]) {
      const file = path.join(folder, `${wanted.name}-${batch}.onnx`);
      await writeFile(file, writeOnnx(generate(batch)));
      const { graph } = await importModel(file, { globalBatch: 6 });
      compare(t, await runOnnx(writeOnnx(graph), inputs), expected);
    }
  }
});
