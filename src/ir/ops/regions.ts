/**
 * @file Operators that read regions and single places of images: pooling of regions, deformed windows, sampling grids.
 * Channels pass; positions stay whole, since a region may be anywhere.
 */

import type { FactorRule } from '../factor-rule.js';
import { elementCount } from '../graph.js';
import type { Expansion, OperatorEntry, OperatorView } from '../operator.js';
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
    infer: (view) => {
      const { dtype, shape } = ofRank(view, 0, 4);
      const regions = ofRank(view, 1, 2).shape[0] ?? 1;
      return [
        {
          dtype,
          shape: [regions, shape[1] ?? 1, numberOf(view, 'output_height', 1), numberOf(view, 'output_width', 1)],
        },
      ];
    },
    rule: 'n! c h! w!, r q!, r -> r c y! x!',
    linear: (view) => (text(view, 'mode', 'avg') === 'avg' ? [[0]] : []),
    work: perElement(32),
    note: 'Images are not sharded: a region may be anywhere in any of them.',
  }),
  entry({
    op: 'MaxRoiPool',
    readsPositions: true,
    family: 'indexing',
    until: 21,
    infer: (view) => {
      const { dtype, shape } = ofRank(view, 0, 4);
      const pooled = neededIntegers(view, 'pooled_shape');
      if (pooled.length !== 2) throw mismatch(view, 'its pooled_shape must have two sizes');
      return [{ dtype, shape: [ofRank(view, 1, 2).shape[0] ?? 1, shape[1] ?? 1, ...pooled] }];
    },
    rule: 'n! c h! w!, r q! -> r c y! x!',
    work: perElement(16),
    note: 'Images are not sharded: a region may be anywhere in any of them.',
  }),
  entry({
    op: 'AffineGrid',
    family: 'generator',
    constantInputs: [{ index: 1, attribute: 'size', form: 'ints' }],
    infer: (view) => {
      const { dtype } = ofRank(view, 0, 3);
      const [n = 1, , ...positions] = neededIntegers(view, 'size');
      if (n !== operand(view, 0).shape[0]) throw mismatch(view, 'it must have one matrix per image');
      return [{ dtype, shape: [n, ...positions, positions.length] }];
    },
    rule: (view) => {
      const positions = dimensionNames(result(view, 0).shape.length - 2, 'p').map((name) => `${name}!`);
      return `n i! j! -> n ${positions.join(' ')} k!`;
    },
    linear: () => [[0]],
    resize: (view, _, size) => ({ ...view.attributes, size: [size('n'), ...neededIntegers(view, 'size').slice(1)] }),
    work: perElement(6),
    note: 'Positions are not sharded: they are fractions of the unsharded size.',
  }),
  entry({
    op: 'DeformConv',
    readsPositions: true,
    family: 'convolution',
    precision: 'full',
    infer: (view) => {
      const [x, w] = [ofRank(view, 0, 4), ofRank(view, 1, 4)];
      const group = numberOf(view, 'group', 1);
      const [n = 1, c = 1] = x.shape;
      const [m = 1, own = 1] = w.shape;
      if (own * group !== c || m % group !== 0 || c % numberOf(view, 'offset_group', 1) !== 0)
        throw mismatch(view, `the kernel does not fit ${c} channels`);
      return [
        { dtype: x.dtype, shape: [n, m, ...windowsOf(view, x.shape, w.shape.slice(2)).map(({ output }) => output)] },
      ];
    },
    rule: deformedRule,
    linear: (view) => (view.inputs[3] ? [] : [[0], [1]]),
    resize: (view, rule, size) => ({
      ...view.attributes,
      ...(rule.factors.has('g') ? { group: size('g') } : {}),
      // Groups of channels and of offsets are one factor where they are the same.
      ...(rule.factors.has('o') ? { offset_group: size('o') } : {}),
      ...(rule.factors.has('g') && numberOf(view, 'offset_group', 1) > 1 ? { offset_group: size('g') } : {}),
    }),
    expansion: deformedExpansion,
    work: (view) => ({
      flops: 10 * elementCount(result(view, 0).shape) * elementCount(operand(view, 1).shape.slice(1)),
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
    infer: (view) => {
      const { dtype, shape } = ofRank(view, 0, 3);
      const block = elementCount(neededIntegers(view, 'block_shape'));
      if ((shape[1] ?? 1) % block !== 0) throw mismatch(view, `its rows do not make blocks of ${block}`);
      return [{ dtype, shape: [shape[0] ?? 1, (shape[1] ?? 1) / block, ...neededIntegers(view, 'image_shape')] }];
    },
    rule: (view) => {
      const positions = neededIntegers(view, 'image_shape').map((_, index) => `s${index}!`);
      const block = elementCount(neededIntegers(view, 'block_shape'));
      return bindRule(`n (c k!) l! -> n c ${positions.join(' ')}`, view, { k: block });
    },
    linear: () => [[0]],
    work: perInputElement(1),
    note: 'Positions and blocks are not sharded: blocks overlap.',
  }),
  entry({
    op: 'MaxUnpool',
    family: 'indexing',
    constantInputs: [{ index: 2, attribute: 'output_shape', form: 'ints' }],
    infer: (view) => {
      const { dtype, shape } = ofRank(view, 0, 3, true);
      if (operand(view, 1).shape.join() !== shape.join()) throw mismatch(view, 'it must have one index per value');
      const given = integers(view, 'output_shape');
      if (given) return [{ dtype, shape: given }];
      const kernel = neededIntegers(view, 'kernel_shape');
      const strides = integers(view, 'strides') ?? kernel.map(() => 1);
      const pads = integers(view, 'pads') ?? kernel.flatMap(() => [0, 0]);
      const positions = shape.slice(2).map((size, index) => {
        const cut = (pads[index] ?? 0) + (pads[index + kernel.length] ?? 0);
        return (size - 1) * (strides[index] ?? 1) - cut + (kernel[index] ?? 1);
      });
      return [{ dtype, shape: [...shape.slice(0, 2), ...positions] }];
    },
    rule: (view) => {
      const image = (prefix: string) =>
        ['n@', 'c!', ...dimensionNames(operand(view, 0).shape.length - 2, prefix).map((name) => `${name}!`)].join(' ');
      return `${image('x')}, ${image('x')} -> ${image('y')}`;
    },
    indexed: unpoolOnShard,
    resize: (view, _, size) => {
      const given = integers(view, 'output_shape');
      return given ? { ...view.attributes, output_shape: [size('n'), ...given.slice(1)] } : view.attributes;
    },
    work: moves,
    note: 'Channels and positions are not sharded: indices count through the image.',
  }),
  entry({
    op: 'CenterCropPad',
    family: 'view',
    constantInputs: [{ index: 1, attribute: 'shape', form: 'ints' }],
    infer: (view) => {
      const { dtype, shape } = operand(view, 0);
      const sizes = [...shape];
      for (const [axis, size] of croppedAxes(view)) sizes[axis] = size;
      return [{ dtype, shape: sizes }];
    },
    rule: (view) => {
      const { shape } = operand(view, 0);
      const cropped = new Map(croppedAxes(view));
      const side = (prefix: string) =>
        shape.map((size, axis) => ((cropped.get(axis) ?? size) === size ? `a${axis}` : `${prefix}${axis}!`)).join(' ');
      return `${side('x')} -> ${side('y')}`;
    },
    linear: () => [[0]],
    resize: (view, rule, size) => ({
      ...view.attributes,
      shape: croppedAxes(view).map(([axis, old]) => (rule.factors.has(`a${axis}`) ? size(`a${axis}`) : old)),
    }),
    work: moves,
    note: 'A cropped or padded dimension is not sharded.',
  }),
];

export const regionEntries = withGradients(entries, REGION_GRADIENTS);

/** Axes that are cropped or padded, with their new sizes. */
function croppedAxes(view: OperatorView): readonly (readonly [number, number])[] {
  const { shape } = operand(view, 0);
  const sizes = neededIntegers(view, 'shape');
  const axes = integers(view, 'axes') ?? shape.map((_, axis) => axis);
  if (axes.length !== sizes.length) throw mismatch(view, `it has ${sizes.length} sizes for ${axes.length} axes`);
  return axes.map((axis, index) => [axis < 0 ? axis + shape.length : axis, sizes[index] ?? 1]);
}

/** Places in a shard's images count from the shard's first one: the offset is subtracted. */
function unpoolOnShard(view: OperatorView, offsets: Readonly<Record<string, string>>): Expansion {
  const write = new ExpansionWriter();
  const spatial = operand(view, 0).shape.length - 2;
  const dims = (prefix: string) => ['n', 'c', ...dimensionNames(spatial, prefix)].map((name) => [name]);
  const { dtype } = operand(view, 1);
  const each = write.scalar('int64', elementCount(result(view, 0).shape.slice(1)));
  const skipped = write.cast(write.add('Mul', [offsets['n'] ?? '', each], [[]]), [[]], dtype);
  const places = write.add('Sub', ['in1', skipped], dims('x'));
  write.add('MaxUnpool', ['in0', places], dims('y'), view.attributes, 'out0');
  return write.finish();
}

function deformedRule(view: OperatorView): FactorRule {
  const [group, offsets] = [numberOf(view, 'group', 1), numberOf(view, 'offset_group', 1)];
  const mark = view.inputs[3] ? '%' : '+';
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
  return bindRule(`${operands.slice(0, view.inputs.length).join(', ')} -> n ${outputs} y! x!`, view, sizes);
}

/** The same without bias, then the bias over positions. */
function deformedExpansion(view: OperatorView): Expansion {
  const write = new ExpansionWriter();
  const channels = deformedRule(view).outputs[0]?.[1] ?? ['co'];
  const dims = [['n'], channels, ['y'], ['x']];
  const mask = view.inputs[4] ? 'in4' : null;
  const sum = write.add('DeformConv', ['in0', 'in1', 'in2', null, mask], dims, view.attributes);
  const bias = write.add('Unsqueeze', ['in3'], [channels, [], []], { axes: [1, 2] });
  write.add('Add', [sum, bias], dims, {}, 'out0');
  return write.finish();
}
