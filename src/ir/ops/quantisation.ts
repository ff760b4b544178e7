/**
 * @file Quantised numbers: per tensor or per slice along an axis, whose scales go with that axis.
 */
import type { DType } from '../dtype.js';
import type { FactorRule } from '../factor-rule.js';
import { type Attributes, elementCount } from '../graph.js';
import type { OperatorEntry, OperatorView, Work } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { entry, perElement } from './entry.js';
import {
  axisOf,
  broadcast,
  dimensionNames,
  dtypeAttribute,
  mismatch,
  numberOf,
  ofRank,
  operand,
  result,
} from './operands.js';
import { spatialNames, windowsOf } from './windows.js';

export const quantisationEntries: readonly OperatorEntry[] = [
  entry({
    op: 'QuantizeLinear',
    family: 'elementwise',
    infer: (view) => [
      { shape: operand(view, 0).shape, dtype: view.inputs[2]?.dtype ?? dtypeAttribute(view, 'output_dtype', 'uint8') },
    ],
    rule: scaledRule,
    work: perElement(3),
    note: 'Whole where scales are per block.',
  }),
  entry({
    op: 'DequantizeLinear',
    family: 'elementwise',
    infer: (view) => [
      { shape: operand(view, 0).shape, dtype: dtypeAttribute(view, 'output_dtype', operand(view, 1).dtype) },
    ],
    rule: scaledRule,
    work: perElement(2),
    note: 'Whole where scales are per block.',
  }),
  entry({
    op: 'DynamicQuantizeLinear',
    family: 'other',
    infer: (view) => {
      const bytes: DType = 'uint8';
      return [
        { dtype: bytes, shape: operand(view, 0).shape },
        { dtype: 'float32' as const, shape: [] },
        { dtype: bytes, shape: [] },
      ].slice(0, view.outputCount);
    },
    rule: '*a! -> *a!, , ',
    note: 'Whole: its scale comes from the largest and smallest value of the whole tensor.',
  }),
  entry({
    op: 'MatMulInteger',
    family: 'contraction',
    infer: (view) => {
      const [a, b] = [ofRank(view, 0, 2, true), ofRank(view, 1, 2, true)];
      if (a.shape.at(-1) !== b.shape.at(-2)) throw mismatch(view, 'the contracted sizes differ');
      const batch = broadcast(view, [a.shape.slice(0, -2), b.shape.slice(0, -2)]);
      return [{ dtype: 'int32', shape: [...batch, a.shape.at(-2) ?? 1, b.shape.at(-1) ?? 1] }];
    },
    rule: (view) => `*b m k+, *b k+ n, ${scale(view, 2, 'm')}, ${scale(view, 3, 'n')} -> *b m n`,
    work: (view) => ({ flops: 2 * elementCount(result(view, 0).shape) * (operand(view, 0).shape.at(-1) ?? 1) }),
  }),
  entry({
    op: 'QLinearMatMul',
    family: 'contraction',
    infer: (view) => {
      const [a, b] = [ofRank(view, 0, 2, true), ofRank(view, 3, 2, true)];
      if (a.shape.at(-1) !== b.shape.at(-2)) throw mismatch(view, 'the contracted sizes differ');
      const batch = broadcast(view, [a.shape.slice(0, -2), b.shape.slice(0, -2)]);
      return [{ dtype: operand(view, 7).dtype, shape: [...batch, a.shape.at(-2) ?? 1, b.shape.at(-1) ?? 1] }];
    },
    rule: (view) => {
      const scales = (first: number, name: string) => `${scale(view, first, name)}, ${scale(view, first + 1, name)}`;
      return `*b m k!, ${scales(1, 'm')}, *b k! n, ${scales(4, 'n')}, ${scales(6, 'm')} -> *b m n`;
    },
    work: (view) => ({ flops: 2 * elementCount(result(view, 0).shape) * (operand(view, 0).shape.at(-1) ?? 1) }),
    note: 'The contracted dimension stays whole: sums are rounded to the quantised type at once.',
  }),
  entry({
    op: 'ConvInteger',
    family: 'convolution',
    infer: (view) => [{ dtype: 'int32', shape: convolvedShape(view, 1) }],
    rule: (view) => {
      const { image, kernel, channels, output } = convolutionText(view, 1, '+');
      return bound(view, `${image}, ${kernel}, ${scale(view, 2, '1')}, ${scale(view, 3, channels)} -> ${output}`);
    },
    resize: resizeGroups,
    work: (view) => convolutionWork(view, 1),
    parameterInputs: [1],
    note: 'Positions stay whole where windows overlap or reach into padding.',
  }),
  entry({
    op: 'QLinearConv',
    family: 'convolution',
    infer: (view) => [{ dtype: operand(view, 7).dtype, shape: convolvedShape(view, 3) }],
    rule: (view) => {
      const { image, kernel, channels, output } = convolutionText(view, 3, '!');
      const tensorScales = `${scale(view, 1, '1')}, ${scale(view, 2, '1')}`;
      const channelScales = `${scale(view, 4, channels)}, ${scale(view, 5, channels)}`;
      const last = `${scale(view, 6, '1')}, ${scale(view, 7, '1')}`;
      return bound(view, `${image}, ${tensorScales}, ${kernel}, ${channelScales}, ${last}, ${channels} -> ${output}`);
    },
    resize: resizeGroups,
    work: (view) => convolutionWork(view, 3),
    parameterInputs: [3, 8],
    note: 'Input channels stay whole: sums are rounded to the quantised type at once. Positions as in Conv.',
  }),
];

