/**
 * @file Convolutions. Input channels are contracted, output channels and groups pass. A bias joins after the sum, so with
 * one a sharded contraction is expanded into a convolution without bias and an addition.
 */

import type { FactorRule } from '../factor-rule.js';
import { elementCount } from '../graph.js';
import type { Expansion, OperatorEntry, OperatorView } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { entry } from './entry.js';
import { ExpansionWriter } from './expansion.js';
import { integers, mismatch, numberOf, ofRank, operand, result, text } from './operands.js';
import { type SpatialNames, spatialNames, windowsOf } from './windows.js';

/** Convolution, which fused forms of it start from. */
export const convolution: OperatorEntry = entry({
  op: 'Conv',
  family: 'convolution',
  infer: (view) => {
    const [x, w] = [ofRank(view, 0, 3, true), operand(view, 1)];
    const group = numberOf(view, 'group', 1);
    const [n = 1, c = 1] = x.shape;
    const [m = 1, own = 1] = w.shape;
    if (w.shape.length !== x.shape.length || own * group !== c || m % group !== 0)
      throw mismatch(view, `the kernel does not fit ${c} channels in ${group} groups`);
    return [
      { dtype: x.dtype, shape: [n, m, ...windowsOf(view, x.shape, w.shape.slice(2)).map(({ output }) => output)] },
    ];
  },
  rule: (view) => channelRule(view, convolutionNames(view), (co, ci) => `${co} ${ci}`),
  linear: linearWithoutBias,
  resize: resizeGroups,
  expansion: (view) => withoutBias(view, convolutionNames(view)),
  work: (view) => ({
    flops: 2 * elementCount(result(view, 0).shape) * elementCount(operand(view, 1).shape.slice(1)),
  }),
  parameterInputs: [1, 2],
  note: 'Positions stay whole where windows overlap or reach into padding (exchange of borders is another lowering).',
});

export const convolutionEntries: readonly OperatorEntry[] = [
  convolution,
  entry({
    op: 'ConvTranspose',
    family: 'convolution',
    infer: (view) => {
      const [x, w] = [ofRank(view, 0, 3, true), operand(view, 1)];
      const [n = 1, c = 1] = x.shape;
      if (w.shape.length !== x.shape.length || w.shape[0] !== c)
        throw mismatch(view, `the kernel does not fit ${c} channels`);
      const channels = (w.shape[1] ?? 1) * numberOf(view, 'group', 1);
      return [{ dtype: x.dtype, shape: [n, channels, ...transposedSizes(view)] }];
    },
    rule: (view) => channelRule(view, transposedNames(view), (co, ci) => `${ci} ${co}`),
    linear: linearWithoutBias,
    resize: resizeGroups,
    expansion: (view) => withoutBias(view, transposedNames(view)),
    work: (view) => ({
      flops: 2 * elementCount(operand(view, 0).shape) * elementCount(operand(view, 1).shape.slice(1)),
    }),
    parameterInputs: [1, 2],
    note: 'Positions stay whole: windows overlap.',
  }),
];

export function convolutionNames(view: OperatorView): SpatialNames {
  return spatialNames(windowsOf(view, operand(view, 0).shape, operand(view, 1).shape.slice(2)));
}

export function transposedNames(view: OperatorView): SpatialNames {
  const spatial = operand(view, 0).shape.slice(2);
  const named = (prefix: string) => spatial.map((_, index) => `${prefix}${index}`);
  return {
    input: named('x').map((x) => `${x}~`),
    kernel: named('k').map((k) => `${k}!`),
    output: named('y').map((y) => `${y}~`),
    plain: named('y'),
  };
}

/** `kernel` writes the first two dimensions of the kernel from the names of output and input channels. */
function channelRule(view: OperatorView, names: SpatialNames, kernel: (co: string, ci: string) => string): FactorRule {
  const { operands, output } = channelTexts(view, names, kernel, view.inputs[2] ? '%' : '+');
  return bindChannels(`${operands.join(', ')} -> ${output}`, view);
}

/** Rule texts of image, kernel and bias, and of the result; `mark` is the kind of the input channels. */
export function channelTexts(
  view: OperatorView,
  names: SpatialNames,
  kernel: (co: string, ci: string) => string,
  mark: string,
): { readonly operands: readonly string[]; readonly output: string } {
  const groups = numberOf(view, 'group', 1) > 1;
  const [outputs, inputs] = groups ? ['(g co)', `(g ci${mark})`] : ['co', `ci${mark}`];
  const [first, second] = kernel('co', `ci${mark}`).split(' ');
  const image = `n ${inputs} ${names.input.join(' ')}`;
  const filter = `${groups ? `(g ${first})` : first} ${second} ${names.kernel.join(' ')}`;
  return { operands: [image, filter, outputs], output: `n ${outputs} ${names.output.join(' ')}` };
}

/** A rule over channels in groups. */
export function bindChannels(text: string, view: OperatorView): FactorRule {
  const group = numberOf(view, 'group', 1);
  return bindRule(text, view, group > 1 ? { g: group } : {});
}

function linearWithoutBias(view: OperatorView): readonly (readonly number[])[] {
  return view.inputs[2] ? [] : [[0], [1]];
}

export function resizeGroups(view: OperatorView, rule: FactorRule, size: (factor: string) => number) {
  return rule.factors.has('g') ? { ...view.attributes, group: size('g') } : view.attributes;
}

/** The same convolution without bias, then the bias over positions. */
function withoutBias(view: OperatorView, names: SpatialNames): Expansion {
  const write = new ExpansionWriter();
  addBiased(write, view, names, view, 'out0');
  return write.finish();
}

/** Writes an operator over channels without its bias, and the bias over positions behind it. */
export function addBiased(
  write: ExpansionWriter,
  view: OperatorView,
  names: SpatialNames,
  { op, attributes }: Pick<OperatorView, 'op' | 'attributes'>,
  output?: string,
  operands: readonly (string | null)[] = ['in0', 'in1'],
): string {
  const channels = numberOf(view, 'group', 1) > 1 ? ['g', 'co'] : ['co'];
  const dims = [['n'], channels, ...names.plain.map((name) => [name])];
  if (!view.inputs[2]) return write.add(op, operands, dims, attributes, output);
  const sum = write.add(op, operands, dims, attributes);
  const beside = names.plain.map((_, index) => index + 1);
  const bias = write.add('Unsqueeze', ['in2'], [channels, ...beside.map(() => [])], { axes: beside });
  return write.add('Add', [sum, bias], dims, {}, output);
}

export function transposedSizes(view: OperatorView): readonly number[] {
  const spatial = operand(view, 0).shape.slice(2);
  const kernel = operand(view, 1).shape.slice(2);
  const given = integers(view, 'output_shape');
  if (given) return given.slice(-spatial.length);
  const at = (name: string, index: number, otherwise: number) => integers(view, name)?.[index] ?? otherwise;
  const same = text(view, 'auto_pad', 'NOTSET').startsWith('SAME');
  return spatial.map((size, index) => {
    const stride = at('strides', index, 1);
    if (same) return size * stride;
    const reach = ((kernel[index] ?? 1) - 1) * at('dilations', index, 1) + 1;
    const pads = at('pads', index, 0) + at('pads', index + spatial.length, 0);
    return stride * (size - 1) + at('output_padding', index, 0) + reach - pads;
  });
}
