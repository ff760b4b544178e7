/**
 * @file Operators that move elements without computing: Transpose, Expand, Slice, Split, Concat, Pad, Tile, and the
 * two that trade channels for space. They are linear; a dimension that is sliced or padded stays whole.
 */

import type { FactorRule } from '../factor-rule.js';
import type { Attributes } from '../graph.js';
import type { Operator, OperatorEntry } from '../operator.js';
import { bindRule, dimensionSize } from '../rule-text.js';
import { numbersOf } from './constants.js';
import { axisFromFront, entry, moves, presentOperands } from './entry.js';
import { MOVEMENT_GRADIENTS } from './movement-gradient.js';
import { cuts, padding, permutation, type SlicedAxis, splitSizes } from './movement-shapes.js';
import {
  axisOf,
  broadcast,
  dimensionNames,
  mismatch,
  neededIntegers,
  numberOf,
  ofRank,
  operand,
  tensor,
  text,
} from './operands.js';
import { withGradients } from './operator-gradient.js';

const entries: readonly OperatorEntry[] = [
  entry({
    op: 'Transpose',
    family: 'view',
    complete: (operator) => ({ ...operator.attributes, perm: permutation(operator) }),
    infer: (operator) => {
      const { dtype, shape } = operand(operator, 0);
      return [{ dtype, shape: permutation(operator).map((axis) => shape[axis] ?? 1) }];
    },
    rule: (operator) => {
      const names = dimensionNames(operand(operator, 0).shape.length);
      return `${names.join(' ')} -> ${permutation(operator)
        .map((axis) => names[axis])
        .join(' ')}`;
    },
    linear: () => [[0]],
    work: moves,
  }),
  entry({
    op: 'Expand',
    family: 'view',
    constantInputs: [{ index: 1, attribute: 'shape', form: 'ints' }],
    complete: (operator) => ({ ...operator.attributes, shape: expandedShape(operator) }),
    infer: (operator) => [{ dtype: operand(operator, 0).dtype, shape: expandedShape(operator) }],
    rule: '*a -> *a',
    repeats: true,
    linear: () => [[0]],
    resize: (operator, rule, size) => ({ ...operator.attributes, shape: resultSizes(rule, size) }),
    work: moves,
  }),
  entry({
    op: 'Slice',
    family: 'view',
    constantInputs: [
      { index: 1, attribute: 'starts', form: 'ints' },
      { index: 2, attribute: 'ends', form: 'ints' },
      { index: 3, attribute: 'axes', form: 'ints' },
      { index: 4, attribute: 'steps', form: 'ints' },
    ],
    complete: (operator) => {
      const ranges = cuts(operator);
      // Counting down, an end before the first element can only be written from the back.
      const end = ({ axis, end }: SlicedAxis) => (end < 0 ? -1 - (operand(operator, 0).shape[axis] ?? 1) : end);
      return {
        ...operator.attributes,
        starts: ranges.map(({ start }) => start),
        ends: ranges.map(end),
        axes: ranges.map(({ axis }) => axis),
        steps: ranges.map(({ step }) => step),
      };
    },
    infer: (operator) => {
      const { dtype, shape } = operand(operator, 0);
      const sizes = [...shape];
      for (const { axis, size } of cuts(operator)) sizes[axis] = size;
      return [{ dtype, shape: sizes }];
    },
    rule: (operator) => {
      const names = dimensionNames(operand(operator, 0).shape.length);
      const cut = new Map(cuts(operator).flatMap((entry) => (entry.whole ? [] : [[entry.axis, entry]])));
      const side = (whole: string, part: (name: string, axis: number) => string) =>
        names.map((name, axis) => {
          const entry = cut.get(axis);
          if (!entry) return name;
          return entry.part === null ? `${whole}${axis}!` : part(name, axis);
        });
      const operandDims = side('x', (name, axis) => `(p${axis}! ${name})`);
      return `${operandDims.join(' ')} -> ${side('y', (name) => name).join(' ')}`;
    },
    linear: () => [[0]],
    resize: (operator, rule, size) => {
      const starts = [...neededIntegers(operator, 'starts')];
      const ends = [...neededIntegers(operator, 'ends')];
      for (const [index, { axis, whole, part }] of cuts(operator).entries()) {
        const local = resultSizes(rule, size)[axis] ?? 1;
        if (whole) ends[index] = local;
        else if (part !== null) [starts[index], ends[index]] = [part * local, (part + 1) * local];
      }
      return { ...operator.attributes, starts, ends };
    },
    work: moves,
    note: 'A sliced dimension is not sharded, unless the slice is one of several equal parts.',
  }),
  entry({
    op: 'Split',
    family: 'view',
    constantInputs: [{ index: 1, attribute: 'split', form: 'ints' }],
    complete: (operator) => {
      const { num_outputs: _, ...rest } = axisFromFront(0)(operator);
      return { ...rest, split: splitSizes({ ...operator, attributes: rest }) };
    },
    infer: (operator) => {
      const { dtype, shape } = operand(operator, 0);
      const axis = axisOf(operator, 'axis', shape.length, 0);
      const parts = splitSizes(operator);
      if (parts.reduce((sum, size) => sum + size, 0) !== shape[axis] || parts.length !== operator.outputCount)
        throw mismatch(operator, `dimension ${axis} does not split into ${parts.join(' + ')}`);
      return parts.map((size) => ({ dtype, shape: shape.map((old, index) => (index === axis ? size : old)) }));
    },
    rule: (operator) => {
      const rank = operand(operator, 0).shape.length;
      const parts = splitSizes(operator);
      const [joined, single] = partition(parts, rank, axisOf(operator, 'axis', rank, 0));
      return bindRule(`${joined} -> ${single.join(', ')}`, operator, countOf(parts));
    },
    linear: () => [[0]],
    resize: (operator, rule, size) => splitAttributes(operator, rule, size),
    work: moves,
    note: 'Unequal parts: the split dimension is not sharded. Equal parts: each part may be sharded.',
  }),
  entry({
    op: 'Concat',
    family: 'view',
    complete: axisFromFront(0),
    infer: (operator) => {
      const first = operand(operator, 0);
      const axis = axisOf(operator, 'axis', first.shape.length, 0);
      const fits = operator.inputs.every(
        (type) =>
          type?.shape.length === first.shape.length &&
          type.shape.every((size, index) => index === axis || size === first.shape[index]),
      );
      if (!fits) throw mismatch(operator, `its operands must agree in all dimensions but ${axis}`);
      const total = operator.inputs.reduce((sum, type) => sum + (type?.shape[axis] ?? 0), 0);
      return [{ dtype: first.dtype, shape: first.shape.map((size, index) => (index === axis ? total : size)) }];
    },
    rule: (operator) => {
      const rank = operand(operator, 0).shape.length;
      const axis = axisOf(operator, 'axis', rank, 0);
      const parts = operator.inputs.map((type) => type?.shape[axis] ?? 0);
      const [joined, single] = partition(parts, rank, axis);
      return bindRule(`${single.join(', ')} -> ${joined}`, operator, countOf(parts));
    },
    linear: (operator) => [presentOperands(operator)],
    work: moves,
    note: 'Unequal parts: the joined dimension is not sharded. Equal parts: each part may be sharded.',
  }),
  entry({
    op: 'Pad',
    family: 'view',
    constantInputs: [
      { index: 1, attribute: 'pads', form: 'ints' },
      { index: 2, attribute: 'constant_value', form: 'tensor' },
      { index: 3, attribute: 'axes', form: 'ints' },
    ],
    complete: (operator) => paddedBut(operator, new Set()),
    infer: (operator) => {
      const { dtype, shape } = operand(operator, 0);
      return [{ dtype, shape: padding(operator).map(([before, after], axis) => before + (shape[axis] ?? 1) + after) }];
    },
    rule: (operator) => {
      const fill = paddingValue(operator);
      const [before, after] = fill === null ? ['x.!', 'y.!'] : ['x.~y.', 'y.'];
      const side = (form: string) =>
        padding(operator).map(([low, high], axis) =>
          low === 0 && high === 0 ? `a${axis}` : form.replaceAll('.', `${axis}`),
        );
      const windows = padding(operator).map(
        ([low], axis) => [`x${axis}`, { stride: 1, before: low, reach: 1, up: 1, fill: fill ?? 0 }] as const,
      );
      return bindRule(
        `${side(before).join(' ')} -> ${side(after).join(' ')}`,
        operator,
        {},
        Object.fromEntries(windows),
      );
    },
    bordered: paddedBut,
    linear: (operator) => {
      const value = tensor(operator, 'constant_value');
      const zero = !value || numbersOf(value).every((number) => number === 0);
      return text(operator, 'mode', 'constant') !== 'constant' || zero ? [[0]] : [];
    },
    work: moves,
    note: 'A dimension that is padded with its own elements is not sharded.',
  }),
  entry({
    op: 'Tile',
    family: 'view',
    constantInputs: [{ index: 1, attribute: 'repeats', form: 'ints' }],
    infer: (operator) => {
      const { dtype, shape } = operand(operator, 0);
      const repeats = neededIntegers(operator, 'repeats');
      if (repeats.length !== shape.length) throw mismatch(operator, 'one repeat per dimension is needed');
      return [{ dtype, shape: shape.map((size, axis) => size * (repeats[axis] ?? 1)) }];
    },
    repeats: true,
    // Repeats are a factor of the result alone: a shard repeats less often.
    rule: (operator) => {
      const names = dimensionNames(operand(operator, 0).shape.length);
      const repeats = neededIntegers(operator, 'repeats');
      const repeated = names.map((name, axis) => ((repeats[axis] ?? 1) === 1 ? name : `(r${axis} ${name})`));
      return `${names.join(' ')} -> ${repeated.join(' ')}`;
    },
    linear: () => [[0]],
    resize: (operator, rule, size) => ({
      ...operator.attributes,
      repeats: neededIntegers(operator, 'repeats').map((_, axis) =>
        rule.factors.has(`r${axis}`) ? size(`r${axis}`) : 1,
      ),
    }),
    work: moves,
  }),
  entry({
    op: 'DepthToSpace',
    family: 'view',
    infer: (operator) => {
      const [n = 1, c = 1, h = 1, w = 1] = ofRank(operator, 0, 4).shape;
      const block = numberOf(operator, 'blocksize', 1);
      if (c % block ** 2 !== 0) throw mismatch(operator, `${c} channels do not make blocks of ${block}`);
      return [{ dtype: operand(operator, 0).dtype, shape: [n, c / block ** 2, h * block, w * block] }];
    },
    rule: (operator) => {
      const channels = text(operator, 'mode', 'DCR') === 'DCR' ? '(p! q! c)' : '(c p! q!)';
      return bindRule(`n ${channels} h w -> n c (h p!) (w q!)`, operator, blockSizes(operator));
    },
    linear: () => [[0]],
    work: moves,
    note: 'The positions inside a block are not sharded.',
  }),
  entry({
    op: 'SpaceToDepth',
    family: 'view',
    infer: (operator) => {
      const [n = 1, c = 1, h = 1, w = 1] = ofRank(operator, 0, 4).shape;
      const block = numberOf(operator, 'blocksize', 1);
      if (h % block !== 0 || w % block !== 0) throw mismatch(operator, `${h}×${w} does not make blocks of ${block}`);
      return [{ dtype: operand(operator, 0).dtype, shape: [n, c * block ** 2, h / block, w / block] }];
    },
    rule: (operator) => bindRule('n c (h p!) (w q!) -> n (p! q! c) h w', operator, blockSizes(operator)),
    linear: () => [[0]],
    work: moves,
    note: 'The positions inside a block are not sharded.',
  }),
];

