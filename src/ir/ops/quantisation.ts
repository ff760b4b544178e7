/**
 * @file Quantised numbers: per tensor or per slice along an axis, whose scales are sharded with that axis.
 */

import type { DType } from '../dtype.js';
import type { FactorRule } from '../factor-rule.js';
import { elementCount } from '../graph.js';
import type { Expansion, Operator, OperatorEntry, Work } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { matmulWork, productType } from './contraction.js';
import { resizeGroups } from './convolution.js';
import { entry, perElement } from './entry.js';
import { ExpansionWriter } from './expansion.js';
import { axisOf, dimensionNames, dtypeAttribute, mismatch, numberOf, ofRank, operand, result } from './operands.js';
import { INTEGER_RESULT, STEPS, withGradients } from './operator-gradient.js';
import { spatialNames, windowsOf } from './windows.js';

/** Why no gradient passes. */
const GRADIENTS: Readonly<Record<string, string>> = {
  QuantizeLinear: STEPS,
  DynamicQuantizeLinear: STEPS,
  DequantizeLinear: 'its operand is whole numbers',
  MatMulInteger: INTEGER_RESULT,
  ConvInteger: INTEGER_RESULT,
  QLinearMatMul: INTEGER_RESULT,
  QLinearConv: INTEGER_RESULT,
};

export const quantisationEntries: readonly OperatorEntry[] = withGradients(
  [
    entry({
      op: 'QuantizeLinear',
      family: 'elementwise',
      role: 'quantise',
      infer: (operator) => [
        {
          shape: operand(operator, 0).shape,
          dtype: operator.inputs[2]?.dtype ?? dtypeAttribute(operator, 'output_dtype', 'uint8'),
        },
      ],
      rule: scaledRule,
      work: perElement(3),
      note: 'Replicated if scales are per block.',
    }),
    entry({
      op: 'DequantizeLinear',
      family: 'elementwise',
      role: 'dequantise',
      infer: (operator) => [
        {
          shape: operand(operator, 0).shape,
          dtype: dtypeAttribute(operator, 'output_dtype', operand(operator, 1).dtype),
        },
      ],
      rule: scaledRule,
      work: perElement(2),
      note: 'Replicated if scales are per block.',
    }),
    entry({
      op: 'DynamicQuantizeLinear',
      family: 'other',
      infer: (operator) => {
        const bytes: DType = 'uint8';
        return [
          { dtype: bytes, shape: operand(operator, 0).shape },
          { dtype: 'float32' as const, shape: [] },
          { dtype: bytes, shape: [] },
        ].slice(0, operator.outputCount);
      },
      rule: '*a% -> *a%, , ',
      expansion: dynamicExpansion,
      work: perElement(6),
    }),
    entry({
      op: 'MatMulInteger',
      family: 'contraction',
      infer: (operator) => [productType(operator, 1, 'int32')],
      rule: (operator) => `*b m k+, *b k+ n, ${scaleText(operator, 2, 'm')}, ${scaleText(operator, 3, 'n')} -> *b m n`,
      work: matmulWork,
    }),
    entry({
      op: 'QLinearMatMul',
      family: 'contraction',
      precision: 'full',
      infer: (operator) => [productType(operator, 3, operand(operator, 7).dtype)],
      rule: (operator) => {
        const scales = (first: number, name: string) =>
          `${scaleText(operator, first, name)}, ${scaleText(operator, first + 1, name)}`;
        return `*b m k!, ${scales(1, 'm')}, *b k! n, ${scales(4, 'n')}, ${scales(6, 'm')} -> *b m n`;
      },
      work: matmulWork,
      note: 'The contracted dimension is not sharded: sums are rounded to the quantised type immediately.',
    }),
    entry({
      op: 'ConvInteger',
      family: 'convolution',
      infer: (operator) => [{ dtype: 'int32', shape: convolvedShape(operator, 1) }],
      rule: (operator) => {
        const { image, kernel, channels, output } = convolutionRuleTexts(operator, 1, '+');
        return bound(
          operator,
          `${image}, ${kernel}, ${scaleText(operator, 2, '1')}, ${scaleText(operator, 3, channels)} -> ${output}`,
        );
      },
      resize: resizeGroups,
      work: (operator) => convolutionWork(operator, 1),
      parameterInputs: [1],
      note: 'Positions are not sharded if windows overlap or reach into padding.',
    }),
    entry({
      op: 'QLinearConv',
      family: 'convolution',
      precision: 'full',
      infer: (operator) => [{ dtype: operand(operator, 7).dtype, shape: convolvedShape(operator, 3) }],
      rule: (operator) => {
        const { image, kernel, channels, output } = convolutionRuleTexts(operator, 3, '!');
        const tensorScales = `${scaleText(operator, 1, '1')}, ${scaleText(operator, 2, '1')}`;
        const channelScales = `${scaleText(operator, 4, channels)}, ${scaleText(operator, 5, channels)}`;
        const last = `${scaleText(operator, 6, '1')}, ${scaleText(operator, 7, '1')}`;
        return bound(
          operator,
          `${image}, ${tensorScales}, ${kernel}, ${channelScales}, ${last}, ${channels} -> ${output}`,
        );
      },
      resize: resizeGroups,
      work: (operator) => convolutionWork(operator, 3),
      parameterInputs: [3, 8],
      note: 'Input channels are not sharded: sums are rounded to the quantised type immediately. Positions as in Conv.',
    }),
  ],
  GRADIENTS,
);

