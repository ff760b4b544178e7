/**
 * @file Pooling. Samples and channels pass; positions pass where windows are adjacent. Pooling over all positions is
 * a reduction: a mean is expanded into a sum and a scale, a maximum is partial.
 */
import type { FactorRule } from '../factor-rule.js';
import { elementCount } from '../graph.js';
import type { Expansion, Operator, OperatorEntry } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { entry, perInputElement } from './entry.js';
import { ExpansionWriter, reducedDimensions, summationType } from './expansion.js';
import { dimensionNames, neededIntegers, numberOf, ofRank, operand, result } from './operands.js';
import { differentiable } from './operator-gradient.js';
import {
  averagePoolGradient,
  globalAveragePoolGradient,
  globalLpPoolGradient,
  globalMaxPoolGradient,
  lpPoolGradient,
  maxPoolGradient,
} from './pooling-gradient.js';
import { type SpatialWindow, spatialNames, windowsOf, withoutPads } from './windows.js';

const GRADIENTS = { AveragePool: averagePoolGradient, LpPool: lpPoolGradient, MaxPool: maxPoolGradient };

export const poolingEntries: readonly OperatorEntry[] = [
  ...(['AveragePool', 'LpPool', 'MaxPool'] as const).map((op) =>
    differentiable(
      entry({
        op,
        family: 'pooling',
        infer: (operator) => {
          const { dtype, shape } = ofRank(operator, 0, 3, true);
          const pooled = [...shape.slice(0, 2), ...windows(operator).map(({ output }) => output)];
          return [
            { dtype, shape: pooled },
            { dtype: 'int64' as const, shape: pooled },
          ].slice(0, operator.outputCount);
        },
        rule: poolingRule,
        linear: () => (op === 'AveragePool' ? [[0]] : []),
        bordered: (operator, cut) => withoutPads(operator, windows(operator), cut),
        ...(op === 'MaxPool' ? { indexed: placesOnShard } : {}),
        work: (operator) => ({
          flops: elementCount(result(operator, 0).shape) * elementCount(neededIntegers(operator, 'kernel_shape')),
        }),
        note:
          'Positions inside a window are not sharded, nor are positions of means that exclude padding; with the indices of ' +
          'maxima as a result, channels and positions are not sharded.',
      }),
      GRADIENTS[op],
    ),
  ),
  differentiable(globalEntry('GlobalAveragePool', '%', globalMean, [[0]]), globalAveragePoolGradient),
  differentiable(globalEntry('GlobalMaxPool', '+max'), globalMaxPoolGradient),
  { ...differentiable(globalEntry('GlobalLpPool', '%', globalNorm), globalLpPoolGradient), until: 21 },
];

function windows(operator: Operator): readonly SpatialWindow[] {
  return windowsOf(operator, operand(operator, 0).shape, neededIntegers(operator, 'kernel_shape'));
}

function poolingRule(operator: Operator): string | FactorRule {
  const names = spatialNames(windows(operator), fillOf(operator));
  // Places of maxima count through the whole tensor, samples and channels included: a shard of samples adds its offset.
  if (operator.outputs[1]) {
    const image = (prefix: string) =>
      ['n@', 'c!', ...dimensionNames(operand(operator, 0).shape.length - 2, prefix).map((name) => `${name}!`)].join(
        ' ',
      );
    return `${image('x')} -> ${image('y')}, ${image('y')}`;
  }
  return bindRule(`n c ${names.input.join(' ')} -> n c ${names.output.join(' ')}`, operator, {}, names.windows);
}

/** The value of padding; null if padding is not counted, so that windows at the edge are divided by fewer elements. */
function fillOf(operator: Operator): number | null {
  if (operator.op === 'MaxPool') return Number.NEGATIVE_INFINITY;
  if (operator.op !== 'AveragePool') return 0;
  const counts = numberOf(operator, 'count_include_pad', 0) !== 0;
  const inside = ({ input, output, stride, kernel, dilation, pads: [before, after] }: SpatialWindow) => {
    const last = (output - 1) * stride + dilation * (kernel - 1) - before;
    return counts ? last < input + after : before === 0 && last < input;
  };
  return windows(operator).every(inside) ? 0 : null;
}

/** Places in a shard count from its first image: the offset is added. */
function placesOnShard(operator: Operator, offsets: Readonly<Record<string, string>>): Expansion {
  const write = new ExpansionWriter();
  const { shape } = operand(operator, 0);
  const dims = ['n', 'c', ...dimensionNames(shape.length - 2, 'y')].map((name) => [name]);
  write.addAll('MaxPool', ['in0'], ['out0', 'local'], [dims, dims], operator.attributes);
  const before = write.add('Mul', [offsets['n'] ?? '', write.scalar('int64', elementCount(shape.slice(1)))], [[]]);
  write.add('Add', ['local', before], dims, {}, 'out1');
  return write.finish();
}

function globalEntry(
  op: string,
  mark: string,
  expansion?: (operator: Operator) => Expansion,
  linear: readonly (readonly number[])[] = [],
): OperatorEntry {
  return entry({
    op,
    family: 'reduction',
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 2, true);
      return [{ dtype, shape: shape.map((size, axis) => (axis < 2 ? size : 1)) }];
    },
    rule: (operator) => {
      const spatial = dimensionNames(operand(operator, 0).shape.length - 2, 's');
      return `n c ${spatial.map((name) => `${name}${mark}`).join(' ')} -> n c ${spatial.map(() => '1').join(' ')}`;
    },
    linear: () => linear,
    work: perInputElement(1),
    ...(expansion ? { expansion } : {}),
  });
}

function globalMean(operator: Operator): Expansion {
  const write = new ExpansionWriter();
  const { dtype, shape } = operand(operator, 0);
  const type = summationType(dtype);
  const whole = [['n'], ['c'], ...dimensionNames(shape.length - 2, 's').map((name) => [name])];
  const axes = shape.flatMap((_, axis) => (axis < 2 ? [] : [axis]));
  const reduced = reducedDimensions(whole, axes);
  const input = type === dtype ? 'in0' : write.cast('in0', whole, type);
  const sum = write.add('ReduceSum', [input], reduced, { axes, keepdims: 1 });
  const mean = write.add('Mul', [sum, write.scalar(type, 1 / elementCount(shape.slice(2)))], reduced);
  write.cast(mean, reduced, dtype, 'out0');
  return write.finish();
}

/** (Σ |x|^p)^(1/p); p is 2 by default. */
function globalNorm(operator: Operator): Expansion {
  const write = new ExpansionWriter();
  const { dtype, shape } = operand(operator, 0);
  const whole = [['n'], ['c'], ...dimensionNames(shape.length - 2, 's').map((name) => [name])];
  const axes = shape.flatMap((_, axis) => (axis < 2 ? [] : [axis]));
  const reduced = reducedDimensions(whole, axes);
  const p = numberOf(operator, 'p', 2);
  const powers = write.add('Pow', [write.add('Abs', ['in0'], whole), write.scalar(dtype, p)], whole);
  const sum = write.add('ReduceSum', [powers], reduced, { axes, keepdims: 1 });
  write.add('Pow', [sum, write.scalar(dtype, 1 / p)], reduced, {}, 'out0');
  return write.finish();
}
