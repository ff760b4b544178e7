import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import type { GraphProto } from '../../../src/ir/onnx/schema.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { model, node, saved, tensor, value } from '../model-maker.js';
import { noise, operators, sameResults } from '../same-results.js';

const taken: GraphProto = {
  name: 'taken',
  node: [node('OptionalGetElement', ['o'], ['held']), node('Neg', ['held'], ['out'])],
  output: [value('out', [3])],
};
const missed: GraphProto = { name: 'missed', node: [node('Exp', ['x'], ['out'])], output: [value('out', [3])] };

test('an optional with a value is the value, and an If on it takes its branch', async (t) => {
  const graph = model({
    node: [
      node('Optional', ['x'], ['o']),
      node('OptionalHasElement', ['o'], ['has']),
      node('If', ['has'], ['y'], { then_branch: taken, else_branch: missed }),
    ],
    input: [value('x', [3])],
    output: [value('y', [3])],
  });
  t.deepEqual(operators(await sameResults(t, graph, { x: noise([3]) })), ['Neg']);
});

test('an optional without a value has none, and reading it is refused', async (t) => {
  const graph = model({
    node: [
      node('OptionalHasElement', [''], ['has']),
      node('If', ['has'], ['y'], {
        then_branch: { name: 'never', node: [node('Abs', ['x'], ['out'])], output: [value('out', [3])] },
        else_branch: missed,
      }),
    ],
    input: [value('x', [3])],
    output: [value('y', [3])],
  });
  t.deepEqual(operators(await importModel(await saved(graph))), ['Exp']);
  const reading = model({
    node: [node('Optional', [], ['o']), node('OptionalGetElement', ['o'], ['y'])],
    output: [value('y', [])],
  });
  await t.throwsAsync(async () => importModel(await saved(reading)), { code: 'empty-optional' });
});

test('a sequence chosen by an If, and Identity of one', async (t) => {
  const pair = (name: string, first: string, second: string): GraphProto => ({
    name,
    node: [node('SequenceConstruct', [first, second], ['pair'])],
    output: [sequence('pair')],
  });
  const graph = model({
    node: [
      node('If', ['on'], ['s'], { then_branch: pair('a', 'x', 'z'), else_branch: pair('b', 'z', 'x') }),
      node('Identity', ['s'], ['s2']),
      node('SequenceAt', ['s2', 'zero'], ['first']),
      node('Neg', ['first'], ['y']),
    ],
    initializer: [tensor('on', [], [0], 'bool'), tensor('zero', [], [0], 'int64')],
    input: [value('x', [3]), value('z', [3])],
    output: [value('y', [3])],
  });
  await sameResults(t, graph, { x: noise([3]), z: noise([3], 7) });
});

test('positions outside of a sequence, and parts of no size, are refused', async (t) => {
  const reading = (index: number, operator = 'SequenceAt') =>
    model({
      node: [
        node('SequenceConstruct', ['x', 'x'], ['s']),
        ...(operator === 'SequenceAt'
          ? [node('SequenceAt', ['s', 'index'], ['y'])]
          : [node('SequenceErase', ['s', 'index'], ['t']), node('ConcatFromSequence', ['t'], ['y'], { axis: 0 })]),
      ],
      initializer: [tensor('index', [], [index], 'int64')],
      input: [value('x', [3])],
      output: [value('y', [3])],
    });
  for (const graph of [reading(2), reading(-3), reading(2, 'SequenceErase')])
    await t.throwsAsync(async () => importModel(await saved(graph)), { code: 'sequence-index' });
  await sameResults(t, reading(-2, 'SequenceErase'), { x: noise([3]) });
  const parts = model({
    node: [node('SplitToSequence', ['x', 'size'], ['s']), node('ConcatFromSequence', ['s'], ['y'], { axis: 0 })],
    input: [value('x', [3]), value('size', [], 'int64')],
    output: [value('y', [3])],
  });
  const none = constant('int64', [0]);
  await t.throwsAsync(async () => importModel(await saved(parts), { constants: { size: none } }), {
    code: 'sequence-index',
  });
});

function sequence(name: string) {
  return { name, type: { sequence_type: { elem_type: { tensor_type: { elem_type: 1 } } } } };
}
