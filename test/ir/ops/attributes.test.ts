/**
 * @file Attributes that a damaged or edited file may hold: every attribute of every sample operator is given a value of
 * another form, another sign, another length. The result is types, or an error that names operator and attribute.
 */
import test from 'ava';
import { AutoparError } from '../../../src/ir/error.js';
import type { Attributes, AttributeValue } from '../../../src/ir/graph.js';
import { formOfAttribute } from '../../../src/ir/onnx/attribute-types.js';
import type { Operator, OperatorEntry } from '../../../src/ir/operator.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { CASES, operatorOfCase } from './cases.js';
import { needEntry } from './simulate.js';

const WRONG: readonly (readonly [string, AttributeValue])[] = [
  ['a text', 'text'],
  ['an empty text', ''],
  ['fractions', [0.5, 1.5]],
  ['negative', -7],
  ['zero', 0],
  ['huge', 2 ** 60],
  ['a fraction', 0.5],
  ['not a number', Number.NaN],
  ['negatives', [-3, -3]],
  ['zeros', [0, 0, 0, 0]],
  ['many', Array.from({ length: 20 }, () => 1)],
  ['an empty list', []],
  ['texts', ['a', 'b']],
  ['a tensor', constant('float32', [1, 2], [2])],
  ['a tensor of nothing', constant('int64', [], [0])],
];

for (const sample of CASES) {
  const entry = needEntry(sample.op, sample.domain);
  const names = Object.keys(sample.attributes);
  if (names.length === 0) continue;
  const inputs = sample.inputs.map((input) => (input ? `[${input.shape}]` : '_')).join(' ');
  test(`${sample.domain}:${sample.op} ${inputs} ${names} #${CASES.indexOf(sample)}`, (t) => {
    t.pass();
    const whole = { ...operatorOfCase(sample), name: 'the-node' };
    for (const name of names)
      for (const [words, value] of WRONG) {
        const operator: Operator = { ...whole, attributes: { ...sample.attributes, [name]: value }, outputs: [] };
        const failure = failureOf(entry, operator);
        const told = `${name} ${words}: ${failure?.stack}`;
        if (failure === null) continue;
        t.true(failure instanceof AutoparError, told);
        if (!(failure instanceof AutoparError)) continue;
        t.is(failure.where.node, 'the-node', told);
        t.true(['shape-mismatch', 'unsupported-attribute', 'data-dependent-shape'].includes(failure.code), told);
        if (failure.code === 'unsupported-attribute') t.true(failure.message.includes(`'${name}'`), told);
      }
  });
}

/** The error that inference, rule, work, linear sets or the attributes in full throw, if any. */
function failureOf(entry: OperatorEntry, operator: Operator): Error | null {
  try {
    entry.complete?.(operator);
    const types = entry.infer(operator);
    const typed = { ...operator, outputs: operator.outputCount === 0 ? [] : types };
    entry.rule(typed);
    entry.linear(typed);
    entry.work(typed);
    return null;
  } catch (error) {
    return error as Error;
  }
}

test('an attribute of another form is refused by name', (t) => {
  const operator = operatorOfCase(CASES.find(({ op }) => op === 'Softmax' || op === 'ArgMax') ?? (CASES[0] as never));
  const entry = needEntry(operator.op, operator.domain);
  for (const [value, words] of [
    ['one', 'its attribute \'axis\' is "one", where an integer is expected'],
    [[0.5], "its attribute 'axis' is [0.5], where an integer is expected"],
    [constant('int64', [1]), "its attribute 'axis' is a tensor, where an integer is expected"],
  ] as const) {
    const error = t.throws(() => entry.infer({ ...operator, attributes: { axis: value } }), {
      instanceOf: AutoparError,
    });
    t.is(error?.code, 'unsupported-attribute');
    t.true(error?.message.includes(words), error?.message);
  }
});

test('attributes in full mean what they meant before, and are complete', (t) => {
  const completed = new Set<string>();
  for (const sample of CASES) {
    const entry = needEntry(sample.op, sample.domain);
    if (!entry.complete) continue;
    const operator = operatorOfCase(sample);
    const attributes = entry.complete({ ...operator, outputs: [] });
    const full = { ...operator, attributes };
    t.deepEqual(entry.infer({ ...full, outputs: [] }), operator.outputs, operator.op);
    t.is(entry.rule(full).text, entry.rule(operator).text, operator.op);
    t.deepEqual(entry.complete({ ...full, outputs: [] }), attributes, operator.op);
    completed.add(sample.op);
  }
  t.true(completed.size >= 25, [...completed].join());
});

