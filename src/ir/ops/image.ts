/**
 * @file Resize: dimensions that keep their size pass; those that change it stay whole, since every new position needs
 * its neighbours.
 */
import type { OperatorEntry, OperatorView } from '../operator.js';
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
      infer: (view) => [{ dtype: operand(view, 0).dtype, shape: resizedShape(view) }],
      rule: (view) => {
        const { shape } = operand(view, 0);
        const local = isLocal(view);
        const passes = (axis: number) => local && isKept(view, axis);
        const side = (prefix: string) =>
          shape
            .map((_, axis) => {
              if (passes(axis)) return `a${axis}`;
              if (local && isRepeated(view, axis)) return prefix === 'x' ? `a${axis}` : `(a${axis} r${axis}!)`;
              return `${prefix}${axis}!`;
            })
            .join(' ');
        return `${side('x')} -> ${side('y')}`;
      },
      linear: (view) => (isCropped(view) ? [] : [[0]]),
      resize: (view, rule, size) => {
        const sizes = integers(view, 'sizes');
        if (!sizes || !isLocal(view)) return view.attributes;
        const axes = resizedAxes(view);
        const local = sizes.map((_, index) => dimensionSize(rule.outputs[0]?.[axes[index] ?? 0] ?? [], size));
        return { ...view.attributes, sizes: local };
      },
      work: perElement(8),
      note: 'Dimensions whose size changes are not sharded, unless each position is repeated (`nearest`, integer factor).',
    }),
    (write) => resizeGradient(write, resizedAxes(write.view), (axis) => isKept(write.view, axis)),
  ),
  differentiable(
    entry({
      op: 'GridSample',
      readsPositions: true,
      family: 'indexing',
      infer: (view) => {
        const [x, grid] = [ofRank(view, 0, 3, true), operand(view, 1)];
        if (grid.shape.length !== x.shape.length) throw mismatch(view, 'its grid must have the rank of its image');
        return [{ dtype: x.dtype, shape: [...x.shape.slice(0, 2), ...grid.shape.slice(1, -1)] }];
      },
      rule: (view) => {
        const places = dimensionNames(operand(view, 0).shape.length - 2, 'p').join(' ');
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
function isCropped(view: OperatorView): boolean {
  return text(view, 'coordinate_transformation_mode', 'half_pixel') === 'tf_crop_and_resize';
}

/** Whether an axis is unchanged: its size alone does not show this, since a scale near 1 may have been rounded. */
function isKept(view: OperatorView, axis: number): boolean {
  const index = resizedAxes(view).indexOf(axis);
  if (index < 0) return true;
  const [scales, sizes] = [tensor(view, 'scales'), integers(view, 'sizes') ?? []];
  if (isCropped(view) || operand(view, 0).shape[axis] !== result(view, 0).shape[axis]) return false;
  if (sizes.length > 0) return text(view, 'keep_aspect_ratio_policy', 'stretch') === 'stretch';
  return !scales || numbersOf(scales)[index] === 1;
}

/**
 * Whether an axis may be sharded. With a kept aspect ratio the result may have other sizes than the requested ones; a shard
 * would find another ratio.
 */
function isLocal(view: OperatorView): boolean {
  return !isCropped(view) && text(view, 'keep_aspect_ratio_policy', 'stretch') === 'stretch';
}

/** Whether each position of an axis is repeated, with its copies adjacent. */
function isRepeated(view: OperatorView, axis: number): boolean {
  const [size, resized] = [operand(view, 0).shape[axis] ?? 1, result(view, 0).shape[axis] ?? 1];
  const [scales, index] = [tensor(view, 'scales'), resizedAxes(view).indexOf(axis)];
  const by = (integers(view, 'sizes') ?? []).length > 0 || !scales ? resized / size : (numbersOf(scales)[index] ?? 1);
  if (resized !== by * size || !Number.isInteger(by) || text(view, 'mode', 'nearest') !== 'nearest') return false;
  const rounding = text(view, 'nearest_mode', 'round_prefer_floor');
  const places = text(view, 'coordinate_transformation_mode', 'half_pixel');
  return places === 'asymmetric' ? rounding === 'floor' : places.endsWith('half_pixel') && rounding.startsWith('round');
}

/** The axes that sizes and scales refer to. */
function resizedAxes(view: OperatorView): readonly number[] {
  const { shape } = operand(view, 0);
  return integers(view, 'axes')?.map((axis) => checkedAxis(view, axis, shape.length)) ?? shape.map((_, axis) => axis);
}

function resizedShape(view: OperatorView): readonly number[] {
  const { shape } = operand(view, 0);
  const axes = resizedAxes(view);
  const scales = tensor(view, 'scales');
  const sizes = integers(view, 'sizes');
  const result = [...shape];
  if (sizes && sizes.length > 0) {
    const policy = text(view, 'keep_aspect_ratio_policy', 'stretch');
    const ratios = axes.map((axis, index) => (sizes[index] ?? 1) / (shape[axis] ?? 1));
    const ratio = policy === 'not_larger' ? Math.min(...ratios) : Math.max(...ratios);
    for (const [index, axis] of axes.entries())
      result[axis] = policy === 'stretch' ? (sizes[index] ?? 1) : Math.round(ratio * (shape[axis] ?? 1));
    return result;
  }
  if (!scales) throw mismatch(view, 'its scales or sizes must be constants');
  const factors = numbersOf(scales);
  if (factors.length !== axes.length) throw mismatch(view, `it has ${factors.length} scales`);
  for (const [index, axis] of axes.entries()) result[axis] = Math.floor((shape[axis] ?? 1) * (factors[index] ?? 1));
  return result;
}
