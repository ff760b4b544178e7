import test from 'ava';
import type { Weight } from '../../../src/ir/graph.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { ConstantFolder, type Evaluate } from '../../../src/ir/passes/fold.js';
import { evaluate } from '../../../src/runtime/evaluate.js';

function counting(): { evaluate: Evaluate; count: () => number } {
  let count = 0;
  return {
    evaluate: (model, inputs) => {
      count++;
      return evaluate(model, inputs);
    },
    count: () => count,
  };
}

const add = { name: 'a', op: 'Add', domain: '', attributes: {} };

test('a chain is one evaluation, equal applications are one constant, results are kept', async (t) => {
  const counter = counting();
  const folder = new ConstantFolder(counter.evaluate, 'm.onnx');
  let sum = folder.literal('one', constant('int64', [1], [1]));
  const one = sum;
  for (let step = 0; step < 50; step++) [sum = one] = folder.apply(add, [sum, one], ['s'], null);
  t.is(counter.count(), 0);
  t.deepEqual(numbersOf(await folder.valueOf(sum)), [51]);
  t.is(counter.count(), 1);
  t.deepEqual(await folder.typeOf(sum), { dtype: 'int64', shape: [1] });
  const [again] = folder.apply(add, [one, folder.literal('other', constant('int64', [1], [1]))], ['t'], null);
  const [first] = folder.apply(add, [one, one], ['u'], null);
  t.is(again, first);
  await folder.valueOf(sum);
  t.is(counter.count(), 1);
});

test('several constants are settled in one evaluation, and some results of an operator after others', async (t) => {
  const counter = counting();
  const folder = new ConstantFolder(counter.evaluate, 'm.onnx');
  const data = folder.literal('d', constant('float32', [1, 2, 3, 4], [4]));
  const parts = folder.apply(
    { name: 's', op: 'Split', domain: '', attributes: { axis: 0, split: [1, 3] } },
    [data],
    ['p', 'q'],
    null,
  );
  const [p, q] = parts;
  if (!p || !q) return t.fail();
  await folder.settle([p]);
  const [sum] = folder.apply(add, [p, q], ['r'], null);
  if (!sum) return t.fail();
  await folder.settle([sum, q]);
  t.is(counter.count(), 2);
  t.deepEqual(numbersOf(await folder.valueOf(sum)), [3, 4, 5]);
  t.deepEqual(numbersOf(await folder.valueOf(q)), [2, 3, 4]);
});

test('bfloat16 constants keep their type', async (t) => {
  const folder = new ConstantFolder(evaluate, 'm.onnx');
  const value = constant('bfloat16', [1, -2.5, 3, 0.5], [2, 2]);
  const data = folder.literal('d', value);
  const [turned] = folder.apply(
    { name: 't', op: 'Transpose', domain: '', attributes: { perm: [1, 0] } },
    [data],
    ['t'],
    [{ dtype: 'bfloat16', shape: [2, 2] }],
  );
  if (!turned) return t.fail();
  const result = await folder.valueOf(turned);
  t.is(result.dtype, 'bfloat16');
  t.deepEqual([...result.data], [...constant('bfloat16', [1, 3, -2.5, 0.5], [2, 2]).data]);
});

test('initializers are never merged, and absent ones have no value', async (t) => {
  const folder = new ConstantFolder(evaluate, 'm.onnx');
  const value = constant('float32', [0], [1]);
  const source: Weight['source'] = { kind: 'inline', data: value.data };
  t.not(folder.stated('a', value, source, null), folder.stated('b', value, source, null));
  const absent = folder.stated('c', value, { kind: 'absent' }, 'parameter');
  t.false(absent.present);
  await t.throwsAsync(folder.valueOf(absent), { message: /planning needs the value of 'c'/ });
});

test('what ONNX Runtime cannot compute is an error that names the operator', async (t) => {
  const folder = new ConstantFolder(evaluate, 'm.onnx');
  const data = folder.literal('d', constant('float32', [1], [1]));
  const [broken] = folder.apply({ name: 'odd', op: 'NoSuchOperator', domain: '', attributes: {} }, [data], ['t'], null);
  if (!broken) return t.fail();
  const error = await t.throwsAsync(folder.valueOf(broken), { message: /could not compute/ });
  t.like(error, { code: 'fold-failed', where: { node: 'odd' } });
});
