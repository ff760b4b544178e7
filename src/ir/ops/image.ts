/**
 * @file Resize: dimensions that keep their size pass; those that change it stay whole, since every new position needs
 * its neighbours.
 */
import type { Operator, OperatorEntry } from '../operator.js';
import { dimensionSize } from '../rule-text.js';
import { numbersOf } from './constants.js';
import { entry, perElement } from './entry.js';
import { resizeGradient } from './image-gradient.js';
import { checkedAxis, dimensionNames, integers, mismatch, ofRank, operand, result, tensor, text } from './operands.js';
import { differentiable } from './operator-gradient.js';
import { gridSampleGradient } from './sampling-gradient.js';

export const imageEntries: readonly OperatorEntry[] = [
  differentiable(
    entry({
      op: 'Resize',
      family: 'other',
      constantInputs: [
        { index: 1, attribute: 'roi', form: 'tensor' },
        { index: 2, attribute: 'scales', form: 'tensor' },
        { index: 3, attribute: 'sizes', form: 'ints' },
      ],
      infer: (operator) => [{ dtype: operand(operator, 0).dtype, shape: resizedShape(operator) }],
      rule: (operator) => {
        const { shape } = operand(operator, 0);
        const local = isLocal(operator);
        const passes = (axis: number) => local && isKept(operator, axis);
        const side = (prefix: string) =>
          shape
            .map((_, axis) => {
              if (passes(axis)) return `a${axis}`;
              if (local && isRepeated(operator, axis)) return prefix === 'x' ? `a${axis}` : `(a${axis} r${axis}!)`;
              return `${prefix}${axis}!`;
            })
            .join(' ');
        return `${side('x')} -> ${side('y')}`;
      },
      linear: (operator) => (isCropped(operator) ? [] : [[0]]),
      resize: (operator, rule, size) => {
        const sizes = integers(operator, 'sizes');
        if (!sizes || !isLocal(operator)) return operator.attributes;
        const axes = resizedAxes(operator);
        const local = sizes.map((_, index) => dimensionSize(rule.outputs[0]?.[axes[index] ?? 0] ?? [], size));
        return { ...operator.attributes, sizes: local };
      },
      work: perElement(8),
      note: 'Dimensions whose size changes are not sharded, unless each position is repeated (`nearest`, integer factor).',
    }),
    (write) => resizeGradient(write, resizedAxes(write.operator), (axis) => isKept(write.operator, axis)),
  ),
  differentiable(
    entry({
      op: 'GridSample',
      readsPositions: true,
      family: 'indexing',
      infer: (operator) => {
        const [x, grid] = [ofRank(operator, 0, 3, true), operand(operator, 1)];
        if (grid.shape.length !== x.shape.length) throw mismatch(operator, 'its grid must have the rank of its image');
        return [{ dtype: x.dtype, shape: [...x.shape.slice(0, 2), ...grid.shape.slice(1, -1)] }];
      },
      rule: (operator) => {
        const places = dimensionNames(operand(operator, 0).shape.length - 2, 'p').join(' ');
        return `n c *x!, n ${places} g! -> n c ${places}`;
      },
      linear: () => [[0]],
      work: perElement(8),
      note: 'The positions of the image are not sharded: a sample may come from anywhere.',
    }),
    gridSampleGradient,
  ),
];

/** Whether the image is cropped: that may reach outside the image, where values are given ones. */
function isCropped(operator: Operator): boolean {
  return text(operator, 'coordinate_transformation_mode', 'half_pixel') === 'tf_crop_and_resize';
}

/** Whether an axis is unchanged: its size alone does not show this, since a scale near 1 may have been rounded. */
function isKept(operator: Operator, axis: number): boolean {
  const index = resizedAxes(operator).indexOf(axis);
  if (index < 0) return true;
  const [scales, sizes] = [tensor(operator, 'scales'), integers(operator, 'sizes') ?? []];
  if (isCropped(operator) || operand(operator, 0).shape[axis] !== result(operator, 0).shape[axis]) return false;
  if (sizes.length > 0) return text(operator, 'keep_aspect_ratio_policy', 'stretch') === 'stretch';
  return !scales || numbersOf(scales)[index] === 1;
}

/**
 * Whether an axis may be sharded. With a kept aspect ratio the result may have other sizes than the requested ones; a shard
 * would find another ratio.
 */
function isLocal(operator: Operator): boolean {
  return !isCropped(operator) && text(operator, 'keep_aspect_ratio_policy', 'stretch') === 'stretch';
}

/** Whether each position of an axis is repeated, with its copies adjacent. */
function isRepeated(operator: Operator, axis: number): boolean {
  const [size, resized] = [operand(operator, 0).shape[axis] ?? 1, result(operator, 0).shape[axis] ?? 1];
  const [scales, index] = [tensor(operator, 'scales'), resizedAxes(operator).indexOf(axis)];
  const by =
    (integers(operator, 'sizes') ?? []).length > 0 || !scales ? resized / size : (numbersOf(scales)[index] ?? 1);
  if (resized !== by * size || !Number.isInteger(by) || text(operator, 'mode', 'nearest') !== 'nearest') return false;
  const rounding = text(operator, 'nearest_mode', 'round_prefer_floor');
  const places = text(operator, 'coordinate_transformation_mode', 'half_pixel');
  return places === 'asymmetric' ? rounding === 'floor' : places.endsWith('half_pixel') && rounding.startsWith('round');
}

/** The axes that sizes and scales refer to. */
function resizedAxes(operator: Operator): readonly number[] {
  const { shape } = operand(operator, 0);
  return (
    integers(operator, 'axes')?.map((axis) => checkedAxis(operator, axis, shape.length)) ?? shape.map((_, axis) => axis)
  );
}

function resizedShape(operator: Operator): readonly number[] {
  const { shape } = operand(operator, 0);
  const axes = resizedAxes(operator);
  const scales = tensor(operator, 'scales');
  const sizes = integers(operator, 'sizes');
  const result = [...shape];
  if (sizes && sizes.length > 0) {
    const policy = text(operator, 'keep_aspect_ratio_policy', 'stretch');
    const ratios = axes.map((axis, index) => (sizes[index] ?? 1) / (shape[axis] ?? 1));
    const ratio = policy === 'not_larger' ? Math.min(...ratios) : Math.max(...ratios);
    for (const [index, axis] of axes.entries())
      result[axis] = policy === 'stretch' ? (sizes[index] ?? 1) : Math.round(ratio * (shape[axis] ?? 1));
    return result;
  }
  if (!scales) throw mismatch(operator, 'its scales or sizes must be constants');
  const factors = numbersOf(scales);
  if (factors.length !== axes.length) throw mismatch(operator, `it has ${factors.length} scales`);
  for (const [index, axis] of axes.entries()) result[axis] = Math.floor((shape[axis] ?? 1) * (factors[index] ?? 1));
  return result;
}
