import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { float, model, node, ramp, saved, tensor, value } from '../model-maker.js';
import { noise, operators, sameResults } from '../same-results.js';

const int64 = (
  name: string,
  values: readonly number[],
  shape: readonly number[] = [values.length],
): ReturnType<typeof tensor> => tensor(name, shape, values, 'int64');

test('Gemm becomes Transpose, MatMul, scale and Add; a weight that only it reads is transposed in place', async (t) => {
  const graph = model({
    node: [
      node(
        'Gemm',
        ['x', 'fc.weight', 'fc.bias'],
        ['y'],
        { transB: 1, alpha: float(0.5), beta: float(2) },
        { name: 'fc' },
      ),
    ],
    initializer: [ramp('fc.weight', [5, 3]), ramp('fc.bias', [5])],
    input: [value('x', [2, 3])],
    output: [value('y', [2, 5])],
  });
  const imported = await sameResults(t, graph, { x: noise([2, 3]) });
  t.deepEqual(operators(imported), ['MatMul', 'Mul', 'Add']);
  t.deepEqual(imported.graph.weights.get('fc.weight')?.shape, [3, 5]);
  t.is(imported.graph.weights.get('fc.weight')?.role, 'parameter');
});

test('all forms of Gemm', async (t) => {
  for (const transA of [0, 1]) {
    for (const transB of [0, 1]) {
      const graph = model({
        node: [node('Gemm', ['a', 'b'], ['y'], { transA, transB })],
        input: [value('a', transA ? [3, 2] : [2, 3]), value('b', transB ? [5, 3] : [3, 5])],
        output: [value('y', [2, 5])],
      });
      await sameResults(t, graph, { a: noise(transA ? [3, 2] : [2, 3]), b: noise(transB ? [5, 3] : [3, 5], 7) });
    }
  }
});

test('a weight that is read as it is and transposed stays one weight and a Transpose or its folded copy', async (t) => {
  const graph = model({
    node: [node('Gather', ['table', 'ids'], ['h']), node('Gemm', ['h', 'table'], ['y'], { transB: 1 })],
    initializer: [ramp('table', [7, 3])],
    input: [value('ids', [4], 'int64')],
    output: [value('y', [4, 7])],
  });
  const imported = await sameResults(t, graph, { ids: constant('int64', [0, 6, 3, 1], [4]) });
  t.deepEqual(imported.graph.weights.get('table')?.shape, [7, 3]);
});

test('shape arithmetic, Identity and Dropout leave nothing behind', async (t) => {
  const graph = model(
    {
      node: [
        node('Shape', ['x'], ['s']),
        node('Gather', ['s', 'zero'], ['n'], { axis: 0 }),
        node('Unsqueeze', ['n', 'zeros'], ['n1']),
        node('Concat', ['n1', 'minus'], ['target'], { axis: 0 }),
        node('Identity', ['x'], ['xi']),
        node('Dropout', ['xi'], ['xd']),
        node('Reshape', ['xd', 'target'], ['r']),
        node('Relu', ['r'], ['y']),
      ],
      initializer: [int64('zero', [0], []), int64('zeros', [0]), int64('minus', [-1])],
      input: [value('x', ['N', 3, 4])],
      output: [value('y', ['N', 12])],
    },
    17,
  );
  const imported = await sameResults(t, graph, { x: noise([2, 3, 4]) }, { dims: { N: 2 } });
  t.deepEqual(operators(imported), ['Reshape', 'Relu']);
  t.deepEqual(imported.graph.nodes[0]?.attributes, { shape: [2, 12] });
});

