/**
 * @file Convolutions. Input channels are contracted, output channels and groups pass. A bias is added after the sum, so
 * a sharded contraction with a bias is expanded into a convolution without bias and an addition.
 */

import type { FactorRule } from '../factor-rule.js';
import { elementCount } from '../graph.js';
import type { Expansion, Operator, OperatorEntry } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { addBiasGradient, addKernelGradient } from './convolution-gradient.js';
import { entry } from './entry.js';
import { ExpansionWriter } from './expansion.js';
import { integers, mismatch, numberOf, ofRank, operand, result, text } from './operands.js';
import { differentiable, type OperatorGradient } from './operator-gradient.js';
import {
  layingBack,
  type SpatialNames,
  type SpatialWindow,
  spatialNames,
  takingFrom,
  windowsOf,
  withoutPads,
} from './windows.js';

/** Convolution, which fused forms of it start from. */
export const convolution: OperatorEntry = differentiable(
  entry({
    op: 'Conv',
    family: 'convolution',
    infer: (operator) => {
      const [x, w] = [ofRank(operator, 0, 3, true), operand(operator, 1)];
      const group = numberOf(operator, 'group', 1);
      const [n = 1, c = 1] = x.shape;
      const [m = 1, own = 1] = w.shape;
      if (w.shape.length !== x.shape.length || own * group !== c || m % group !== 0)
        throw mismatch(operator, `the kernel does not fit ${c} channels in ${group} groups`);
      checkBias(operator, m);
      return [
        {
          dtype: x.dtype,
          shape: [n, m, ...windowsOf(operator, x.shape, w.shape.slice(2)).map(({ output }) => output)],
        },
      ];
    },
    rule: (operator) => channelRule(operator, convolutionNames(operator), (co, ci) => `${co} ${ci}`),
    linear: linearWithoutBias,
    resize: resizeGroups,
    bordered: (operator, cut) => withoutPads(operator, windowsIn(operator), cut),
    expansion: (operator) => withoutBias(operator, convolutionNames(operator)),
    work: (operator) => ({
      flops: 2 * elementCount(result(operator, 0).shape) * elementCount(operand(operator, 1).shape.slice(1)),
    }),
    parameterInputs: [1, 2],
    note: 'Positions inside a window are not sharded. Overlapping windows need a halo exchange with neighbours.',
  }),
  (write) => convolutionGradient(write),
);

export const convolutionEntries: readonly OperatorEntry[] = [
  convolution,
  differentiable(
    entry({
      op: 'ConvTranspose',
      family: 'convolution',
      infer: (operator) => {
        const [x, w] = [ofRank(operator, 0, 3, true), operand(operator, 1)];
        const [n = 1, c = 1] = x.shape;
        if (w.shape.length !== x.shape.length || w.shape[0] !== c)
          throw mismatch(operator, `the kernel does not fit ${c} channels`);
        const channels = (w.shape[1] ?? 1) * numberOf(operator, 'group', 1);
        checkBias(operator, channels);
        return [{ dtype: x.dtype, shape: [n, channels, ...transposedSizes(operator)] }];
      },
      rule: (operator) => channelRule(operator, transposedNames(operator), (co, ci) => `${ci} ${co}`),
      linear: linearWithoutBias,
      resize: resizeGroups,
      bordered: (operator, cut) => {
        const {
          output_shape: _,
          output_padding: more,
          ...rest
        } = withoutPads(operator, transposedWindows(operator), cut);
        const behind = Array.isArray(more) && {
          output_padding: more.map((size, at) => (cut.has(`x${at}`) ? 0 : Number(size))),
        };
        return { ...rest, ...behind };
      },
      expansion: (operator) => withoutBias(operator, transposedNames(operator)),
      work: (operator) => ({
        flops: 2 * elementCount(operand(operator, 0).shape) * elementCount(operand(operator, 1).shape.slice(1)),
      }),
      parameterInputs: [1, 2],
      note: 'Positions inside a window are not sharded. Overlapping windows need a halo exchange with neighbours.',
    }),
    (write) => transposedGradient(write, 2),
  ),
];

