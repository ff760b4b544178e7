import test from 'ava';
import { model, node, ramp, tensor, value } from '../model-maker.js';
import { noise, operators, sameResults } from '../same-results.js';

const target = (name: string, sizes: readonly number[]): ReturnType<typeof tensor> =>
  tensor(name, [sizes.length], sizes, 'int64');
const x = { x: noise([2, 3, 4]) };

test('flatten, Gemm, unflatten is a MatMul and an Add on the dimensions as they are', async (t) => {
  const graph = model({
    node: [
      node('Reshape', ['x', 'flat'], ['a']),
      node('Gemm', ['a', 'w', 'c'], ['b']),
      node('Relu', ['b'], ['r']),
      node('Reshape', ['r', 'back'], ['y']),
    ],
    initializer: [target('flat', [-1, 4]), target('back', [2, 3, 5]), ramp('w', [4, 5]), ramp('c', [5])],
    input: [value('x', [2, 3, 4])],
    output: [value('y', [2, 3, 5])],
  });
  const imported = await sameResults(t, graph, x);
  t.deepEqual(operators(imported), ['MatMul', 'Add', 'Relu']);
  t.deepEqual(
    imported.graph.nodes.map((item) => imported.graph.tensors.get(item.outputs[0] ?? '')?.shape),
    [
      [2, 3, 5],
      [2, 3, 5],
      [2, 3, 5],
    ],
  );
});

test('a flatten that merges heads as well becomes the merge', async (t) => {
  const graph = model({
    node: [
      node('Reshape', ['x', 'flat'], ['a']),
      node('MatMul', ['a', 'w'], ['b']),
      node('Reshape', ['b', 'back'], ['y']),
    ],
    initializer: [target('flat', [6, 4]), target('back', [2, 3, 5]), ramp('w', [4, 5])],
    input: [value('x', [2, 3, 2, 2])],
    output: [value('y', [2, 3, 5])],
  });
  const imported = await sameResults(t, graph, { x: noise([2, 3, 2, 2]) });
  t.deepEqual(operators(imported), ['Reshape', 'MatMul']);
  t.deepEqual(imported.graph.nodes[0]?.attributes, { shape: [2, 3, 4] });
});

test('what is read in its flat form stays flat', async (t) => {
  const read = model({
    node: [
      node('Reshape', ['x', 'flat'], ['a']),
      node('MatMul', ['a', 'w'], ['b']),
      node('Reshape', ['b', 'back'], ['y']),
    ],
    initializer: [target('flat', [-1, 4]), target('back', [2, 3, 5]), ramp('w', [4, 5])],
    input: [value('x', [2, 3, 4])],
    output: [value('y', [2, 3, 5]), value('b', [6, 5])],
  });
  t.deepEqual(operators(await sameResults(t, read, x)), ['Reshape', 'MatMul', 'Reshape']);
});

test('one flatten for several products, one of which stays flat', async (t) => {
  const graph = model({
    node: [
      node('Reshape', ['x', 'flat'], ['a']),
      node('MatMul', ['a', 'w'], ['b']),
      node('Reshape', ['b', 'back'], ['y']),
      node('MatMul', ['a', 'v'], ['z']),
    ],
    initializer: [target('flat', [-1, 4]), target('back', [2, 3, 5]), ramp('w', [4, 5]), ramp('v', [4, 2])],
    input: [value('x', [2, 3, 4])],
    output: [value('y', [2, 3, 5]), value('z', [6, 2])],
  });
  t.deepEqual([...operators(await sameResults(t, graph, x))].sort(), ['MatMul', 'MatMul', 'Reshape']);
});
