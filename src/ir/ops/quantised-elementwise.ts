/**
 * @file ONNX Runtime's operators on quantised tensors that keep or pool positions (domain com.microsoft). Scales and zero
 * points are one per tensor, so they stay whole and everything else is as in the operator without quantisation.
 */
import type { FactorRule } from '../factor-rule.js';
import { elementCount } from '../graph.js';
import type { Operator, OperatorEntry } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { entry, moves, perElement } from './entry.js';
import {
  axisOf,
  broadcast,
  dimensionNames,
  mismatch,
  neededIntegers,
  numberOf,
  ofRank,
  operand,
  result,
} from './operands.js';
import { differentiable, INTEGER_RESULT } from './operator-gradient.js';
import { channelsLast, scaleText } from './quantisation.js';
import { spatialNames, windowsOf } from './windows.js';

const DOMAIN = 'com.microsoft';

const ENTRIES: readonly OperatorEntry[] = [
  ...['QLinearAdd', 'QLinearMul'].map((op) =>
    entry({
      op,
      domain: DOMAIN,
      family: 'elementwise',
      infer: (operator) => [
        {
          dtype: operand(operator, 0).dtype,
          shape: broadcast(operator, [operand(operator, 0).shape, operand(operator, 3).shape]),
        },
      ],
      rule: (operator) => `*a, ${scalars(operator, 1, 2)}, *a, ${scalars(operator, 4, 4)} -> *a`,
      work: perElement(6),
    }),
  ),
  ...['QLinearSigmoid', 'QLinearLeakyRelu'].map((op) =>
    entry({
      op,
      domain: DOMAIN,
      family: 'elementwise',
      infer: (operator) => [operand(operator, 0)],
      rule: (operator) => `*a, ${scalars(operator, 1, 4)} -> *a`,
      work: perElement(2),
    }),
  ),
  entry({
    op: 'QLinearWhere',
    domain: DOMAIN,
    family: 'elementwise',
    infer: (operator) => [
      {
        dtype: operand(operator, 1).dtype,
        shape: broadcast(
          operator,
          [0, 1, 4].map((index) => operand(operator, index).shape),
        ),
      },
    ],
    rule: (operator) => `*a, *a, ${scalars(operator, 2, 2)}, *a, ${scalars(operator, 5, 4)} -> *a`,
    work: perElement(4),
  }),
  entry({
    op: 'QLinearSoftmax',
    domain: DOMAIN,
    family: 'normalisation',
    infer: (operator) => [operand(operator, 0)],
    rule: (operator) => {
      const { shape } = operand(operator, 0);
      const from = axisOf(operator, 'axis', shape.length, -1);
      // Before opset 13 softmax ran over all dimensions from its axis on.
      const flattens = numberOf(operator, 'opset', 13) < 13;
      const side = dimensionNames(shape.length).map((name, axis) =>
        axis === from || (flattens && axis > from) ? `${name}!` : name,
      );
      return `${side.join(' ')}, ${scalars(operator, 1, 4)} -> ${side.join(' ')}`;
    },
    work: perElement(12),
    note: 'The axis is not sharded: its sum is rounded to the quantised type immediately.',
  }),
  entry({
    op: 'QLinearConcat',
    domain: DOMAIN,
    family: 'view',
    infer: (operator) => {
      const first = operand(operator, 2);
      const axis = axisOf(operator, 'axis', first.shape.length, 0);
      const parts = joined(operator);
      const fits = parts.every(
        ({ shape }) =>
          shape.length === first.shape.length &&
          shape.every((size, index) => index === axis || size === first.shape[index]),
      );
      if (!fits) throw mismatch(operator, `its operands must agree in all dimensions but ${axis}`);
      const total = parts.reduce((sum, { shape }) => sum + (shape[axis] ?? 0), 0);
      return [
        { dtype: operand(operator, 1).dtype, shape: first.shape.map((size, index) => (index === axis ? total : size)) },
      ];
    },
    rule: concatRule,
    work: moves,
    note: 'Unequal parts: the joined dimension is not sharded. Equal parts: each part may be sharded.',
  }),
  entry({
    op: 'QLinearAveragePool',
    domain: DOMAIN,
    family: 'pooling',
    precision: 'full',
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 3, true);
      const [n = 1, c = 1] = channelsFirst(operator, shape);
      const positions = pooled(operator).map(({ output }) => output);
      return [{ dtype, shape: channelsLast(operator) ? [n, ...positions, c] : [n, c, ...positions] }];
    },
    rule: (operator) => {
      const names = spatialNames(pooled(operator));
      const image = (spatial: readonly string[]) => placed(operator, spatial.join(' '));
      return `${image(names.input)}, ${scalars(operator, 1, 4)} -> ${image(names.output)}`;
    },
    work: (operator) => ({
      flops: elementCount(result(operator, 0).shape) * elementCount(neededIntegers(operator, 'kernel_shape')),
    }),
    note: 'Positions are not sharded if windows overlap.',
  }),
  entry({
    op: 'QLinearGlobalAveragePool',
    domain: DOMAIN,
    family: 'reduction',
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 3, true);
      const kept = (axis: number) => axis === 0 || axis === (channelsLast(operator) ? shape.length - 1 : 1);
      return [{ dtype, shape: shape.map((size, axis) => (kept(axis) ? size : 1)) }];
    },
    rule: (operator) => {
      const spatial = operand(operator, 0).shape.slice(2);
      const [image, pooledImage] = [spatial.map((_, index) => `s${index}!`), spatial.map(() => '1')];
      return `${placed(operator, image.join(' '))}, ${scalars(operator, 1, 4)} -> ${placed(operator, pooledImage.join(' '))}`;
    },
    work: (operator) => ({ flops: elementCount(operand(operator, 0).shape) }),
    note: 'Positions are not sharded: their mean is rounded to the quantised type immediately.',
  }),
];