const IN_FULL: readonly (readonly [string, readonly number[], Attributes, Attributes, number?])[] = [
  ['Reshape', [2, 3, 4], { shape: [0, -1] }, { shape: [2, 12] }],
  ['Reshape', [0, 3], { shape: [0, 3], allowzero: 0 }, { shape: [0, 3], allowzero: 1 }],
  ['Expand', [3, 1], { shape: [2, 1, 4] }, { shape: [2, 3, 4] }],
  [
    'Slice',
    [2, 4],
    { starts: [-1], ends: [-100], axes: [-1], steps: [-1] },
    { starts: [3], ends: [-5], axes: [1], steps: [-1] },
  ],
  ['Slice', [2, 4], { starts: [1], ends: [2 ** 62] }, { starts: [1], ends: [2], axes: [0], steps: [1] }],
  ['Split', [2, 5], { axis: -1, num_outputs: 2 }, { axis: 1, split: [3, 2] }, 2],
  ['Pad', [2, 3], { pads: [1, 2], axes: [-1] }, { pads: [0, 1, 0, 2] }],
  ['Squeeze', [1, 3, 1], {}, { axes: [0, 2] }],
  ['Unsqueeze', [3], { axes: [-1, 0] }, { axes: [0, 2] }],
  ['Transpose', [2, 3, 4], {}, { perm: [2, 1, 0] }],
  ['ReduceSum', [2, 3], {}, { axes: [0, 1], keepdims: 1 }],
  ['ReduceSum', [2, 3], { noop_with_empty_axes: 1 }, { noop_with_empty_axes: 1 }],
  ['Softmax', [2, 3], {}, { axis: 1 }],
];

for (const [op, shape, given, expected, outputCount = 1] of IN_FULL)
  test(`${op} of [${shape}] in full: ${JSON.stringify(given)}`, (t) => {
    const inputs = [{ dtype: 'float32' as const, shape }];
    const operator = { name: 'the-node', op, domain: '', attributes: given, inputs, outputs: [], outputCount };
    t.deepEqual(needEntry(op).complete?.(operator), expected);
  });

test('every attribute of a sample has a known form', (t) => {
  for (const { op, domain, attributes } of CASES) {
    const entry = needEntry(op, domain);
    const held = entry.constantInputs.map(({ attribute }) => attribute);
    for (const name of Object.keys(attributes))
      t.true(held.includes(name) || formOfAttribute(name, entry.attributes) !== undefined, `${domain}:${op} ${name}`);
  }
});

test('tensors with more elements than can be counted are refused, operands and results', (t) => {
  const operator = (op: string, shapes: readonly (readonly number[])[], attributes = {}): Operator => ({
    name: 'the-node',
    op,
    domain: '',
    attributes,
    inputs: shapes.map((shape) => ({ dtype: 'float32' as const, shape })),
    outputs: [],
    outputCount: 1,
  });
  for (const large of [
    operator('Relu', [[2 ** 30, 2 ** 30]]),
    operator('Add', [
      [2 ** 30, 1],
      [1, 2 ** 30],
    ]),
    operator('MatMul', [
      [2 ** 40, 1],
      [1, 2 ** 40],
    ]),
    operator('Tile', [[2 ** 30]], { repeats: [2 ** 40] }),
    operator('Expand', [[1]], { shape: [2 ** 20, 2 ** 20, 2 ** 20] }),
    operator('ConstantOfShape', [], { shape: [2 ** 52, 3] }),
    operator('Concat', [[2 ** 53 - 1], [2 ** 53 - 1]], { axis: 0 }),
  ]) {
    const error = t.throws(() => needEntry(large.op).infer(large), {
      instanceOf: AutoparError,
      code: 'shape-mismatch',
    });
    t.is(error?.where.node, 'the-node');
    t.regex(error?.message ?? '', /more than 2\^53 elements|is not a shape/);
  }
});