/** @throws AutoparError if there is a bias that does not have one value per channel of the result */
function checkBias(operator: Operator, channels: number): void {
  const bias = operator.inputs[2];
  if (bias && (bias.shape.length !== 1 || bias.shape[0] !== channels))
    throw mismatch(operator, `a bias of [${bias.shape.join(', ')}] does not fit ${channels} channels`);
}

/** `bias`: the index of the bias operand. */
export function transposedGradient(write: OperatorGradient, bias: number): void {
  const { operator } = write;
  const windows = transposedWindows(operator);
  const group = numberOf(operator, 'group', 1);
  if (write.wants(0)) write.add('Conv', ['grad0', 'in1'], { ...takingFrom(windows), group }, 'd0');
  addKernelGradient(write, windows, 'grad0', 'in0');
  addBiasGradient(write, 'grad0', bias);
}

/** `gradient`: the gradient of the convolution's own result, if fused operators follow it. */
export function convolutionGradient(write: OperatorGradient, gradient = 'grad0'): void {
  const { operator } = write;
  const windows = windowsIn(operator);
  const group = numberOf(operator, 'group', 1);
  if (write.wants(0)) write.add('ConvTranspose', [gradient, 'in1'], { ...layingBack(windows), group }, 'd0');
  addKernelGradient(write, windows, 'in0', gradient);
  addBiasGradient(write, gradient);
}

export function convolutionNames(operator: Operator): SpatialNames {
  return spatialNames(windowsIn(operator), 0);
}

function windowsIn(operator: Operator): readonly SpatialWindow[] {
  return windowsOf(operator, operand(operator, 0).shape, operand(operator, 1).shape.slice(2));
}

/** Positions pass if windows are adjacent, as in spatialNames with operand and result swapped. */
export function transposedNames(operator: Operator, halo = true): SpatialNames {
  const windows = transposedWindows(operator);
  const rows = windows.map((window, index) => {
    const [y, k] = [`y${index}`, `k${index}!`];
    const { kernel, stride, dilation, pads, input, output } = window;
    const fits = pads[0] === 0 && dilation === 1 && input === output * kernel && kernel === stride;
    if (!fits && !halo) return { input: `x${index}!`, kernel: k, output: `${y}!`, plain: [y] };
    if (!fits) return { input: `x${index}~${y}`, kernel: k, output: y, plain: [y] };
    if (kernel === 1) return { input: y, kernel: k, output: y, plain: [y] };
    return { input: y, kernel: k, output: `(${y} ${k})`, plain: [y, `k${index}`] };
  });
  return {
    input: rows.map((row) => row.input),
    kernel: rows.map((row) => row.kernel),
    output: rows.map((row) => row.output),
    plain: rows.map((row) => row.plain),
    windows: Object.fromEntries(
      windows.map(({ kernel, stride, dilation, pads }, index) => {
        const reach = dilation * (kernel - 1) + 1;
        return [`x${index}`, { stride: 1, before: reach - 1 - pads[0], reach, up: stride, fill: 0 }];
      }),
    ),
  };
}

/**
 * The windows of the convolution that a transposed one reverses: over its result (their `input`), one for each position
 * of its operand (their `output`).
 */
function transposedWindows(operator: Operator): readonly SpatialWindow[] {
  const spatial = operand(operator, 0).shape.slice(2);
  const kernels = operand(operator, 1).shape.slice(2);
  const sizes = transposedSizes(operator);
  const at = (name: string, index: number, otherwise: number) => integers(operator, name)?.[index] ?? otherwise;
  const automatic = text(operator, 'auto_pad', 'NOTSET');
  return spatial.map((output, index) => {
    const [kernel, input] = [kernels[index] ?? 1, sizes[index] ?? 1];
    const [stride, dilation] = [at('strides', index, 1), at('dilations', index, 1)];
    const reach = (kernel - 1) * dilation + 1;
    const window = { input, kernel, stride, dilation, output };
    if (!integers(operator, 'output_shape') && !automatic.startsWith('SAME')) {
      const given = automatic === 'VALID' ? [0, 0] : [at('pads', index, 0), at('pads', index + spatial.length, 0)];
      return { ...window, pads: [given[0] ?? 0, given[1] ?? 0] };
    }
    // The sizes are given and determine the padding; an odd element is padded before, or after for SAME_UPPER.
    const total = Math.max(0, stride * (output - 1) + at('output_padding', index, 0) + reach - input);
    const less = Math.floor(total / 2);
    return { ...window, pads: automatic === 'SAME_UPPER' ? [less, total - less] : [total - less, less] };
  });
}