test('equal operators are computed once, random ones never merge', async (t) => {
  const graph = model({
    node: [
      node('Exp', ['x'], ['a']),
      node('Exp', ['x'], ['b']),
      node('Add', ['a', 'b'], ['y']),
      node('RandomNormalLike', ['x'], ['r1']),
      node('RandomNormalLike', ['x'], ['r2']),
      node('Sub', ['r1', 'r2'], ['r']),
      node('Shape', ['r'], ['z']),
    ],
    input: [value('x', [3])],
    output: [value('y', [3]), value('z', [1], 'int64')],
  });
  const imported = await sameResults(t, graph, { x: noise([3]) });
  t.deepEqual(operators(imported), ['Exp', 'Add', 'Identity']);
});

test('views that undo each other go', async (t) => {
  const graph = model({
    node: [
      node('Transpose', ['x'], ['a'], { perm: [1, 0, 2] }),
      node('Transpose', ['a'], ['b'], { perm: [1, 0, 2] }),
      node('Reshape', ['b', 'flat'], ['c']),
      node('Reshape', ['c', 'back'], ['d']),
      node('Neg', ['d'], ['y']),
    ],
    initializer: [int64('flat', [-1]), int64('back', [2, 3, 4])],
    input: [value('x', [2, 3, 4])],
    output: [value('y', [2, 3, 4])],
  });
  t.deepEqual(operators(await sameResults(t, graph, { x: noise([2, 3, 4]) })), ['Neg']);
});

test('sequences of constant indices are plain tensors', async (t) => {
  const graph = model({
    node: [
      node('SplitToSequence', ['x', 'sizes'], ['s'], { axis: 1 }),
      node('SequenceAt', ['s', 'last'], ['a']),
      node('SequenceAt', ['s', 'zero'], ['b']),
      node('SequenceConstruct', ['b', 'a'], ['s2']),
      node('ConcatFromSequence', ['s2'], ['y'], { axis: 1 }),
    ],
    initializer: [int64('sizes', [1, 3]), int64('last', [-1], []), int64('zero', [0], [])],
    input: [value('x', [2, 4])],
    output: [value('y', [2, 4])],
  });
  t.deepEqual(operators(await sameResults(t, graph, { x: noise([2, 4]) })), ['Split', 'Concat']);
});

test('SplitToSequence that drops the axis', async (t) => {
  const graph = model({
    node: [
      node('SplitToSequence', ['x'], ['s'], { axis: 0, keepdims: 0 }),
      node('SequenceAt', ['s', 'one'], ['a']),
      node('Neg', ['a'], ['y']),
    ],
    initializer: [int64('one', [1], [])],
    input: [value('x', [2, 4])],
    output: [value('y', [4])],
  });
  await sameResults(t, graph, { x: noise([2, 4]) });
});

test('an If with a constant condition becomes its branch', async (t) => {
  const branch = (op: string): Parameters<typeof model>[0] => ({
    name: op,
    node: [node(op, ['x'], ['inner']), node('Neg', ['inner'], ['out'])],
    output: [value('out', [3])],
  });
  const graph = model({
    node: [
      node('Shape', ['x'], ['s']),
      node('Equal', ['s', 'three'], ['c']),
      node('Squeeze', ['c'], ['cs']),
      node('If', ['cs'], ['y'], { then_branch: branch('Exp'), else_branch: branch('Abs') }, { name: 'choose' }),
    ],
    initializer: [int64('three', [3])],
    input: [value('x', [3])],
    output: [value('y', [3])],
  });
  const imported = await sameResults(t, graph, { x: noise([3]) });
  t.deepEqual(operators(imported), ['Exp', 'Neg']);
});

test('indices in order make GatherND a Reshape', async (t) => {
  const indices = [0, 1].flatMap((row) => [0, 1, 2].flatMap((column) => [row, column]));
  const graph = model({
    node: [node('GatherND', ['x', 'i'], ['y'])],
    initializer: [int64('i', indices, [2, 1, 3, 2])],
    input: [value('x', [2, 3, 4])],
    output: [value('y', [2, 1, 3, 4])],
  });
  t.deepEqual(operators(await sameResults(t, graph, { x: noise([2, 3, 4]) })), ['Reshape']);
});

