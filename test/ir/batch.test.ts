import test from 'ava';
import { type ImportedModel, importModel } from '../../src/api/models/import.js';
import { followBatch } from '../../src/ir/batch.js';
import { AutoparError } from '../../src/ir/error.js';
import type { Node } from '../../src/ir/graph.js';
import type { ModelProto, NodeProto } from '../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { operatorOf } from '../../src/ir/operator-of.js';
import { constant, numbersOf } from '../../src/ir/ops/constants.js';
import { ruleOf } from '../../src/ir/ops/index.js';
import { runOnnx } from '../../src/runtime/reference.js';
import { model, node, ramp, saved, tensor, value } from './model-maker.js';
import { compare, noise } from './same-results.js';

const attention = model({
  node: [
    node('Reshape', ['x', 'rows'], ['flat'], {}, { name: 'flatten' }),
    node('MatMul', ['flat', 'w'], ['mixed'], {}, { name: 'mix' }),
    node('Reshape', ['mixed', 'heads'], ['h'], {}, { name: 'split' }),
    node('Transpose', ['h'], ['q'], { perm: [0, 2, 1, 3] }),
    node('Transpose', ['h'], ['k'], { perm: [0, 2, 3, 1] }),
    node('MatMul', ['q', 'k'], ['scores']),
    node('Add', ['scores', 'mask'], ['masked'], {}, { name: 'mask' }),
    node('Softmax', ['masked'], ['p'], { axis: -1 }),
    node('MatMul', ['p', 'q'], ['o']),
    node('Transpose', ['o'], ['ot'], { perm: [0, 2, 1, 3] }),
    node('Reshape', ['ot', 'back'], ['y']),
  ],
  initializer: [
    ramp('w', [6, 6]),
    tensor('rows', [2], [8, 6], 'int64'),
    tensor('heads', [4], [2, 4, 2, 3], 'int64'),
    tensor('back', [3], [2, 4, 6], 'int64'),
    tensor(
      'mask',
      [2, 1, 4, 4],
      Array.from({ length: 32 }, (_, index) => -(index % 16)),
    ),
  ],
  input: [value('x', [2, 4, 6])],
  output: [value('y', [2, 4, 6])],
});

function nodeNamed(imported: ImportedModel, name: string): Node {
  const found = imported.graph.nodes.find((item) => item.name === name);
  if (!found) throw new Error(`no node ${name}`);
  return found;
}

test('the batch is followed through flattening, heads and into a mask', async (t) => {
  const imported = await importModel(await saved(attention));
  const marks = followBatch(imported.graph);
  t.is(marks.size, 2);
  t.deepEqual(marks.dimensionMarks('flat'), [{ minor: 4, size: 2 }, null]);
  t.deepEqual(marks.dimensionMarks('q'), [{ minor: 1, size: 2 }, null, null, null]);
  const mask = [...imported.graph.weights].find(([, weight]) => weight.shape.length === 4)?.[0] ?? '';
  t.deepEqual(marks.dimensionMarks(mask), [{ minor: 1, size: 2 }, null, null, null]);
  const mix = nodeNamed(imported, 'mix');
  const rule = ruleOf(operatorOf(imported.graph, mix));
  const marked = [...marks.factorMarks(mix)];
  t.is(marked.length, 1);
  t.deepEqual(marked[0]?.[1], { minor: 4, size: 2 });
  t.is(rule.factors.get(marked[0]?.[0] ?? '')?.size, 8);
  t.deepEqual(marks.conflicts, []);
});

