/**
 * @file Operators that move elements without computing: Transpose, Expand, Slice, Split, Concat, Pad, Tile, and the
 * two that trade channels for space. They are linear; a dimension that is sliced or padded stays whole.
 */

import type { FactorRule } from '../factor-rule.js';
import type { Attributes } from '../graph.js';
import type { OperatorEntry, OperatorView } from '../operator.js';
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
    complete: (view) => ({ ...view.attributes, perm: permutation(view) }),
    infer: (view) => {
      const { dtype, shape } = operand(view, 0);
      return [{ dtype, shape: permutation(view).map((axis) => shape[axis] ?? 1) }];
    },
    rule: (view) => {
      const names = dimensionNames(operand(view, 0).shape.length);
      return `${names.join(' ')} -> ${permutation(view)
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
    complete: (view) => ({ ...view.attributes, shape: expandedShape(view) }),
    infer: (view) => [{ dtype: operand(view, 0).dtype, shape: expandedShape(view) }],
    rule: '*a -> *a',
    repeats: true,
    linear: () => [[0]],
    resize: (view, rule, size) => ({ ...view.attributes, shape: resultSizes(rule, size) }),
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
    complete: (view) => {
      const ranges = cuts(view);
      // Counting down, an end before the first element can only be written from the back.
      const end = ({ axis, end }: SlicedAxis) => (end < 0 ? -1 - (operand(view, 0).shape[axis] ?? 1) : end);
      return {
        ...view.attributes,
        starts: ranges.map(({ start }) => start),
        ends: ranges.map(end),
        axes: ranges.map(({ axis }) => axis),
        steps: ranges.map(({ step }) => step),
      };
    },
    infer: (view) => {
      const { dtype, shape } = operand(view, 0);
      const sizes = [...shape];
      for (const { axis, size } of cuts(view)) sizes[axis] = size;
      return [{ dtype, shape: sizes }];
    },
    rule: (view) => {
      const names = dimensionNames(operand(view, 0).shape.length);
      const cut = new Map(cuts(view).flatMap((entry) => (entry.whole ? [] : [[entry.axis, entry]])));
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
    resize: (view, rule, size) => {
      const starts = [...neededIntegers(view, 'starts')];
      const ends = [...neededIntegers(view, 'ends')];
      for (const [index, { axis, whole, part }] of cuts(view).entries()) {
        const local = resultSizes(rule, size)[axis] ?? 1;
        if (whole) ends[index] = local;
        else if (part !== null) [starts[index], ends[index]] = [part * local, (part + 1) * local];
      }
      return { ...view.attributes, starts, ends };
    },
    work: moves,
    note: 'A sliced dimension is not sharded, unless the slice is one of several equal parts.',
  }),
  entry({
    op: 'Split',
    family: 'view',
    constantInputs: [{ index: 1, attribute: 'split', form: 'ints' }],
    complete: (view) => {
      const { num_outputs: _, ...rest } = axisFromFront(0)(view);
      return { ...rest, split: splitSizes({ ...view, attributes: rest }) };
    },
    infer: (view) => {
      const { dtype, shape } = operand(view, 0);
      const axis = axisOf(view, 'axis', shape.length, 0);
      const parts = splitSizes(view);
      if (parts.reduce((sum, size) => sum + size, 0) !== shape[axis] || parts.length !== view.outputCount)
        throw mismatch(view, `dimension ${axis} does not split into ${parts.join(' + ')}`);
      return parts.map((size) => ({ dtype, shape: shape.map((old, index) => (index === axis ? size : old)) }));
    },
    rule: (view) => {
      const rank = operand(view, 0).shape.length;
      const parts = splitSizes(view);
      const [joined, single] = partition(parts, rank, axisOf(view, 'axis', rank, 0));
      return bindRule(`${joined} -> ${single.join(', ')}`, view, countOf(parts));
    },
    linear: () => [[0]],
    resize: (view, rule, size) => splitAttributes(view, rule, size),
    work: moves,
    note: 'Unequal parts: the split dimension is not sharded. Equal parts: each part may be sharded.',
  }),
  entry({
    op: 'Concat',
    family: 'view',
    complete: axisFromFront(0),
    infer: (view) => {
      const first = operand(view, 0);
      const axis = axisOf(view, 'axis', first.shape.length, 0);
      const fits = view.inputs.every(
        (type) =>
          type?.shape.length === first.shape.length &&
          type.shape.every((size, index) => index === axis || size === first.shape[index]),
      );
      if (!fits) throw mismatch(view, `its operands must agree in all dimensions but ${axis}`);
      const total = view.inputs.reduce((sum, type) => sum + (type?.shape[axis] ?? 0), 0);
      return [{ dtype: first.dtype, shape: first.shape.map((size, index) => (index === axis ? total : size)) }];
    },
    rule: (view) => {
      const rank = operand(view, 0).shape.length;
      const axis = axisOf(view, 'axis', rank, 0);
      const parts = view.inputs.map((type) => type?.shape[axis] ?? 0);
      const [joined, single] = partition(parts, rank, axis);
      return bindRule(`${single.join(', ')} -> ${joined}`, view, countOf(parts));
    },
    linear: (view) => [presentOperands(view)],
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
    complete: (view) => paddedBut(view, new Set()),
    infer: (view) => {
      const { dtype, shape } = operand(view, 0);
      return [{ dtype, shape: padding(view).map(([before, after], axis) => before + (shape[axis] ?? 1) + after) }];
    },
    rule: (view) => {
      const fill = paddingValue(view);
      const [before, after] = fill === null ? ['x.!', 'y.!'] : ['x.~y.', 'y.'];
      const side = (form: string) =>
        padding(view).map(([low, high], axis) =>
          low === 0 && high === 0 ? `a${axis}` : form.replaceAll('.', `${axis}`),
        );
      const windows = padding(view).map(
        ([low], axis) => [`x${axis}`, { stride: 1, before: low, reach: 1, up: 1, fill: fill ?? 0 }] as const,
      );
      return bindRule(`${side(before).join(' ')} -> ${side(after).join(' ')}`, view, {}, Object.fromEntries(windows));
    },
    bordered: paddedBut,
    linear: (view) => {
      const value = tensor(view, 'constant_value');
      const zero = !value || numbersOf(value).every((number) => number === 0);
      return text(view, 'mode', 'constant') !== 'constant' || zero ? [[0]] : [];
    },
    work: moves,
    note: 'A dimension that is padded with its own elements is not sharded.',
  }),
  entry({
    op: 'Tile',
    family: 'view',
    constantInputs: [{ index: 1, attribute: 'repeats', form: 'ints' }],
    infer: (view) => {
      const { dtype, shape } = operand(view, 0);
      const repeats = neededIntegers(view, 'repeats');
      if (repeats.length !== shape.length) throw mismatch(view, 'one repeat per dimension is needed');
      return [{ dtype, shape: shape.map((size, axis) => size * (repeats[axis] ?? 1)) }];
    },
    repeats: true,
    // Repeats are a factor of the result alone: a shard repeats less often.
    rule: (view) => {
      const names = dimensionNames(operand(view, 0).shape.length);
      const repeats = neededIntegers(view, 'repeats');
      const repeated = names.map((name, axis) => ((repeats[axis] ?? 1) === 1 ? name : `(r${axis} ${name})`));
      return `${names.join(' ')} -> ${repeated.join(' ')}`;
    },
    linear: () => [[0]],
    resize: (view, rule, size) => ({
      ...view.attributes,
      repeats: neededIntegers(view, 'repeats').map((_, axis) => (rule.factors.has(`r${axis}`) ? size(`r${axis}`) : 1)),
    }),
    work: moves,
  }),
  entry({
    op: 'DepthToSpace',
    family: 'view',
    infer: (view) => {
      const [n = 1, c = 1, h = 1, w = 1] = ofRank(view, 0, 4).shape;
      const block = numberOf(view, 'blocksize', 1);
      if (c % block ** 2 !== 0) throw mismatch(view, `${c} channels do not make blocks of ${block}`);
      return [{ dtype: operand(view, 0).dtype, shape: [n, c / block ** 2, h * block, w * block] }];
    },
    rule: (view) => {
      const channels = text(view, 'mode', 'DCR') === 'DCR' ? '(p! q! c)' : '(c p! q!)';
      return bindRule(`n ${channels} h w -> n c (h p!) (w q!)`, view, blockSizes(view));
    },
    linear: () => [[0]],
    work: moves,
    note: 'The positions inside a block are not sharded.',
  }),
  entry({
    op: 'SpaceToDepth',
    family: 'view',
    infer: (view) => {
      const [n = 1, c = 1, h = 1, w = 1] = ofRank(view, 0, 4).shape;
      const block = numberOf(view, 'blocksize', 1);
      if (h % block !== 0 || w % block !== 0) throw mismatch(view, `${h}×${w} does not make blocks of ${block}`);
      return [{ dtype: operand(view, 0).dtype, shape: [n, c * block ** 2, h / block, w / block] }];
    },
    rule: (view) => bindRule('n c (h p!) (w q!) -> n (p! q! c) h w', view, blockSizes(view)),
    linear: () => [[0]],
    work: moves,
    note: 'The positions inside a block are not sharded.',
  }),
];

export const movementEntries = withGradients(entries, MOVEMENT_GRADIENTS);

/** The shape that Expand's operand broadcasts to, whichever of both is longer. */
function expandedShape(view: OperatorView): readonly number[] {
  return broadcast(view, [operand(view, 0).shape, neededIntegers(view, 'shape')]);
}

/** Pad's attributes with the pads of all dimensions, and none where a dimension's factor is in `cut`. */
function paddedBut(view: OperatorView, cut: ReadonlySet<string>): Attributes {
  const { axes: _, ...rest } = view.attributes;
  const pads = [0, 1].flatMap((end) => padding(view).map((both, axis) => (cut.has(`x${axis}`) ? 0 : both[end])));
  return { ...rest, pads: pads.map(Number) };
}

/** Sizes of a result's dimensions at other factor sizes. */
function resultSizes(rule: FactorRule, size: (factor: string) => number): readonly number[] {
  return (rule.outputs[0] ?? []).map((names) => dimensionSize(names, size));
}

function blockSizes(view: OperatorView): { readonly p: number; readonly q: number } {
  const block = numberOf(view, 'blocksize', 1);
  return { p: block, q: block };
}

/** The number that a Pad adds, if it adds one number; null if it repeats elements. */
function paddingValue(view: OperatorView): number | null {
  if (text(view, 'mode', 'constant') !== 'constant') return null;
  const value = tensor(view, 'constant_value');
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

function splitAttributes(view: OperatorView, rule: FactorRule, size: (factor: string) => number): Attributes {
  const { num_outputs: _, ...rest } = view.attributes;
  const split = splitSizes(view).map((part) => (rule.factors.has('d') ? size('d') : part));
  return { ...rest, split };
}