/** Scale and zero point from the largest and smallest value of the whole tensor, zero among them; then the plain form. */
function dynamicExpansion(operator: Operator): Expansion {
  const write = new ExpansionWriter();
  const { dtype, shape } = operand(operator, 0);
  const dims = dimensionNames(shape.length).map((name) => [name]);
  const all = { axes: shape.map((_, axis) => axis), keepdims: 0 };
  const number = (value: number) => write.scalar(dtype, value);
  const high = write.add('Max', [write.add('ReduceMax', ['in0'], [], all), number(0)], []);
  const low = write.add('Min', [write.add('ReduceMin', ['in0'], [], all), number(0)], []);
  const spread = write.add('Div', [write.add('Sub', [high, low], []), number(255)], []);
  // A tensor of zeros has a scale all the same.
  const flat = write.add('Equal', [spread, number(0)], []);
  write.add('Where', [flat, number(1), spread], [], {}, 'out1');
  const shift = write.add('Neg', [write.add('Div', [low, 'out1'], [])], []);
  const within = write.add('Clip', [write.add('Round', [shift], []), number(0), number(255)], []);
  write.cast(within, [], 'uint8', 'out2');
  write.add('QuantizeLinear', ['in0', 'out1', 'out2'], dims, {}, 'out0');
  return write.finish();
}

/** Shape of a convolution's result; `kernel` is the operand that holds the kernel. */
function convolvedShape(operator: Operator, kernel: number): readonly number[] {
  const image = imageShape(operator);
  const w = ofRank(operator, kernel, ofRank(operator, 0, 3, true).shape.length);
  const [n = 1, c = 1] = image;
  const [m = 1, own = 1] = w.shape;
  if (own * numberOf(operator, 'group', 1) !== c) throw mismatch(operator, `the kernel does not fit ${c} channels`);
  const positions = windowsOf(operator, image, w.shape.slice(2)).map(({ output }) => output);
  return channelsLast(operator) ? [n, ...positions, m] : [n, m, ...positions];
}

/** ONNX Runtime's own form may have channels last. */
export function channelsLast(operator: Operator): boolean {
  return numberOf(operator, 'channels_last', 0) !== 0;
}

/** Sizes of the image: samples, channels, positions. */
function imageShape(operator: Operator): readonly number[] {
  const { shape } = operand(operator, 0);
  return channelsLast(operator) ? [shape[0] ?? 1, shape.at(-1) ?? 1, ...shape.slice(1, -1)] : shape;
}

/** Rule texts of a convolution's operands; `mark` is the kind of the input channels. */
function convolutionRuleTexts(operator: Operator, kernel: number, mark: string) {
  const names = spatialNames(windowsOf(operator, imageShape(operator), operand(operator, kernel).shape.slice(2)));
  const grouped = numberOf(operator, 'group', 1) > 1;
  const channels = grouped ? '(g co)' : 'co';
  const image = (own: string, positions: readonly string[]) =>
    (channelsLast(operator) ? ['n', ...positions, own] : ['n', own, ...positions]).join(' ');
  return {
    image: image(grouped ? `(g ci${mark})` : `ci${mark}`, names.input),
    kernel: `${channels} ci${mark} ${names.kernel.join(' ')}`,
    channels,
    output: image(channels, names.output),
  };
}

function bound(operator: Operator, text: string): FactorRule {
  const group = numberOf(operator, 'group', 1);
  return bindRule(text, operator, group > 1 ? { g: group } : {});
}

function convolutionWork(operator: Operator, kernel: number): Work {
  return {
    flops: 2 * elementCount(result(operator, 0).shape) * elementCount(operand(operator, kernel).shape.slice(1)),
  };
}

function scaledRule(operator: Operator): string {
  const { shape } = operand(operator, 0);
  const names = dimensionNames(shape.length);
  const blocked = numberOf(operator, 'block_size', 0) !== 0 || operand(operator, 1).shape.length > 1;
  if (blocked) return '*a!, *c!, *c! -> *a!';
  // A single scale is for the whole tensor, whatever axis is given.
  const whole = elementCount(operand(operator, 1).shape) === 1;
  const own = whole ? '1' : (names[axisOf(operator, 'axis', shape.length, Math.min(1, shape.length - 1))] ?? '1');
  return `${names.join(' ')}, ${scaleText(operator, 1, own)}, ${scaleText(operator, 2, own)} -> ${names.join(' ')}`;
}

/** A scale or zero point: one for the tensor, or one per position of the dimension `name`. */
export function scaleText(operator: Operator, index: number, name: string): string {
  const shape = operator.inputs[index]?.shape ?? [];
  return shape.length === 0 ? '' : elementCount(shape) === 1 ? '1' : name;
}
