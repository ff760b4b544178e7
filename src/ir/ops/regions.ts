/**
 * @file Operators that read regions and single places of images: pooling of regions, deformed windows, sampling grids.
 * Channels pass; positions stay whole, since a region may be anywhere.
 */

import type { FactorRule } from '../factor-rule.js';
import { elementCount } from '../graph.js';
import type { Expansion, Operator, OperatorEntry } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { entry, moves, perElement, perInputElement } from './entry.js';
import { ExpansionWriter } from './expansion.js';
import {
  dimensionNames,
  integers,
  mismatch,
  neededIntegers,
  numberOf,
  ofRank,
  operand,
  result,
  text,
} from './operands.js';
import { withGradients } from './operator-gradient.js';
import { REGION_GRADIENTS } from './regions-gradient.js';
import { windowsOf } from './windows.js';

const entries: readonly OperatorEntry[] = [
  entry({
    op: 'RoiAlign',
    readsPositions: true,
    family: 'indexing',
    until: 21,
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 4);
      const regions = ofRank(operator, 1, 2).shape[0] ?? 1;
      return [
        {
          dtype,
          shape: [
            regions,
            shape[1] ?? 1,
            numberOf(operator, 'output_height', 1),
            numberOf(operator, 'output_width', 1),
          ],
        },
      ];
    },
    rule: 'n! c h! w!, r q!, r -> r c y! x!',
    linear: (operator) => (text(operator, 'mode', 'avg') === 'avg' ? [[0]] : []),
    work: perElement(32),
    note: 'Images are not sharded: a region may be anywhere in any of them.',
  }),
  entry({
    op: 'MaxRoiPool',
    readsPositions: true,
    family: 'indexing',
    until: 21,
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 4);
      const pooled = neededIntegers(operator, 'pooled_shape');
      if (pooled.length !== 2) throw mismatch(operator, 'its pooled_shape must have two sizes');
      return [{ dtype, shape: [ofRank(operator, 1, 2).shape[0] ?? 1, shape[1] ?? 1, ...pooled] }];
    },
    rule: 'n! c h! w!, r q! -> r c y! x!',
    work: perElement(16),
    note: 'Images are not sharded: a region may be anywhere in any of them.',
  }),
  entry({
    op: 'AffineGrid',
    family: 'generator',
    constantInputs: [{ index: 1, attribute: 'size', form: 'ints' }],
    infer: (operator) => {
      const { dtype } = ofRank(operator, 0, 3);
      const [n = 1, , ...positions] = neededIntegers(operator, 'size');
      if (n !== operand(operator, 0).shape[0]) throw mismatch(operator, 'it must have one matrix per image');
      return [{ dtype, shape: [n, ...positions, positions.length] }];
    },
    rule: (operator) => {
      const positions = dimensionNames(result(operator, 0).shape.length - 2, 'p').map((name) => `${name}!`);
      return `n i! j! -> n ${positions.join(' ')} k!`;
    },
    linear: () => [[0]],
    resize: (operator, _, size) => ({
      ...operator.attributes,
      size: [size('n'), ...neededIntegers(operator, 'size').slice(1)],
    }),
    work: perElement(6),
    note: 'Positions are not sharded: they are fractions of the unsharded size.',
  }),
  entry({
    op: 'DeformConv',
    readsPositions: true,
    family: 'convolution',
    precision: 'full',
    infer: (operator) => {
      const [x, w] = [ofRank(operator, 0, 4), ofRank(operator, 1, 4)];
      const group = numberOf(operator, 'group', 1);
      const [n = 1, c = 1] = x.shape;
      const [m = 1, own = 1] = w.shape;
      if (own * group !== c || m % group !== 0 || c % numberOf(operator, 'offset_group', 1) !== 0)
        throw mismatch(operator, `the kernel does not fit ${c} channels`);
      return [
        {
          dtype: x.dtype,
          shape: [n, m, ...windowsOf(operator, x.shape, w.shape.slice(2)).map(({ output }) => output)],
        },
      ];
    },
    rule: deformedRule,
    linear: (operator) => (operator.inputs[3] ? [] : [[0], [1]]),
    resize: (operator, rule, size) => ({
      ...operator.attributes,
      ...(rule.factors.has('g') ? { group: size('g') } : {}),
      // Groups of channels and of offsets are one factor where they are the same.
      ...(rule.factors.has('o') ? { offset_group: size('o') } : {}),
      ...(rule.factors.has('g') && numberOf(operator, 'offset_group', 1) > 1 ? { offset_group: size('g') } : {}),
    }),
    expansion: deformedExpansion,
    work: (operator) => ({
      flops: 10 * elementCount(result(operator, 0).shape) * elementCount(operand(operator, 1).shape.slice(1)),
    }),
    parameterInputs: [1, 3],
    note: 'Positions are not sharded: offsets move every window. Nor are channels if the two kinds of groups cross.',
  }),
  entry({
    op: 'Col2Im',
    family: 'view',
    constantInputs: [
      { index: 1, attribute: 'image_shape', form: 'ints' },
      { index: 2, attribute: 'block_shape', form: 'ints' },
    ],
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 3);
      const block = elementCount(neededIntegers(operator, 'block_shape'));
      if ((shape[1] ?? 1) % block !== 0) throw mismatch(operator, `its rows do not make blocks of ${block}`);
      return [{ dtype, shape: [shape[0] ?? 1, (shape[1] ?? 1) / block, ...neededIntegers(operator, 'image_shape')] }];
    },
    rule: (operator) => {
      const positions = neededIntegers(operator, 'image_shape').map((_, index) => `s${index}!`);
      const block = elementCount(neededIntegers(operator, 'block_shape'));
      return bindRule(`n (c k!) l! -> n c ${positions.join(' ')}`, operator, { k: block });
    },
    linear: () => [[0]],
    work: perInputElement(1),
    note: 'Positions and blocks are not sharded: blocks overlap.',
  }),
  entry({
    op: 'MaxUnpool',
    family: 'indexing',
    constantInputs: [{ index: 2, attribute: 'output_shape', form: 'ints' }],
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 3, true);
      if (operand(operator, 1).shape.join() !== shape.join())
        throw mismatch(operator, 'it must have one index per value');
      const given = integers(operator, 'output_shape');
      if (given) return [{ dtype, shape: given }];
      const kernel = neededIntegers(operator, 'kernel_shape');
      const strides = integers(operator, 'strides') ?? kernel.map(() => 1);
      const pads = integers(operator, 'pads') ?? kernel.flatMap(() => [0, 0]);
      const positions = shape.slice(2).map((size, index) => {
        const cut = (pads[index] ?? 0) + (pads[index + kernel.length] ?? 0);
        return (size - 1) * (strides[index] ?? 1) - cut + (kernel[index] ?? 1);
      });
      return [{ dtype, shape: [...shape.slice(0, 2), ...positions] }];
    },
    rule: (operator) => {
      const image = (prefix: string) =>
        ['n@', 'c!', ...dimensionNames(operand(operator, 0).shape.length - 2, prefix).map((name) => `${name}!`)].join(
          ' ',
        );
      return `${image('x')}, ${image('x')} -> ${image('y')}`;
    },
    indexed: unpoolOnShard,
    resize: (operator, _, size) => {
      const given = integers(operator, 'output_shape');
      return given ? { ...operator.attributes, output_shape: [size('n'), ...given.slice(1)] } : operator.attributes;
    },
    work: moves,
    note: 'Channels and positions are not sharded: indices count through the image.',
  }),
  entry({
    op: 'CenterCropPad',
    family: 'view',
    constantInputs: [{ index: 1, attribute: 'shape', form: 'ints' }],
    infer: (operator) => {
      const { dtype, shape } = operand(operator, 0);
      const sizes = [...shape];
      for (const [axis, size] of croppedAxes(operator)) sizes[axis] = size;
      return [{ dtype, shape: sizes }];
    },
    rule: (operator) => {
      const { shape } = operand(operator, 0);
      const cropped = new Map(croppedAxes(operator));
      const side = (prefix: string) =>
        shape.map((size, axis) => ((cropped.get(axis) ?? size) === size ? `a${axis}` : `${prefix}${axis}!`)).join(' ');
      return `${side('x')} -> ${side('y')}`;
    },
    linear: () => [[0]],
    resize: (operator, rule, size) => ({
      ...operator.attributes,
      shape: croppedAxes(operator).map(([axis, old]) => (rule.factors.has(`a${axis}`) ? size(`a${axis}`) : old)),
    }),
    work: moves,
    note: 'A cropped or padded dimension is not sharded.',
  }),
];

