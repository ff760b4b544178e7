import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import type { GraphProto } from '../../../src/ir/onnx/schema.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { model, node, ramp, saved, tensor, value } from '../model-maker.js';
import { noise, operators, sameResults } from '../same-results.js';

const count = (name: string, number: number, shape: readonly number[] = []) => tensor(name, shape, [number], 'int64');
const flag = (name: string, set: boolean) => tensor(name, [], [set ? 1 : 0], 'bool');

/** v ← tanh(v + i) · w, whose values are handed out as well; the condition stays as it is. */
const body: GraphProto = {
  name: 'body',
  node: [
    node('Identity', ['keep'], ['still']),
    node('Cast', ['i'], ['number'], { to: 1 }),
    node('Add', ['v', 'number'], ['sum']),
    node('Tanh', ['sum'], ['bent']),
    node('Mul', ['bent', 'w'], ['next']),
    node('Neg', ['next'], ['out']),
  ],
  input: [value('i', [], 'int64'), value('keep', [], 'bool'), value('v', [2, 3])],
  output: [value('still', [], 'bool'), value('next', [2, 3]), value('out', [2, 3])],
};

const looped = (trips: number, more: Partial<GraphProto> = {}) =>
  model({
    node: [node('Loop', ['M', 'on', 'x'], ['y', 'all'], { body }, { name: 'steps' })],
    initializer: [count('M', trips), flag('on', true), ramp('w', [2, 3])],
    input: [value('x', [2, 3])],
    output: [value('y', [2, 3]), value('all', [trips, 2, 3])],
    ...more,
  });

test('a Loop of known length becomes its iterations, which are layers', async (t) => {
  const imported = await sameResults(t, looped(3), { x: noise([2, 3]) });
  t.is(operators(imported).filter((op) => op === 'Tanh').length, 3);
  t.false(operators(imported).includes('Loop'));
  t.deepEqual(
    imported.graph.nodes.filter(({ op }) => op === 'Tanh').map(({ layer }) => layer),
    ['steps.0', 'steps.1', 'steps.2'],
  );
});

test('a Loop that never runs hands its initial values on, and scan outputs without elements', async (t) => {
  const imported = await sameResults(t, looped(0), { x: noise([2, 3]) });
  t.deepEqual(operators(imported), ['Identity', 'Identity']);
  t.deepEqual(imported.graph.tensors.get('all')?.shape, [0, 2, 3]);
});

test('a Loop without a trip count ends by a condition that follows from constants', async (t) => {
  const graph = model({
    node: [node('Loop', ['', 'on', 'x', 'start'], ['y', 'last'], { body: counting })],
    initializer: [flag('on', true), count('start', 1), count('end', 20)],
    input: [value('x', [3])],
    output: [value('y', [3]), value('last', [], 'int64')],
  });
  const imported = await sameResults(t, graph, { x: noise([3]) });
  t.is(operators(imported).filter((op) => op === 'Add').length, 5);
});

/** n ← 2n while n < end. */
const counting: GraphProto = {
  name: 'counting',
  node: [
    node('Add', ['v', 'v'], ['next']),
    node('Add', ['n', 'n'], ['twice']),
    node('Less', ['twice', 'end'], ['more']),
  ],
  input: [value('i', [], 'int64'), value('keep', [], 'bool'), value('v', [3]), value('n', [], 'int64')],
  output: [value('more', [], 'bool'), value('next', [3]), value('twice', [], 'int64')],
};

test('the largest trip count of all does not keep a condition from ending a Loop', async (t) => {
  const graph = model({
    node: [node('Loop', ['most', 'on', 'x', 'start'], ['y', 'last'], { body: counting })],
    initializer: [
      { name: 'most', dims: [], data_type: 7, int64_data: [Number.MAX_SAFE_INTEGER] },
      flag('on', true),
      count('start', 1),
      count('end', 20),
    ],
    input: [value('x', [3])],
    output: [value('y', [3]), value('last', [], 'int64')],
  });
  await sameResults(t, graph, { x: noise([3]) });
});