export const movementEntries = withGradients(entries, MOVEMENT_GRADIENTS);

/** The shape that Expand's operand broadcasts to, whichever of both is longer. */
function expandedShape(operator: Operator): readonly number[] {
  return broadcast(operator, [operand(operator, 0).shape, neededIntegers(operator, 'shape')]);
}

/** Pad's attributes with the pads of all dimensions, and none where a dimension's factor is in `cut`. */
function paddedBut(operator: Operator, cut: ReadonlySet<string>): Attributes {
  const { axes: _, ...rest } = operator.attributes;
  const pads = [0, 1].flatMap((end) => padding(operator).map((both, axis) => (cut.has(`x${axis}`) ? 0 : both[end])));
  return { ...rest, pads: pads.map(Number) };
}

/** Sizes of a result's dimensions at other factor sizes. */
function resultSizes(rule: FactorRule, size: (factor: string) => number): readonly number[] {
  return (rule.outputs[0] ?? []).map((names) => dimensionSize(names, size));
}

function blockSizes(operator: Operator): { readonly p: number; readonly q: number } {
  const block = numberOf(operator, 'blocksize', 1);
  return { p: block, q: block };
}

/** The number that a Pad adds, if it adds one number; null if it repeats elements. */
function paddingValue(operator: Operator): number | null {
  if (text(operator, 'mode', 'constant') !== 'constant') return null;
  const value = tensor(operator, 'constant_value');
  return value ? (numbersOf(value)[0] ?? 0) : 0;
}

/** Rule texts of the joined tensor and of its parts along an axis. */
function partition(parts: readonly number[], rank: number, axis: number): readonly [string, readonly string[]] {
  const names = dimensionNames(rank);
  const at = (dimension: string) => names.map((name, index) => (index === axis ? dimension : name)).join(' ');
  const equal = parts.every((size) => size === parts[0]) && parts[0] !== 0;
  return equal
    ? [at('(p! d)'), parts.map(() => at('d'))]
    : [at('joined!'), parts.map((_, index) => at(`part${index}!`))];
}

/** How many parts there are: a part of size 1 would leave that open. */
function countOf(parts: readonly number[]): { readonly p: number } {
  return { p: parts.length };
}

function splitAttributes(operator: Operator, rule: FactorRule, size: (factor: string) => number): Attributes {
  const { num_outputs: _, ...rest } = operator.attributes;
  const split = splitSizes(operator).map((part) => (rule.factors.has('d') ? size('d') : part));
  return { ...rest, split };
}