test('a batch that becomes groups of samples is followed digit by digit, and back', async (t) => {
  const grouped = model({
    node: [
      node('Reshape', ['x', 'apart'], ['groups'], {}, { name: 'cut' }),
      node('Transpose', ['groups'], ['turned'], { perm: [1, 0, 2] }),
      node('Reshape', ['turned', 'beside'], ['rows'], {}, { name: 'merge' }),
      node('Relu', ['rows'], ['kept']),
      node('Reshape', ['kept', 'parted'], ['split']),
      node('Transpose', ['split'], ['back'], { perm: [1, 0, 2] }),
      node('Reshape', ['back', 'whole'], ['y']),
    ],
    initializer: [
      tensor('apart', [3], [2, 4, 6], 'int64'),
      tensor('beside', [2], [4, 12], 'int64'),
      tensor('parted', [3], [4, 2, 6], 'int64'),
      tensor('whole', [2], [8, 6], 'int64'),
    ],
    input: [value('x', [8, 6])],
    output: [value('y', [8, 6])],
  });
  const { graph } = await importModel(await saved(grouped));
  t.deepEqual(followBatch(graph).conflicts, ['cut']);
  const marks = followBatch(graph, { digits: true });
  t.deepEqual(marks.conflicts, []);
  const [first, last] = [
    { minor: 1, size: 2, samples: 4 },
    { minor: 1, size: 4 },
  ];
  t.deepEqual(marks.dimensionMarks('groups'), [first, last, null]);
  t.deepEqual(marks.dimensionMarks('rows'), [last, { ...first, minor: 6 }]);
  t.deepEqual(marks.dimensionMarks('y'), [{ minor: 1, size: 8 }, null]);
});

test('at another batch every sample is computed as before', async (t) => {
  const file = await saved(attention);
  const input = noise([2, 4, 6]);
  const before = await runOnnx(file, { x: input });
  for (const globalBatch of [6, 1, 8]) {
    const { graph } = await importModel(file, { globalBatch });
    t.deepEqual(graph.tensors.get('flat')?.shape, [4 * globalBatch, 6]);
    const repeats = Array.from({ length: Math.ceil(globalBatch / 2) });
    const rows = (data: Uint8Array): Uint8Array =>
      Buffer.concat(repeats.map(() => data)).subarray(0, globalBatch * 4 * 6 * 4);
    const after = await runOnnx(writeOnnx(graph), {
      x: { dtype: 'float32', shape: [globalBatch, 4, 6], data: new Uint8Array(rows(input.data)) },
    });
    const wanted = before['y'];
    if (!wanted) return t.fail();
    compare(t, after, { y: { dtype: 'float32', shape: [globalBatch, 4, 6], data: new Uint8Array(rows(wanted.data)) } });
  }
});

test('the other input shares the batch only with an equal first dimension', async (t) => {
  const graph = model({
    node: [node('Gather', ['table', 'ids'], ['h']), node('Add', ['h', 'x'], ['y'])],
    input: [value('ids', [2], 'int64'), value('x', [2, 3]), value('table', [5, 3])],
    output: [value('y', [2, 3])],
  });
  const imported = await importModel(await saved(graph));
  t.deepEqual(imported.graph.batch, [
    { input: 'ids', axis: 0 },
    { input: 'x', axis: 0 },
  ]);
  t.deepEqual(followBatch(imported.graph).dimensionMarks('table'), [null, null]);
});

const resized = async (
  nodes: readonly NodeProto[],
  more: Partial<NonNullable<ModelProto['graph']>>,
): Promise<unknown> => {
  const file = await saved(model({ node: nodes, input: [value('x', [2, 3])], output: [value('y', [2, 3])], ...more }));
  return importModel(file, { globalBatch: 8 }).catch((error: unknown) => error);
};

test('a constant that differs from sample to sample is refused by node name', async (t) => {
  const error = await resized([node('Add', ['x', 'c'], ['y'], {}, { name: 'shift' })], {
    node: [
      node('Constant', [], ['c'], { value: constant('float32', [1, 2, 3, 4, 5, 6], [2, 3]) }),
      node('Add', ['x', 'c'], ['y'], {}, { name: 'shift' }),
    ],
  });
  t.true(error instanceof AutoparError);
  t.like(error, { code: 'batch-constant', where: { node: 'shift' } });
});

