/**
 * @file The gradient of GridSample. With u the place of a sample in the image, i = floor u and t = u − i, along each axis,
 *
 *     y = Σ over corners of x[i + corner] · Π (corner ? t : 1 − t)
 *
 * so the image gets the gradient times the weight of each corner (a scatter that adds), and the place gets the gradient times
 * the difference between corners. The nearest neighbour is one corner of weight one, and the gradient of its place is zero.
 */
import { AutoparError } from '../error.js';
import { elementCount } from '../graph.js';
import { constant } from './constants.js';
import { numberOf, operand, text } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import type { Arithmetic } from './operator-writer.js';

/** One axis of the image: the number of positions, those of the samples on it, and their derivative by the grid. */
export interface AxisSamples {
  readonly size: number;
  readonly low: string;
  /** u − floor u; null for the nearest neighbour. */
  readonly rest: string | null;
  /** du/dgrid, a tensor or a number. */
  readonly derivative: string | number;
}

export function gridSampleGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  const [n = 1, c = 1, ...sizes] = shape;
  const mode = text(operator, 'mode', 'linear');
  if (/cubic/.test(mode))
    throw new AutoparError(
      'no-gradient',
      'input',
      `${operator.op} ${operator.name}: sampling by cubic curves has no gradient`,
      { node: operator.name },
      'export the model with mode linear, or freeze the parameters before it (--frozen)',
    );
  const isNearest = mode === 'nearest';
  const axes = sizes.map((size, axis) => alongAxis(write, { size, component: sizes.length - 1 - axis, isNearest }));
  const points = elementCount(operand(operator, 1).shape.slice(1, -1));
  const resultGradient = write.add('Reshape', ['grad0'], { shape: [n, c, points] });
  const all = elementCount(sizes);
  const pixels = write.wants(1) ? write.add('Reshape', ['in0'], { shape: [n, c, all] }) : null;
  const at = write.on(dtype);
  const asRow = (name: string) => write.add('Reshape', [name], { shape: [n, 1, points] });
  let laid = write.wants(0)
    ? write.add('ConstantOfShape', [], { shape: [n, c, all], value: constant(dtype, [0], [1]) })
    : null;
  const moved: (string | null)[] = sizes.map(() => null);
  const corners = isNearest ? 1 : 2 ** sizes.length;
  for (let corner = 0; corner < corners; corner++) {
    const far = sizes.map((_, axis) => ((corner >> axis) & 1) === 1);
    const { index, inside } = cornerPlace(axes, far, at);
    const count = at.count(inside);
    const weight = (without: number | null) => cornerWeight(axes, far, at, { count, without });
    const spread = write.add('Expand', [asRow(index)], { shape: [n, c, points] });
    if (laid !== null) {
      const part = write.add('Mul', [resultGradient, asRow(weight(null))]);
      laid = write.add('ScatterElements', [laid, spread, part], { axis: 2, reduction: 'add' });
    }
    if (pixels === null || isNearest) continue;
    const taken = write.add('GatherElements', [pixels, spread], { axis: 2 });
    const product = write.add('Mul', [taken, resultGradient]);
    const value = write.add('ReduceSum', [product], {
      axes: [1],
      keepdims: 0,
    });
    const shaped = write.add('Reshape', [value], { shape: operand(operator, 1).shape.slice(0, -1) });
    for (const axis of sizes.keys()) {
      const part = at.mul(shaped, weight(axis));
      const signed = far[axis] ? part : at.of('Neg', part);
      const before = moved[axis];
      moved[axis] = before ? at.add(before, signed) : signed;
    }
  }
  if (laid !== null) write.become(0, write.add('Reshape', [laid], { shape }), dtype);
  if (!write.wants(1)) return;
  if (isNearest) {
    write.none(1);
    return;
  }
  // The grid's first component is the image's last axis.
  const last = operand(write.operator, 1).shape.length - 1;
  const parts = [...axes.entries()].reverse().map(([axis, { derivative: factor }]) => {
    const own = at.mul(moved[axis] ?? 0, factor);
    return write.add('Unsqueeze', [own], { axes: [last] });
  });
  write.become(1, write.add('Concat', parts, { axis: last }), dtype);
}

/** The positions of samples on one axis of the image. */
function alongAxis(
  write: OperatorGradient,
  { size, component, isNearest }: { readonly size: number; readonly component: number; readonly isNearest: boolean },
): AxisSamples {
  const { operator } = write;
  const { dtype } = operand(operator, 0);
  const at = write.on(dtype);
  const isAligned = numberOf(operator, 'align_corners', 0) !== 0;
  const index = write.tensor(constant('int64', [component], []));
  const own = write.inType('in1', operand(operator, 1).dtype, dtype);
  const given = write.add('Gather', [own, index], { axis: -1 });
  const scale = isAligned ? (size - 1) / 2 : size / 2;
  let place = at.add(at.mul(at.add(given, 1), scale), isAligned ? 0 : -0.5);
  let derivative: string | number = scale;
  const padding = text(operator, 'padding_mode', 'zeros');
  if (padding === 'reflection') {
    const [low, high] = isAligned ? [0, size - 1] : [-0.5, size - 0.5];
    // A zigzag between both ends: its distance from the first one grows and falls alternately.
    const span = high - low;
    const from = at.of('Abs', at.sub(place, low));
    const turns = at.of('Floor', at.div(from, span || 1));
    const rest = at.sub(from, at.mul(turns, span));
    const even = at.of('Equal', at.sub(turns, at.mul(at.of('Floor', at.div(turns, 2)), 2)), 0);
    const sign = at.mul(at.of('Sign', at.sub(place, low)), at.where(even, 1, -1));
    place = at.add(at.where(even, rest, at.sub(span, rest)), low);
    derivative = at.mul(sign, scale);
  }
  if (padding !== 'zeros') {
    const bounded = at.of('Min', at.of('Max', place, 0), size - 1);
    const isFree = at.count(at.of('Equal', bounded, place));
    place = bounded;
    derivative = at.mul(isFree, derivative);
  }
  if (isNearest) return { size, low: at.of('Round', place), rest: null, derivative: derivative };
  const low = at.of('Floor', place);
  return { size, low, rest: at.sub(place, low), derivative: derivative };
}

/** The weight of a corner, except for the axis left out; `count` is 1 if the corner is inside the image. */
export function cornerWeight(
  axes: readonly AxisSamples[],
  far: readonly boolean[],
  at: Arithmetic,
  { count, without }: { readonly count: string; readonly without: number | null },
): string {
  return axes.reduce((product, { rest }, axis) => {
    if (rest === null || axis === without) return product;
    return at.mul(product, far[axis] ? rest : at.sub(1, rest));
  }, count);
}

/** A corner's position in the flattened image (0 if it is outside), and whether it is inside. */
export function cornerPlace(
  axes: readonly AxisSamples[],
  far: readonly boolean[],
  at: Arithmetic,
): { readonly index: string; readonly inside: string } {
  const whole = at.write.on('int64');
  let inside: string | null = null;
  let flat: string | null = null;
  for (const [axis, { size, low }] of axes.entries()) {
    const place = far[axis] ? at.add(low, 1) : low;
    const within = at.of('And', at.of('GreaterOrEqual', place, 0), at.of('Less', place, size));
    const safe = at.write.cast(at.where(within, place, 0), 'int64');
    flat = flat === null ? safe : whole.add(whole.mul(flat, size), safe);
    inside = inside === null ? within : at.of('And', inside, within);
  }
  return { index: flat ?? '', inside: inside ?? '' };
}