test('nested Loops, captured values, a shape that grows and names that meet', async (t) => {
  const inner: GraphProto = {
    name: 'inner',
    node: [node('Identity', ['keep2'], ['still2']), node('Concat', ['grown', 'row'], ['longer'], { axis: 0 })],
    input: [value('j', [], 'int64'), value('keep2', [], 'bool'), value('grown', ['n', 3])],
    output: [value('still2', [], 'bool'), value('longer', ['m', 3])],
  };
  const outer: GraphProto = {
    name: 'outer',
    node: [
      node('Identity', ['keep'], ['still']),
      node('Mul', ['v', 'w'], ['row']),
      node('Loop', ['two', '', 'row'], ['rows'], { body: inner }, { name: 'steps' }),
      node('ReduceSum', ['rows', 'zero'], ['next'], { keepdims: 1 }),
    ],
    initializer: [count('two', 2), count('zero', 0, [1])],
    input: [value('i', [], 'int64'), value('keep', [], 'bool'), value('v', [1, 3])],
    output: [value('still', [], 'bool'), value('next', [1, 3]), value('rows', ['k', 3])],
  };
  const graph = model({
    node: [
      node('Neg', ['x'], ['steps/0']),
      node('Loop', ['M', '', 'steps/0'], ['y', 'rows of all'], { body: outer }, { name: 'steps' }),
    ],
    initializer: [count('M', 2, [1]), ramp('w', [1, 3])],
    input: [value('x', [1, 3])],
    output: [value('y', [1, 3]), value('rows of all', [2, 3, 3])],
  });
  await sameResults(t, graph, { x: noise([1, 3]) });
});

test('a trip count that is an input is refused until it is bound', async (t) => {
  const graph = looped(2, {
    initializer: [flag('on', true), ramp('w', [2, 3])],
    input: [value('x', [2, 3]), value('M', [], 'int64')],
  });
  const refused = await t.throwsAsync(async () => importModel(await saved(graph)), { code: 'control-flow' });
  t.regex(refused?.message ?? '', /'steps' \(Loop\) runs for a number of iterations that depends on the data/);
  const trips = constant('int64', [2]);
  await sameResults(t, graph, { x: noise([2, 3]), M: trips }, { constants: { M: trips } });
});

test('a condition that depends on the data is refused with the iteration', async (t) => {
  const doubling: GraphProto = {
    name: 'doubling',
    node: [
      node('Add', ['v', 'v'], ['next']),
      node('ReduceMax', ['next'], ['top'], { keepdims: 0 }),
      node('Less', ['top', 'end'], ['more']),
    ],
    input: [value('i', [], 'int64'), value('keep', [], 'bool'), value('v', [3])],
    output: [value('more', [], 'bool'), value('next', [3])],
  };
  const graph = model({
    node: [node('Loop', ['', '', 'x'], ['y'], { body: doubling }, { name: 'double' })],
    initializer: [tensor('end', [], [100])],
    input: [value('x', [3])],
    output: [value('y', [3])],
  });
  const refused = await t.throwsAsync(async () => importModel(await saved(graph)), { code: 'control-flow' });
  t.regex(refused?.message ?? '', /'double' \(Loop\) has a condition that depends on the data after iteration 0/);
});

test('a Loop that would become too many nodes is refused at once, with the numbers', async (t) => {
  const refused = await t.throwsAsync(async () => importModel(await saved(looped(1e6))), { code: 'loop-too-long' });
  t.regex(
    refused?.message ?? '',
    /'steps' \(Loop\) would become 1000000 iterations of 6 nodes; .* at most 20000 nodes/,
  );
});

test('a Loop whose condition always holds ends where the limit is', async (t) => {
  const endless: GraphProto = {
    name: 'endless',
    node: [
      ...Array.from({ length: 3000 }, (_, index) => node('Neg', [index === 0 ? 'v' : `v${index}`], [`v${index + 1}`])),
      node('Equal', ['i', 'i'], ['more']),
    ],
    input: [value('i', [], 'int64'), value('keep', [], 'bool'), value('v', [3])],
    output: [value('more', [], 'bool'), value('v3000', [3])],
  };
  const graph = model({
    node: [node('Loop', ['', '', 'x'], ['y'], { body: endless }, { name: 'forever' })],
    input: [value('x', [3])],
    output: [value('y', [3])],
  });
  await t.throwsAsync(async () => importModel(await saved(graph)), {
    code: 'loop-too-long',
    message: /'forever' \(Loop\) is at iteration 6/,
  });
});