test('a constant that numbers the samples is continued; one that only differs is not', async (t) => {
  const lookup = (numbers: readonly number[]) =>
    resized([], {
      node: [
        node('Reshape', ['x', 'flat'], ['rows']),
        node('Gather', ['rows', 'places'], ['picked'], { axis: 0 }),
        node('Add', ['picked', 'x'], ['y']),
      ],
      initializer: [tensor('flat', [1], [6], 'int64'), tensor('places', [2, 3], numbers, 'int64')],
    });
  const continued = (await lookup([2, 0, 1, 5, 3, 4])) as ImportedModel;
  const places = continued.graph.weights.get('places');
  t.deepEqual(places?.shape, [8, 3]);
  t.deepEqual(
    places && numbersOf({ ...places, data: (places.source as { data: Uint8Array }).data }).slice(-6),
    [20, 18, 19, 23, 21, 22],
  );
  // Remainders beyond the step, and a step that is not one for all.
  for (const numbers of [
    [0, 1, 2, 2, 3, 4],
    [2, 0, 1, 5, 3, 5],
  ]) {
    t.like(await lookup(numbers), { code: 'batch-constant', where: { tensor: 'places' } });
  }
});

test('a parameter that is tied to the batch is repeated where its samples are equal', async (t) => {
  const products = (values: readonly number[]) =>
    resized([node('MatMul', ['x', 'W'], ['y'], {}, { name: 'product' })], {
      input: [value('x', [2, 3, 2])],
      initializer: [tensor('W', [2, 2, 1], values)],
      output: [value('y', [2, 3, 1])],
    });
  const { graph } = (await products([1, 2, 1, 2])) as ImportedModel;
  t.deepEqual(graph.tensors.get('y')?.shape, [8, 3, 1]);
  t.like(await products([1, 2, 3, 4]), { code: 'batch-constant', where: { node: 'product' } });
});

test('a batch that gets lost is refused by node name', async (t) => {
  const error = await resized(
    [node('Concat', ['x', 'x'], ['d'], { axis: 0 }), node('Reshape', ['d', 's'], ['y'], {}, { name: 'fold' })],
    { initializer: [tensor('s', [2], [3, 4], 'int64')], output: [value('y', [3, 4])] },
  );
  t.true(error instanceof AutoparError);
  t.like(error, { code: 'batch-ambiguous' });
});

test('a model without batch, and a batch that is no number of samples', async (t) => {
  const scalar = await saved(
    model({ node: [node('Neg', ['x'], ['y'])], input: [value('x', [])], output: [value('y', [])] }),
  );
  await t.throwsAsync(importModel(scalar, { globalBatch: 4 }), { message: /no input with a batch dimension/ });
  await t.throwsAsync(importModel(scalar, { globalBatch: 0 }), { message: /positive integer/ });
});

test('a sum over the samples is told: its divisor may be a constant', async (t) => {
  const graph = model({
    node: [node('Transpose', ['x'], ['xt'], { perm: [1, 0] }), node('MatMul', ['xt', 'z'], ['g'])],
    input: [value('x', [2, 3]), value('z', [2, 5])],
    output: [value('g', [3, 5])],
  });
  const { notes } = await importModel(await saved(graph), { globalBatch: 4 });
  t.regex(notes.join(), /sums over the samples/);
});

test('a node that picks fixed positions along the batch is refused: they may be all that there were', async (t) => {
  const error = await resized([node('Gather', ['x', 'i'], ['y'], { axis: 0 }, { name: 'pick' })], {
    initializer: [tensor('i', [2], [1, 0], 'int64')],
  });
  t.true(error instanceof AutoparError);
  t.regex(String(error), /node 'pick' \(Gather\): it picks or writes fixed positions along dimension 0/);
});

test('a node that writes fixed positions along the batch is refused: they may not be there', async (t) => {
  const error = await resized([node('ScatterND', ['x', 'i', 'u'], ['y'], {}, { name: 'write' })], {
    initializer: [tensor('i', [1, 1], [1], 'int64'), ramp('u', [1, 3])],
  });
  t.true(error instanceof AutoparError);
  t.regex(String(error), /node 'write' \(ScatterND\): it picks or writes fixed positions along dimension 0/);
});

test('an operator that counts over all samples is refused: a capacity would keep its old value', async (t) => {
  const error = await resized([node('CumSum', ['x', 'axis'], ['y'], {}, { name: 'count' })], {
    initializer: [tensor('axis', [], [0], 'int64')],
  });
  t.true(error instanceof AutoparError);
  t.regex(String(error), /node 'count' \(CumSum\): it ranks or counts over all samples/);
});
