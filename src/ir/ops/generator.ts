/**
 * @file Operators that make values from nothing or from positions. A shard of a position-dependent result takes its
 * offset (`@`): the operator runs over local sizes and the offset enters as data.
 */
import type { DType } from '../dtype.js';
import { AutoparError } from '../error.js';
import type { ConstantTensor, TensorType } from '../graph.js';
import type { Expansion, Operator, OperatorEntry } from '../operator.js';
import { dimensionSize } from '../rule-text.js';
import { constant, numbersOf } from './constants.js';
import { entry, isFree, moves } from './entry.js';
import { ExpansionWriter } from './expansion.js';
import {
  axisOf,
  dimensionNames,
  dtypeAttribute,
  integers,
  mismatch,
  neededIntegers,
  numberOf,
  ofRank,
  operand,
  result,
  tensor,
} from './operands.js';
import { INTEGER_RESULT, type OperatorGradient, withGradients } from './operator-gradient.js';

const entries: readonly OperatorEntry[] = [
  entry({
    op: 'Trilu',
    family: 'generator',
    constantInputs: [{ index: 1, attribute: 'k', form: 'int' }],
    infer: (operator) => [ofRank(operator, 0, 2, true)],
    rule: (operator) => `*b i@ j@, ${operator.inputs[1]?.shape.map(() => '1').join(' ') ?? '_'} -> *b i@ j@`,
    linear: () => [[0]],
    indexed: triluOnShard,
    work: moves,
  }),
  entry({
    op: 'Range',
    family: 'generator',
    constantInputs: [
      { index: 0, attribute: 'start', form: 'tensor' },
      { index: 1, attribute: 'limit', form: 'tensor' },
      { index: 2, attribute: 'delta', form: 'tensor' },
    ],
    infer: (operator) => {
      const { dtype, start, limit, delta } = rangeOf(operator);
      return [{ dtype, shape: [Math.max(0, Math.ceil((limit - start) / delta))] }];
    },
    rule: ' -> r@',
    repeats: true,
    resize: (operator, _, size) => {
      const { dtype, start, delta } = rangeOf(operator);
      return { ...operator.attributes, limit: constant(dtype, [start + size('r') * delta]) };
    },
    indexed: rangeOnShard,
    work: moves,
  }),
  entry({
    op: 'OneHot',
    family: 'generator',
    constantInputs: [{ index: 1, attribute: 'depth', form: 'tensor' }],
    infer: (operator) => {
      const { shape } = operand(operator, 0);
      const axis = axisOf(operator, 'axis', shape.length + 1, -1);
      return [
        {
          dtype: operand(operator, 2).dtype,
          shape: [...shape.slice(0, axis), depthOf(operator), ...shape.slice(axis)],
        },
      ];
    },
    rule: (operator) => {
      const names = dimensionNames(operand(operator, 0).shape.length);
      const axis = axisOf(operator, 'axis', names.length + 1, -1);
      return `${names.join(' ')}, , v! -> ${[...names.slice(0, axis), 'd@', ...names.slice(axis)].join(' ')}`;
    },
    linear: () => [[2]],
    // Runtimes have kernels for some combinations of types only: the depth keeps its own.
    resize: (operator, _, size) => ({ ...operator.attributes, depth: constant(depthType(operator), [size('d')]) }),
    indexed: oneHotOnShard,
    work: moves,
    note: 'Its pair of values is not sharded.',
  }),
  entry({
    op: 'EyeLike',
    family: 'generator',
    attributes: { k: 'int' },
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 2);
      return [{ dtype: dtypeAttribute(operator, 'dtype', dtype), shape }];
    },
    rule: 'i! j! -> i! j!',
    work: moves,
    note: 'Replicated: its diagonal is an attribute, which cannot differ between ranks.',
  }),
  entry({
    op: 'ConstantOfShape',
    family: 'generator',
    constantInputs: [{ index: 0, attribute: 'shape', form: 'ints' }],
    infer: (operator) => [
      { dtype: tensor(operator, 'value')?.dtype ?? 'float32', shape: neededIntegers(operator, 'shape') },
    ],
    rule: ' _ -> *a',
    repeats: true,
    resize: (operator, rule, size) => ({
      ...operator.attributes,
      shape: (rule.outputs[0] ?? []).map((names) => dimensionSize(names, size)),
    }),
    work: moves,
  }),
  entry({
    op: 'Constant',
    family: 'generator',
    infer: (operator) => [constantType(operator)],
    rule: ' -> *a!',
    work: isFree,
    note: 'Replicated: its value is an attribute. Import turns constants into weights, which are sharded.',
  }),
  entry({
    op: 'Shape',
    family: 'generator',
    infer: (operator) => {
      const rank = operand(operator, 0).shape.length;
      const place = (value: number) => Math.min(Math.max(value < 0 ? value + rank : value, 0), rank);
      return [
        {
          dtype: 'int64',
          shape: [Math.max(0, place(numberOf(operator, 'end', rank)) - place(numberOf(operator, 'start', 0)))],
        },
      ];
    },
    rule: '*a! -> r!',
    work: isFree,
    note: 'Replicated: sizes are those of the unsharded tensor.',
  }),
  entry({
    op: 'Size',
    family: 'generator',
    infer: () => [{ dtype: 'int64', shape: [] }],
    rule: '*a! -> ',
    work: isFree,
    note: 'Replicated: the size is that of the unsharded tensor.',
  }),
  ...['RandomNormalLike', 'RandomUniformLike', 'Bernoulli', 'Multinomial'].map((op) =>
    entry({
      op,
      family: 'generator',
      role: 'random',
      ...(op === 'Bernoulli' ? {} : { until: 21 }),
      infer: (operator) => {
        const type = operand(operator, 0);
        const columns = numberOf(operator, 'sample_size', 1);
        if (op === 'Multinomial')
          return [{ dtype: dtypeAttribute(operator, 'dtype', 'int32'), shape: [type.shape[0] ?? 1, columns] }];
        return [{ dtype: dtypeAttribute(operator, 'dtype', type.dtype), shape: type.shape }];
      },
      rule: '*x! -> *y!',
      note: 'Replicated: shards would draw different random numbers.',
      unproven: 'Random numbers differ from run to run.',
    }),
  ),
  ...['RandomNormal', 'RandomUniform'].map((op) =>
    entry({
      op,
      family: 'generator',
      role: 'random',
      until: 21,
      infer: (operator) => [
        { dtype: dtypeAttribute(operator, 'dtype', 'float32'), shape: neededIntegers(operator, 'shape') },
      ],
      rule: ' -> *y!',
      note: 'Replicated: shards would draw different random numbers.',
      unproven: 'Random numbers differ from run to run.',
    }),
  ),
];