test('a Range between vectors of one element is computed as one between scalars', async (t) => {
  const graph = model({
    node: [node('Range', ['first', 'end', 'step'], ['r']), node('Add', ['x', 'r'], ['y'])],
    input: [value('x', [3], 'int64')],
    initializer: [
      tensor('first', [1], [2], 'int64'),
      tensor('end', [1], [5], 'int64'),
      tensor('step', [1], [1], 'int64'),
    ],
    output: [value('y', [3], 'int64')],
  });
  const imported = await importModel(await saved(graph));
  t.deepEqual(operators(imported), ['Add']);
});

test('outputs that are inputs, weights, constants or each other', async (t) => {
  const graph = model({
    node: [
      node('Identity', ['x'], ['same']),
      node('Relu', ['x'], ['r']),
      node('Identity', ['r'], ['once']),
      node('Identity', ['r'], ['twice']),
      node('Identity', ['w'], ['weight']),
      node('Shape', ['x'], ['shape']),
    ],
    initializer: [ramp('w', [2, 2])],
    input: [value('x', [3])],
    output: [
      value('same', [3]),
      value('once', [3]),
      value('twice', [3]),
      value('weight', [2, 2]),
      value('shape', [1], 'int64'),
    ],
  });
  const imported = await sameResults(t, graph, { x: noise([3]) });
  t.deepEqual(imported.graph.outputs, ['same', 'once', 'twice', 'weight', 'shape']);
});

test('a large constant stays an operator, and is still known where a shape needs it', async (t) => {
  const graph = model({
    node: [
      node('ConstantOfShape', ['big'], ['ones'], { value: constant('float32', [1], [1]) }),
      node('Trilu', ['ones'], ['mask'], { upper: 0 }),
      node('ReduceSum', ['mask'], ['count'], { keepdims: 0 }),
      node('Cast', ['count'], ['whole'], { to: 7 }),
      node('Unsqueeze', ['whole', 'zero'], ['target']),
      node('Expand', ['x', 'target'], ['y']),
      node('MatMul', ['row', 'mask'], ['z']),
    ],
    initializer: [int64('big', [300, 300]), int64('zero', [0])],
    input: [value('x', [1]), value('row', [1, 300])],
    output: [value('y', [45150]), value('z', [1, 300])],
  });
  const imported = await sameResults(t, graph, { x: noise([1]), row: noise([1, 300]) });
  t.true(operators(imported).includes('Trilu'));
  t.deepEqual(imported.graph.tensors.get('y')?.shape, [45150]);
});

test('a model-local function is inlined, with attribute references, defaults and nested calls', async (t) => {
  const graph = model(
    {
      node: [
        node('Block', ['x', 'b.0.fc.weight'], ['h'], { slope: float(0.5) }, { domain: 'local', name: '/first' }),
        node('Block', ['h', 'b.1.fc.weight'], ['y'], {}, { domain: 'local', name: '/second' }),
      ],
      initializer: [ramp('b.0.fc.weight', [4, 4]), ramp('b.1.fc.weight', [4, 4])],
      input: [value('x', [2, 4])],
      output: [value('y', [2, 4])],
    },
    17,
    {
      opset_import: [
        { domain: '', version: 17 },
        { domain: 'local', version: 1 },
      ],
      functions: [
        {
          name: 'Leak',
          domain: 'local',
          input: ['v'],
          output: ['w'],
          attribute: ['by'],
          opset_import: [{ domain: '', version: 17 }],
          node: [node('LeakyRelu', ['v'], ['w'], {}, { attribute: [{ name: 'alpha', type: 1, ref_attr_name: 'by' }] })],
        },
        {
          name: 'Block',
          domain: 'local',
          input: ['a', 'weight'],
          output: ['out'],
          attribute_proto: [{ name: 'slope', type: 1, f: 0.25 }],
          opset_import: [
            { domain: '', version: 17 },
            { domain: 'local', version: 1 },
          ],
          node: [
            node('MatMul', ['a', 'weight'], ['product']),
            node(
              'Leak',
              ['product'],
              ['out'],
              {},
              { domain: 'local', attribute: [{ name: 'by', type: 1, ref_attr_name: 'slope' }] },
            ),
          ],
        },
      ],
    },
  );
  const imported = await sameResults(t, graph, { x: noise([2, 4]) });
  t.deepEqual(
    imported.graph.nodes.map((item) => item.attributes['alpha']),
    [undefined, 0.5, undefined, 0.25],
  );
  t.deepEqual(
    imported.graph.nodes.map((item) => item.layer),
    ['b.0', 'b.0', 'b.1', 'b.1'],
  );
});

