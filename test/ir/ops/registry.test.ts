/**
 * @file The registry as a table: names, errors for malformed operators, and the entry of what it does not know.
 */
import test from 'ava';
import { AutoparError } from '../../../src/ir/error.js';
import type { Attributes } from '../../../src/ir/graph.js';
import type { Operator } from '../../../src/ir/operator.js';
import { operatorOf } from '../../../src/ir/operator-of.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { entryOf, operatorEntries, operatorEntry, ruleOf } from '../../../src/ir/ops/index.js';
import { needEntry } from './simulate.js';

function operator(
  op: string,
  shapes: readonly (readonly number[])[],
  attributes: Attributes = {},
  outputCount = 1,
): Operator {
  const inputs = shapes.map((shape) => ({ dtype: 'float32' as const, shape }));
  return { name: 'the-node', op, domain: '', attributes, inputs, outputs: [], outputCount };
}

test('each operator has one entry', (t) => {
  const names = operatorEntries.map(({ op, domain }) => `${domain}:${op}`);
  t.is(new Set(names).size, names.length);
  t.is(entryOf('MatMul', 'ai.onnx'), entryOf('MatMul', ''));
  t.is(entryOf('MatMul', 'other'), undefined);
});

const MALFORMED: readonly [Operator, RegExp][] = [
  [
    operator('MatMul', [
      [4, 6],
      [5, 8],
    ]),
    /MatMul the-node: the contracted sizes differ; its operands are float32\[4, 6\]/,
  ],
  [operator('Add', [[4, 6], [5]]), /sizes 6 and 5 do not broadcast/],
  [operator('Add', [[4, 6]]), /operand 1 is missing/],
  [operator('Reshape', [[4, 6]], { shape: [5, 5] }), /\[4, 6\] does not reshape to \[5, 5\]/],
  [operator('Reshape', [[4, 6]]), /its shape must be a constant/],
  [
    operator(
      'Concat',
      [
        [4, 6],
        [5, 6],
      ],
      { axis: 1 },
    ),
    /must agree/,
  ],
  [operator('Split', [[4, 6]], { split: [2, 2], axis: 1 }, 2), /does not split into 2 \+ 2/],
  [
    operator('Conv', [
      [1, 4, 6, 6],
      [8, 3, 3, 3],
    ]),
    /does not fit 4 channels/,
  ],
  [
    operator('Conv', [
      [1, 4, 2, 6],
      [8, 4, 3, 3],
    ]),
    /does not fit a dimension of 2/,
  ],
  [operator('Squeeze', [[4, 6]], { axes: [0] }), /dimension 0 is not 1/],
  [operator('Gather', [[4, 6], [2]], { axis: 5 }), /axis 5 is outside rank 2/],
  [
    operator(
      'Einsum',
      [
        [4, 6],
        [5, 8],
      ],
      { equation: 'ij,jk->ik' },
    ),
    /j is 6 in one place and 5 in another/,
  ],
  [operator('LayerNormalization', [[4, 6], [5]]), /scale and bias/],
  [
    operator('Attention', [
      [2, 4, 6, 8],
      [2, 3, 6, 8],
      [2, 3, 6, 8],
    ]),
    /do not match/,
  ],
];

for (const [malformed, message] of MALFORMED) {
  test(`malformed ${malformed.op}: ${message.source}`, (t) => {
    const error = t.throws(() => needEntry(malformed.op).infer(malformed), { instanceOf: AutoparError, message });
    t.is(error?.code, 'shape-mismatch');
    t.is(error?.exit, 'input');
    t.is(error?.where.node, 'the-node');
  });
}

test('a Range over data is refused by name', (t) => {
  const error = t.throws(() => needEntry('Range').infer(operator('Range', [[], [], []])), { instanceOf: AutoparError });
  t.is(error?.code, 'data-dependent-shape');
});

test('an unknown operator is whole and its types come from elsewhere', (t) => {
  const unknown = operator('Mystery', [[4, 6], [2]]);
  const entry = operatorEntry({ op: 'Mystery', domain: 'somewhere' });
  t.throws(() => entry.infer(unknown), { instanceOf: AutoparError, message: /Mystery of somewhere/ });
  const rule = ruleOf({ ...unknown, outputs: [{ dtype: 'float32', shape: [4] }] });
  t.true([...rule.factors.values()].every(({ kind }) => kind === 'whole'));
  t.is(rule.text, 'x0_0! x0_1!, x1_0! -> y0_0!');
});

test('an operator has the types around its node', (t) => {
  const node = {
    name: 'add',
    op: 'Add',
    domain: '',
    attributes: {},
    inputs: ['a', null],
    outputs: ['c'],
    module: [],
    layer: null,
    forward: null,
    phase: 'forward' as const,
    group: 'add',
    body: null,
  };
  const tensors = new Map([['a', { dtype: 'float32' as const, shape: [4] }]]);
  t.like(operatorOf({ tensors }, node), { inputs: [{ shape: [4] }, null], outputs: [null], outputCount: 1 });
});

test('constants keep their values in every dtype', (t) => {
  const values = [0, 1, -2, 0.5, 65504, 2 ** -24, -0.333251953125];
  t.deepEqual(numbersOf(constant('float16', values, [7])), values);
  t.deepEqual(numbersOf(constant('float16', [1e6, 1 + 2 ** -11, 1 + 3 * 2 ** -11], [3])), [Infinity, 1, 1 + 2 ** -9]);
  t.deepEqual(numbersOf(constant('bfloat16', [1, -0.5, 3.140625], [3])), [1, -0.5, 3.140625]);
  for (const dtype of ['int64', 'int32', 'int16', 'int8', 'float64', 'float32'] as const)
    t.deepEqual(numbersOf(constant(dtype, [3, -7], [2])), [3, -7], dtype);
  for (const dtype of ['uint64', 'uint32', 'uint16', 'uint8'] as const)
    t.deepEqual(numbersOf(constant(dtype, [3, 7], [2])), [3, 7], dtype);
  t.deepEqual(numbersOf(constant('bool', [0, 5], [2])), [0, 1]);
});

test('work: products, views, lookups', (t) => {
  const typed = (op: string, shapes: readonly (readonly number[])[], attributes: Attributes = {}) => {
    const untyped = operator(op, shapes, attributes);
    return needEntry(op).work({ ...untyped, outputs: needEntry(op).infer(untyped) });
  };
  t.is(
    typed('MatMul', [
      [2, 4, 6],
      [6, 8],
    ]).flops,
    2 * 2 * 4 * 6 * 8,
  );
  t.is(
    typed(
      'Conv',
      [
        [2, 4, 6, 6],
        [8, 2, 3, 3],
      ],
      { group: 2 },
    ).flops,
    2 * (2 * 8 * 4 * 4) * 2 * 9,
  );
  t.is(
    typed(
      'Einsum',
      [
        [2, 4, 6],
        [6, 8],
      ],
      { equation: 'bij,jk->bik' },
    ).flops,
    2 * 2 * 4 * 6 * 8,
  );
  t.deepEqual(typed('Reshape', [[4, 6]], { shape: [24] }), { flops: 0, bytes: 0 });
  t.is(typed('Gather', [[1000, 8], [4]]).bytes, 2 * 4 * 8 * 4 + 4 * 4);
});