export const quantisedElementwiseEntries: readonly OperatorEntry[] = ENTRIES.map((item) =>
  differentiable(item, INTEGER_RESULT),
);

/** Rule texts of `count` operands from `first` on that are one scale or zero point each. */
function scalars(operator: Operator, first: number, count: number): string {
  return Array.from({ length: count }, (_, index) => scaleText(operator, first + index, '1')).join(', ');
}

function channelsFirst(operator: Operator, shape: readonly number[]): readonly number[] {
  return channelsLast(operator) ? [shape[0] ?? 1, shape.at(-1) ?? 1, ...shape.slice(1, -1)] : shape;
}

function pooled(operator: Operator) {
  return windowsOf(
    operator,
    channelsFirst(operator, operand(operator, 0).shape),
    neededIntegers(operator, 'kernel_shape'),
  );
}

/** Samples, channels and positions in the order in which the operator has them. */
function placed(operator: Operator, spatial: string): string {
  return channelsLast(operator) ? `n ${spatial} c` : `n c ${spatial}`;
}

/** The tensors that are joined: every third operand, after the scale and zero point of the result. */
function joined(operator: Operator) {
  return operator.inputs.flatMap((type, index) => (index >= 2 && index % 3 === 2 && type ? [type] : []));
}

function concatRule(operator: Operator): FactorRule {
  const first = operand(operator, 2);
  const axis = axisOf(operator, 'axis', first.shape.length, 0);
  const names = dimensionNames(first.shape.length);
  const at = (own: string) => names.map((name, index) => (index === axis ? own : name)).join(' ');
  const parts = joined(operator).map(({ shape }) => shape[axis] ?? 0);
  const equal = parts.every((size) => size === parts[0]) && parts[0] !== 0;
  const operands = operator.inputs.map((_, index) =>
    index >= 2 && index % 3 === 2 ? at(equal ? 'd' : `x${index}!`) : scaleText(operator, index, '1'),
  );
  return bindRule(
    `${operands.join(', ')} -> ${at(equal ? '(p! d)' : 'y!')}`,
    operator,
    equal ? { p: parts.length } : {},
  );
}