/** Shape of a convolution's result; `kernel` is the operand that holds the kernel. */
function convolvedShape(view: OperatorView, kernel: number): readonly number[] {
  const [x, w] = [ofRank(view, 0, 3, true), ofRank(view, kernel, operand(view, 0).shape.length)];
  const [n = 1, c = 1] = x.shape;
  const [m = 1, own = 1] = w.shape;
  if (own * numberOf(view, 'group', 1) !== c) throw mismatch(view, `the kernel does not fit ${c} channels`);
  return [n, m, ...windowsOf(view, x.shape, w.shape.slice(2)).map(({ output }) => output)];
}

/** Rule texts of a convolution's operands; `mark` is the kind of the input channels. */
function convolutionText(view: OperatorView, kernel: number, mark: string) {
  const names = spatialNames(windowsOf(view, operand(view, 0).shape, operand(view, kernel).shape.slice(2)));
  const grouped = numberOf(view, 'group', 1) > 1;
  const channels = grouped ? '(g co)' : 'co';
  return {
    image: `n ${grouped ? `(g ci${mark})` : `ci${mark}`} ${names.input.join(' ')}`,
    kernel: `${channels} ci${mark} ${names.kernel.join(' ')}`,
    channels,
    output: `n ${channels} ${names.output.join(' ')}`,
  };
}

function bound(view: OperatorView, text: string): FactorRule {
  const group = numberOf(view, 'group', 1);
  return bindRule(text, view, group > 1 ? { g: group } : {});
}

function resizeGroups(view: OperatorView, rule: FactorRule, size: (factor: string) => number): Attributes {
  return rule.factors.has('g') ? { ...view.attributes, group: size('g') } : view.attributes;
}

function convolutionWork(view: OperatorView, kernel: number): Work {
  return { flops: 2 * elementCount(result(view, 0).shape) * elementCount(operand(view, kernel).shape.slice(1)) };
}

function scaledRule(view: OperatorView): string {
  const { shape } = operand(view, 0);
  const names = dimensionNames(shape.length);
  const blocked = numberOf(view, 'block_size', 0) !== 0 || operand(view, 1).shape.length > 1;
  if (blocked) return '*a!, *c!, *c! -> *a!';
  // One scale is for the whole tensor, whatever axis is named beside it.
  const whole = elementCount(operand(view, 1).shape) === 1;
  const own = whole ? '1' : (names[axisOf(view, 'axis', shape.length, Math.min(1, shape.length - 1))] ?? '1');
  return `${names.join(' ')}, ${scale(view, 1, own)}, ${scale(view, 2, own)} -> ${names.join(' ')}`;
}

/** A scale or zero point: one for the tensor, or one per position of the dimension `name`. */
function scale(view: OperatorView, index: number, name: string): string {
  const shape = view.inputs[index]?.shape ?? [];
  return shape.length === 0 ? '' : elementCount(shape) === 1 ? '1' : name;
}