const NO_OPERAND = 'it has no operand that could be trained';
const DRAWN = 'its values are drawn at random';

export const generatorEntries = withGradients(entries, {
  // The same triangle of the gradient: the rest of the operand was dropped.
  Trilu: (write) => {
    const operands = write.operator.inputs[1] ? ['grad0', 'in1'] : ['grad0'];
    write.add('Trilu', operands, write.operator.attributes, 'd0');
  },
  OneHot: (write) => oneHotGradient(write),
  Range: NO_OPERAND,
  ConstantOfShape: NO_OPERAND,
  Constant: NO_OPERAND,
  EyeLike: 'it reads the shape of its operand only',
  Shape: INTEGER_RESULT,
  Size: INTEGER_RESULT,
  RandomNormal: NO_OPERAND,
  RandomUniform: NO_OPERAND,
  RandomNormalLike: DRAWN,
  RandomUniformLike: DRAWN,
  Bernoulli: DRAWN,
  Multinomial: DRAWN,
});

/** Element (i, j) of a shard is (i + offset i, j + offset j) of the whole: the diagonal moves by the difference. */
function triluOnShard(operator: Operator, offsets: Readonly<Record<string, string>>): Expansion {
  const write = new ExpansionWriter();
  const rank = operand(operator, 0).shape.length;
  const dims = [...dimensionNames(rank - 2, 'b'), 'i', 'j'].map((name) => [name]);
  const { k: _, ...attributes } = operator.attributes;
  let diagonal = operator.inputs[1] ? 'in1' : write.tensor(constant('int64', [integers(operator, 'k')?.[0] ?? 0], [1]));
  const [row, column] = [offsets['i'], offsets['j']];
  if (row !== undefined) diagonal = write.add('Add', [diagonal, row], [[]]);
  if (column !== undefined) diagonal = write.add('Sub', [diagonal, column], [[]]);
  write.add('Trilu', ['in0', diagonal], dims, attributes, 'out0');
  return write.finish();
}

interface RangeSizes {
  readonly dtype: TensorType['dtype'];
  readonly start: number;
  readonly limit: number;
  readonly delta: number;
}