export const regionEntries = withGradients(entries, REGION_GRADIENTS);

/** Axes that are cropped or padded, with their new sizes. */
function croppedAxes(operator: Operator): readonly (readonly [number, number])[] {
  const { shape } = operand(operator, 0);
  const sizes = neededIntegers(operator, 'shape');
  const axes = integers(operator, 'axes') ?? shape.map((_, axis) => axis);
  if (axes.length !== sizes.length) throw mismatch(operator, `it has ${sizes.length} sizes for ${axes.length} axes`);
  return axes.map((axis, index) => [axis < 0 ? axis + shape.length : axis, sizes[index] ?? 1]);
}

/** Places in a shard's images count from the shard's first one: the offset is subtracted. */
function unpoolOnShard(operator: Operator, offsets: Readonly<Record<string, string>>): Expansion {
  const write = new ExpansionWriter();
  const spatial = operand(operator, 0).shape.length - 2;
  const dims = (prefix: string) => ['n', 'c', ...dimensionNames(spatial, prefix)].map((name) => [name]);
  const { dtype } = operand(operator, 1);
  const each = write.scalar('int64', elementCount(result(operator, 0).shape.slice(1)));
  const skipped = write.cast(write.add('Mul', [offsets['n'] ?? '', each], [[]]), [[]], dtype);
  const places = write.add('Sub', ['in1', skipped], dims('x'));
  write.add('MaxUnpool', ['in0', places], dims('y'), operator.attributes, 'out0');
  return write.finish();
}

