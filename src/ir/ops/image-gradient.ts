/**
 * @file Resize's gradient. Resizing is linear and goes axis by axis, so along each one it is a matrix, whatever the mode:
 * the result of the operator on the identity. The gradient is multiplied by the transposed matrices.
 */
import { AutoparError } from '../error.js';
import type { Attributes, ConstantTensor } from '../graph.js';
import { constant, numbersOf } from './constants.js';
import { integers, operand, result, tensor, text } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';

/** `axes`: the axes that sizes and scales refer to; `isKept`: whether an axis is unchanged. */
export function resizeGradient(
  write: OperatorGradient,
  axes: readonly number[],
  isKept: (axis: number) => boolean,
): void {
  if (!write.wants(0)) return;
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  let name = 'grad0';
  for (const axis of shape.keys()) {
    if (isKept(axis)) continue;
    // Two factors: positions, and how often each is repeated.
    if (write.rule.outputs[0]?.[axis]?.length === 2) {
      // The gradients of a position's copies are summed.
      const sizes = shape.map((size, at) => (at < axis ? size : (result(operator, 0).shape[at] ?? 1)));
      const parts = [shape[axis] ?? 1, (sizes[axis] ?? 1) / (shape[axis] ?? 1)];
      name = write.add('Reshape', [name], {
        shape: [...sizes.slice(0, axis), ...parts, ...sizes.slice(axis + 1)],
      });
      name = write.add('ReduceSum', [name], { axes: [axis + 1], keepdims: 0 });
      continue;
    }
    const matrix = write.inType(addMatrix(write, axis, axes), 'float32', dtype);
    const last = shape.length - 1;
    if (axis === last) {
      name = write.add('MatMul', [name, matrix]);
      continue;
    }
    const perm = shape.map((_, place) => (place === axis ? last : place === last ? axis : place));
    const moved = write.add('Transpose', [name], { perm });
    const matmul = write.add('MatMul', [moved, matrix]);
    name = write.add('Transpose', [matmul], { perm });
  }
  write.become(0, name, dtype);
}

/** The matrix (new positions, old positions) of one axis, in float32. */
function addMatrix(write: OperatorGradient, axis: number, axes: readonly number[]): string {
  const { operator } = write;
  const [size, resized] = [operand(operator, 0).shape[axis] ?? 1, result(operator, 0).shape[axis] ?? 1];
  const square = [1, 1, size, size];
  const places = [2, 3].map((place) => write.positions(square, place));
  const identity = write.cast(write.add('Equal', places), 'float32');
  const attributes = attributesAlong(write, axis, axes, [1, 1, size, resized]);
  const rows = write.add('Resize', [identity], attributes);
  const matrix = write.add('Reshape', [rows], { shape: [size, resized] });
  return write.add('Transpose', [matrix], { perm: [1, 0] });
}

/** The operator's attributes for rows of one axis: of the last of four dimensions. */
function attributesAlong(
  write: OperatorGradient,
  axis: number,
  axes: readonly number[],
  shape: readonly number[],
): Attributes {
  const { operator } = write;
  const { axes: _, sizes: __, scales: ___, roi: ____, keep_aspect_ratio_policy: _____, ...rest } = operator.attributes;
  const index = axes.indexOf(axis);
  const region = tensor(operator, 'roi');
  const bounds = region ? numbersOf(region) : [];
  const roi =
    bounds.length === 2 * axes.length && bounds.length > 0
      ? { roi: list([0, 0, 0, bounds[index] ?? 0, 1, 1, 1, bounds[index + axes.length] ?? 1]) }
      : {};
  const attributes = { ...rest, ...roi, extrapolation_value: 0 };
  const scales = tensor(operator, 'scales');
  const sizes = integers(operator, 'sizes') ?? [];
  if (sizes.length === 0)
    return { ...attributes, scales: list([1, 1, 1, scales ? (numbersOf(scales)[index] ?? 1) : 1]) };
  if (text(operator, 'keep_aspect_ratio_policy', 'stretch') === 'stretch') return { ...attributes, sizes: shape };
  // The ratio comes from another axis; this axis may have a size that the ratio alone does not give, because of rounding.
  const full = operand(operator, 0).shape;
  const ratios = axes.map((other, position) => (sizes[position] ?? 1) / (full[other] ?? 1));
  const isSmaller = text(operator, 'keep_aspect_ratio_policy', '') === 'not_larger';
  const ratio = isSmaller ? Math.min(...ratios) : Math.max(...ratios);
  const [, , size = 1, resized = 1] = shape;
  if (Math.floor(Math.fround(ratio) * size) !== resized)
    throw new AutoparError(
      'no-gradient',
      'input',
      `Resize ${operator.name}: it keeps the ratio ${ratio} of ${size} positions and rounds them up to ${resized}: ` +
        'there is no gradient',
      { node: operator.name },
      'Give its result sizes, without keep_aspect_ratio_policy.',
    );
  return { ...attributes, scales: list([1, 1, 1, ratio]) };
}

function list(values: readonly number[]): ConstantTensor {
  return constant('float32', values, [values.length]);
}
