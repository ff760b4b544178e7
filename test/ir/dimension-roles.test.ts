import test from 'ava';
import { importModel } from '../../src/api/models/import.js';
import { dimensionRoles } from '../../src/ir/dimension-roles.js';
import type { ModelProto } from '../../src/ir/onnx/schema.js';
import { model, node, ramp, saved, tensor, value } from './model-maker.js';

async function rolesOf(graph: ModelProto) {
  const { inputs, outputs } = dimensionRoles((await importModel(await saved(graph))).graph);
  const words = (dimensions: readonly { readonly role: string }[]) => dimensions.map(({ role }) => role).join(' ');
  return { inputs, outputs, in: words(inputs), out: words(outputs) };
}

test('an image: channels, height and width, also in patches', async (t) => {
  const conv = (attributes: Parameters<typeof node>[3]) =>
    model({
      node: [node('Conv', ['x', 'w'], ['y'], attributes)],
      initializer: [ramp('w', [8, 3, 4, 4])],
      input: [value('x', [2, 3, 16, 16])],
      output: [value('y', [2, 8, attributes?.['strides'] ? 4 : 13, attributes?.['strides'] ? 4 : 13])],
    });
  t.is((await rolesOf(conv({}))).in, 'batch channels height width');
  t.is((await rolesOf(conv({ strides: [4, 4] }))).in, 'batch channels height width');
});

test('tokens: the sequence comes from the lookup, the vocabulary from the size of the table', async (t) => {
  const found = await rolesOf(
    model({
      node: [node('Gather', ['table', 'ids'], ['h'], { axis: 0 }), node('MatMul', ['h', 'head'], ['y'])],
      initializer: [ramp('table', [50, 8]), ramp('head', [8, 50])],
      input: [value('ids', [4, 6], 'int64')],
      output: [value('y', [4, 6, 50])],
    }),
  );
  t.is(found.in, 'batch sequence');
  t.is(found.out, 'batch sequence vocabulary');
  t.deepEqual(found.outputs[1]?.from, { input: 'ids', axis: 1 });
  t.deepEqual(found.inputs[1]?.operatorsByKind, { pass: 2 });
});

test('attention written out: what is query and key is the sequence, what weights contract is features', async (t) => {
  const found = await rolesOf(
    model({
      node: [
        node('MatMul', ['x', 'wq'], ['q']),
        node('MatMul', ['x', 'wk'], ['k']),
        node('Transpose', ['k'], ['kt'], { perm: [0, 2, 1] }),
        node('MatMul', ['q', 'kt'], ['s']),
        node('Softmax', ['s'], ['p'], { axis: -1 }),
        node('MatMul', ['p', 'x'], ['y']),
      ],
      initializer: [ramp('wq', [8, 8]), ramp('wk', [8, 8])],
      input: [value('x', [2, 6, 8])],
      output: [value('y', [2, 6, 8])],
    }),
  );
  t.is(found.in, 'batch sequence features');
  t.is(found.out, 'batch sequence features');
});

test('a recurrence runs over the sequence, wherever its batch is', async (t) => {
  const found = await rolesOf(
    model({
      node: [node('LSTM', ['x', 'w', 'r'], ['y'], { hidden_size: 4 })],
      initializer: [ramp('w', [1, 16, 3]), ramp('r', [1, 16, 4])],
      input: [value('x', [7, 2, 3])],
      output: [value('y', [7, 1, 2, 4])],
    }),
  );
  t.is(found.inputs[2]?.role, 'features');
  t.deepEqual(found.inputs[2]?.operatorsByKind, { whole: 1 });
});

test('a dimension that only passes through has no role, and one of size 1 neither', async (t) => {
  const found = await rolesOf(
    model({
      node: [node('Add', ['x', 'one'], ['y'])],
      initializer: [tensor('one', [1], [1])],
      input: [value('x', [3, 5, 1])],
      output: [value('y', [3, 5, 1])],
    }),
  );
  t.is(found.in, 'batch other other');
  t.is(found.out, 'batch other other');
});