function rangeOf(operator: Operator): RangeSizes {
  const read = (name: string): readonly [ConstantTensor | undefined, number] => {
    const value = tensor(operator, name);
    return [value, value ? (numbersOf(value)[0] ?? 0) : Number.NaN];
  };
  const [[first, start], [, limit], [, delta]] = [read('start'), read('limit'), read('delta')];
  if (!first || Number.isNaN(limit) || Number.isNaN(delta))
    throw new AutoparError(
      'data-dependent-shape',
      'input',
      `Range ${operator.name}: its length depends on data`,
      { node: operator.name },
      'Give start, limit and delta as constants, or bind their dimensions with --dim.',
    );
  return { dtype: first.dtype, start, limit, delta };
}

/** The local range moved by offset · delta. */
function rangeOnShard(operator: Operator, offsets: Readonly<Record<string, string>>): Expansion {
  const write = new ExpansionWriter();
  const { dtype, delta } = rangeOf(operator);
  const local = write.add('Range', [], [['r']], operator.attributes);
  const offset = write.cast(offsets['r'] ?? '', [[]], dtype);
  const moved = write.add('Mul', [offset, write.scalar(dtype, delta)], [[]]);
  write.add('Add', [local, moved], [['r']], {}, 'out0');
  return write.finish();
}

/**
 * Indices are moved by the offset, after negative ones were counted from the front; those before the shard, which would
 * then count from its end, are sent beyond it.
 */
function oneHotOnShard(operator: Operator, offsets: Readonly<Record<string, string>>): Expansion {
  const write = new ExpansionWriter();
  const { dtype, shape } = operand(operator, 0);
  const names = dimensionNames(shape.length);
  const axis = axisOf(operator, 'axis', names.length + 1, -1);
  const dims = names.map((name) => [name]);
  const depth = depthOf(operator);
  const [whole, zero] = [write.scalar('int64', depth), write.scalar('int64', 0)];
  const indices = dtype === 'int64' ? 'in0' : write.cast('in0', dims, 'int64');
  const negative = write.add('Less', [indices, zero], dims);
  const counted = write.add('Where', [negative, write.add('Add', [indices, whole], dims), indices], dims);
  // Offsets have shape [1]; a scalar's difference must stay a scalar.
  const offset = write.add('Squeeze', [offsets['d'] ?? ''], [], { axes: [0] });
  const moved = write.add('Sub', [counted, offset], dims);
  const before = write.add('Less', [moved, zero], dims);
  const placed = write.add('Where', [before, whole, moved], dims);
  const result = [...dims.slice(0, axis), ['d'], ...dims.slice(axis)];
  const attributes = { ...operator.attributes, depth: constant('int64', [depth]) };
  write.add('OneHot', [placed, null, 'in2'], result, attributes, 'out0');
  return write.finish();
}

function depthOf(operator: Operator): number {
  const held = tensor(operator, 'depth');
  const depth = held ? numbersOf(held)[0] : integers(operator, 'depth')?.[0];
  if (depth === undefined) throw mismatch(operator, 'its depth must be a constant');
  return depth;
}

function depthType(operator: Operator): DType {
  return tensor(operator, 'depth')?.dtype ?? 'int64';
}

function constantType(operator: Operator): TensorType {
  const value = tensor(operator, 'value');
  if (value) return { dtype: value.dtype, shape: value.shape };
  const forms = [
    ['value_float', 'float32'],
    ['value_int', 'int64'],
    ['value_string', 'string'],
    ['value_floats', 'float32'],
    ['value_ints', 'int64'],
    ['value_strings', 'string'],
  ] as const;
  const form = forms.find(([name]) => operator.attributes[name] !== undefined);
  if (!form) throw mismatch(operator, 'it has no value');
  const held = operator.attributes[form[0]];
  return { dtype: form[1], shape: Array.isArray(held) ? [held.length] : [] };
}

/** The pair of values: the "on" value's gradient is the sum at its places, the "off" value's is the sum at all others. */
function oneHotGradient(write: OperatorGradient): void {
  if (!write.wants(2)) return;
  const { dtype } = operand(write.operator, 2);
  const axes = result(write.operator, 0).shape.map((_, axis) => axis);
  // Runtimes have this operator in few types: single precision is one of them.
  const pair = write.tensor(constant('float32', [0, 1], [2]));
  const made = write.add('OneHot', ['in0', null, pair], write.operator.attributes);
  const hot = write.inType(made, 'float32', dtype);
  const cold = write.add('Sub', [write.scalar(dtype, 1), hot]);
  const values = [cold, hot].map((mask) => {
    const kept = write.add('Mul', ['grad0', mask]);
    return write.add('Unsqueeze', [write.add('ReduceSum', [kept], { axes, keepdims: 0 })], { axes: [0] });
  });
  write.add('Concat', values, { axis: 0 }, 'd2');
}