function deformedRule(operator: Operator): FactorRule {
  const [group, offsets] = [numberOf(operator, 'group', 1), numberOf(operator, 'offset_group', 1)];
  const mark = operator.inputs[3] ? '%' : '+';
  // Two kinds of groups: channels are sharded by the kind that there is, or by both where they are the same.
  const same = group === offsets && group > 1;
  const crossed = group > 1 && offsets > 1 && !same;
  const [ci, co] = [crossed ? 'ci!' : `ci${mark}`, crossed ? 'co!' : 'co'];
  const byGroup = group > 1 && !crossed;
  const byOffsets = offsets > 1 && !same && !crossed;
  const channels = byGroup ? `(g ${ci})` : byOffsets ? `(o${mark} ${ci})` : crossed ? 'c!' : ci;
  const kernelInput = byOffsets ? `(o${mark} ${ci})` : ci;
  const outputs = byGroup ? `(g ${co})` : co;
  const places = same ? '(g q!)' : byOffsets ? `(o${mark} q!)` : 'q!';
  const weights = same ? '(g r!)' : byOffsets ? `(o${mark} r!)` : 'r!';
  const operands = [
    `n ${channels} h! w!`,
    `${outputs} ${kernelInput} i! j!`,
    `n ${places} y! x!`,
    outputs,
    `n ${weights} y! x!`,
  ];
  const sizes = { ...(byGroup ? { g: group } : {}), ...(byOffsets ? { o: offsets } : {}) };
  return bindRule(`${operands.slice(0, operator.inputs.length).join(', ')} -> n ${outputs} y! x!`, operator, sizes);
}

/** The same without bias, then the bias over positions. */
function deformedExpansion(operator: Operator): Expansion {
  const write = new ExpansionWriter();
  const channels = deformedRule(operator).outputs[0]?.[1] ?? ['co'];
  const dims = [['n'], channels, ['y'], ['x']];
  const mask = operator.inputs[4] ? 'in4' : null;
  const sum = write.add('DeformConv', ['in0', 'in1', 'in2', null, mask], dims, operator.attributes);
  const bias = write.add('Unsqueeze', ['in3'], [channels, [], []], { axes: [1, 2] });
  write.add('Add', [sum, bias], dims, {}, 'out0');
  return write.finish();
}