test('an input fixed by a constant is folded away', async (t) => {
  const graph = model({
    node: [node('Reshape', ['x', 'target'], ['y'])],
    input: [value('x', [2, 3]), value('target', [1], 'int64')],
    output: [value('y', [6])],
  });
  const target = constant('int64', [6], [1]);
  const imported = await sameResults(t, graph, { x: noise([2, 3]), target }, { constants: { target } });
  t.deepEqual(imported.graph.inputs, ['x']);
});

test('an operator without an entry gets its types from a trial run and a note', async (t) => {
  const graph = model({
    node: [node('MeanVarianceNormalization', ['x'], ['h'], { axes: [0, 2, 3] }), node('Relu', ['h'], ['y'])],
    input: [value('x', [2, 3, 4, 4])],
    output: [value('y', [2, 3, 4, 4])],
  });
  const imported = await sameResults(t, graph, { x: noise([2, 3, 4, 4]) });
  t.deepEqual(imported.graph.tensors.get('h')?.shape, [2, 3, 4, 4]);
});

test('names are unique: repeated ones become operator and ordinal', async (t) => {
  const graph = model({
    node: [
      node('Exp', ['x'], ['a'], {}, { name: 'n' }),
      node('Neg', ['a'], ['b'], {}, { name: 'n' }),
      node('Abs', ['b'], ['y'], {}, { name: 'last' }),
    ],
    input: [value('x', [3])],
    output: [value('y', [3])],
  });
  const imported = await importModel(await saved(graph));
  t.deepEqual(
    imported.graph.nodes.map((item) => item.name),
    ['Exp_0', 'Neg_0', 'last'],
  );
});

test('an Identity of a vector is a parameter of its own, one of a matrix is a tie', async (t) => {
  const graph = model({
    node: [
      node('Identity', ['n.0.bias'], ['n.1.bias']),
      node('Identity', ['table'], ['head']),
      node('Add', ['x', 'n.0.bias'], ['a']),
      node('Add', ['a', 'n.1.bias'], ['b']),
      node('MatMul', ['b', 'table'], ['c']),
      node('MatMul', ['c', 'head'], ['y']),
    ],
    initializer: [ramp('n.0.bias', [3]), ramp('table', [3, 3])],
    input: [value('x', [2, 3])],
    output: [value('y', [2, 3])],
  });
  const imported = await sameResults(t, graph, { x: noise([2, 3]) });
  t.deepEqual([...imported.graph.weights.keys()].sort(), ['n.0.bias', 'n.1.bias', 'table']);
});

test('a Gather by 0, 1, 2, … in another shape is a Reshape; one in another order stays', async (t) => {
  const strided = (order: readonly number[]) =>
    model({
      node: [node('Gather', ['x', 'i'], ['y'], { axis: 1 })],
      initializer: [int64('i', order, [2, 3])],
      input: [value('x', [2, 6])],
      output: [value('y', [2, 2, 3])],
    });
  const plain = await sameResults(t, strided([0, 1, 2, -3, 4, 5]), { x: noise([2, 6]) });
  t.deepEqual(operators(plain), ['Reshape']);
  const moved = await sameResults(t, strided([1, 0, 2, 3, 4, 5]), { x: noise([2, 6]) });
  t.deepEqual(operators(moved), ['Gather']);
});