test('a Loop that never ends, and one that does nothing a million times, are refused', async (t) => {
  const nothing = (name: string): GraphProto => ({
    name,
    input: [value('i', [], 'int64'), value('keep', [], 'bool'), value('v', [3])],
    output: [value('keep', [], 'bool'), value('v', [3])],
  });
  const graph = (trips: string) =>
    model({
      node: [node('Loop', [trips, '', 'x'], ['y'], { body: nothing('idle') }, { name: 'idle' })],
      initializer: [count('M', 1e6)],
      input: [value('x', [3])],
      output: [value('y', [3])],
    });
  await t.throwsAsync(async () => importModel(await saved(graph(''))), {
    code: 'loop-too-long',
    message: /'idle' \(Loop\) never ends/,
  });
  await t.throwsAsync(async () => importModel(await saved(graph('M'))), { code: 'loop-too-long' });
});

test('a body that does not fit its Loop is refused', async (t) => {
  const graph = looped(2);
  const [loop] = graph.graph?.node ?? [];
  const short = { ...graph, graph: { ...graph.graph, node: [{ ...loop, input: ['M', 'on', 'x', 'x'] }] } };
  await t.throwsAsync(async () => importModel(await saved(short)), {
    code: 'control-flow',
    message: /'steps' \(Loop\) needs a body of 4 inputs and 3 outputs, but has one of 3 and 3/,
  });
});

test('sequences built in a Loop are tensors again', async (t) => {
  const appending: GraphProto = {
    name: 'appending',
    node: [
      node('Identity', ['keep'], ['still']),
      node('SequenceAt', ['parts', 'i'], ['part']),
      node('Neg', ['part'], ['turned']),
      node('SequenceInsert', ['made', 'turned'], ['longer']),
    ],
    input: [value('i', [], 'int64'), value('keep', [], 'bool'), sequence('made')],
    output: [value('still', [], 'bool'), sequence('longer')],
  };
  const graph = model({
    node: [
      node('SplitToSequence', ['x', 'one'], ['parts'], { axis: 1 }),
      node('SequenceLength', ['parts'], ['n']),
      node('SequenceEmpty', [], ['none']),
      node('Loop', ['n', '', 'none'], ['all'], { body: appending }),
      node('ConcatFromSequence', ['all'], ['y'], { axis: 0 }),
    ],
    initializer: [count('one', 1)],
    input: [value('x', [2, 3])],
    output: [value('y', [6, 1])],
  });
  const imported = await sameResults(t, graph, { x: noise([2, 3]) });
  t.deepEqual(operators(imported), ['Split', 'Neg', 'Neg', 'Neg', 'Concat']);
});

test('SequenceMap works element by element', async (t) => {
  const scaled: GraphProto = {
    name: 'scaled',
    node: [node('Mul', ['a', 'factor'], ['b']), node('Shape', ['a'], ['sizes'])],
    input: [value('a', ['n', 2]), value('factor', [2])],
    output: [value('b', ['n', 2]), value('sizes', [2], 'int64')],
  };
  const graph = model({
    node: [
      node('SplitToSequence', ['x', 'sizes of parts'], ['parts'], { axis: 0 }),
      node('SequenceMap', ['parts', 'z'], ['made', 'shapes'], { body: scaled }),
      node('ConcatFromSequence', ['made'], ['y'], { axis: 0 }),
      node('ConcatFromSequence', ['shapes'], ['s'], { axis: 0, new_axis: 1 }),
    ],
    initializer: [tensor('sizes of parts', [2], [1, 2], 'int64')],
    input: [value('x', [3, 2]), value('z', [2])],
    output: [value('y', [3, 2]), value('s', [2, 2], 'int64')],
  });
  await sameResults(t, graph, { x: noise([3, 2]), z: noise([2], 5) });
});

test('SequenceMap over a sequence that the caller gives is refused', async (t) => {
  const graph = model({
    node: [
      node('SequenceMap', ['parts'], ['made'], {
        body: { name: 'b', node: [node('Neg', ['a'], ['b'])], input: [value('a', [2])], output: [value('b', [2])] },
      }),
      node('ConcatFromSequence', ['made'], ['y'], { axis: 0 }),
    ],
    input: [sequence('parts')],
    output: [value('y', [2])],
  });
  await t.throwsAsync(async () => importModel(await saved(graph)), { code: 'unsupported-input' });
});

function sequence(name: string) {
  return { name, type: { sequence_type: { elem_type: { tensor_type: { elem_type: 1 } } } } };
}