/** `kernel` writes the first two dimensions of the kernel from the names of output and input channels. */
function channelRule(operator: Operator, names: SpatialNames, kernel: (co: string, ci: string) => string): FactorRule {
  const { operands, output } = channelTexts(operator, names, kernel, operator.inputs[2] ? '%' : '+');
  return bindChannels(`${operands.join(', ')} -> ${output}`, operator, names.windows);
}

/** Rule texts of image, kernel and bias, and of the result; `mark` is the kind of the input channels. */
export function channelTexts(
  operator: Operator,
  names: SpatialNames,
  kernel: (co: string, ci: string) => string,
  mark: string,
): { readonly operands: readonly string[]; readonly output: string } {
  const groups = numberOf(operator, 'group', 1) > 1;
  const [outputs, inputs] = groups ? ['(g co)', `(g ci${mark})`] : ['co', `ci${mark}`];
  const [first, second] = kernel('co', `ci${mark}`).split(' ');
  const image = `n ${inputs} ${names.input.join(' ')}`;
  const filter = `${groups ? `(g ${first})` : first} ${second} ${names.kernel.join(' ')}`;
  return { operands: [image, filter, outputs], output: `n ${outputs} ${names.output.join(' ')}` };
}

/** A rule over channels in groups. */
export function bindChannels(text: string, operator: Operator, windows: SpatialNames['windows'] = {}): FactorRule {
  const group = numberOf(operator, 'group', 1);
  return bindRule(text, operator, group > 1 ? { g: group } : {}, windows);
}

function linearWithoutBias(operator: Operator): readonly (readonly number[])[] {
  return operator.inputs[2] ? [] : [[0], [1]];
}

export function resizeGroups(operator: Operator, rule: FactorRule, size: (factor: string) => number) {
  return rule.factors.has('g') ? { ...operator.attributes, group: size('g') } : operator.attributes;
}

/** The same convolution without bias, then the bias over positions. */
function withoutBias(operator: Operator, names: SpatialNames): Expansion {
  const write = new ExpansionWriter();
  addBiased(write, operator, names, operator, 'out0');
  return write.finish();
}

/** Writes an operator over channels without its bias, and the bias over positions after it. */
export function addBiased(
  write: ExpansionWriter,
  operator: Operator,
  names: SpatialNames,
  { op, attributes }: Pick<Operator, 'op' | 'attributes'>,
  output?: string,
  operands: readonly (string | null)[] = ['in0', 'in1'],
): string {
  const channels = numberOf(operator, 'group', 1) > 1 ? ['g', 'co'] : ['co'];
  const dims = [['n'], channels, ...names.plain];
  if (!operator.inputs[2]) return write.add(op, operands, dims, attributes, output);
  const sum = write.add(op, operands, dims, attributes);
  const beside = names.plain.map((_, index) => index + 1);
  const bias = write.add('Unsqueeze', ['in2'], [channels, ...beside.map(() => [])], { axes: beside });
  return write.add('Add', [sum, bias], dims, {}, output);
}

export function transposedSizes(operator: Operator): readonly number[] {
  const spatial = operand(operator, 0).shape.slice(2);
  const kernel = operand(operator, 1).shape.slice(2);
  const given = integers(operator, 'output_shape');
  if (given) return given.slice(-spatial.length);
  const at = (name: string, index: number, otherwise: number) => integers(operator, name)?.[index] ?? otherwise;
  const same = text(operator, 'auto_pad', 'NOTSET').startsWith('SAME');
  return spatial.map((size, index) => {
    const stride = at('strides', index, 1);
    if (same) return size * stride;
    const reach = ((kernel[index] ?? 1) - 1) * at('dilations', index, 1) + 1;
    const pads = at('pads', index, 0) + at('pads', index + spatial.length, 0);
    return stride * (size - 1) + at('output_padding', index, 0) + reach - pads;
  });
}
