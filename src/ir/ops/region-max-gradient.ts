/**
 * @file The gradient of RoiAlign with mode max. ONNX Runtime takes the largest share of a single pixel, weight times value, of
 * the four around every sample, not the largest mean of four; so does ONNX's definition. What was largest gets the gradient: its
 * pixel, and through its weight the place of its sample. Where several are, they share it.
 */
import { elementCount } from '../graph.js';
import { constant } from './constants.js';
import { operand, result } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import { giveBounds } from './region-gradient.js';
import type { SampledAxis } from './region-samples.js';

/** Places of the operands. */
const [IMAGE, REGIONS, OWNERS] = [0, 1, 2];

/** The pixels before and behind each sample of an axis: [region, (result, sample, side)]. */
interface Sides {
  readonly count: number;
  /** int64. */
  readonly places: string;
  readonly weights: string;
}

export function largestShareGradient(write: OperatorGradient, rows: SampledAxis, columns: SampledAxis): void {
  const { view } = write;
  const type = write.sumType;
  const { dtype, shape } = operand(view, IMAGE);
  const [images = 1, channels = 1, height = 1, width = 1] = shape;
  const [regions = 1, , tall = 1, wide = 1] = result(view, 0).shape;
  const [upright, level] = [sidesOf(write, rows), sidesOf(write, columns)];
  const down = (name: string) => write.add('Unsqueeze', [name], { axes: [2] });
  const across = (name: string) => write.add('Unsqueeze', [name], { axes: [1] });
  const places = write.on('int64');
  const owner = write.cast(write.add('Unsqueeze', [`in${OWNERS}`], { axes: [1, 2] }), 'int64');
  const row = places.add(places.mul(owner, height), down(upright.places));
  const place = places.add(places.mul(row, width), across(level.places));
  const weight = write.on(type).mul(down(upright.weights), across(level.weights));
  const table = [images * height * width, channels];
  const own = write.inType(`in${IMAGE}`, dtype, type);
  const turned = write.add('Transpose', [own], { perm: [0, 2, 3, 1] });
  const pixels = write.add('Reshape', [turned], { shape: table });
  const each = write.on(type);
  const found = write.add('Gather', [pixels, place], { axis: 0 });
  const weights = write.add('Unsqueeze', [weight], { axes: [3] });
  const apart = write.on(type);
  const form = [regions, tall, upright.count / tall, wide, level.count / wide, channels];
  const shares = write.add('Reshape', [each.mul(found, weights)], { shape: form });
  const most = write.add('ReduceMax', [shares], { axes: [2, 4], keepdims: 1 });
  const isMost = apart.count(apart.of('Equal', shares, most));
  const slope = write.inType('grad0', dtype, type);
  const last = write.add('Transpose', [slope], { perm: [0, 2, 3, 1] });
  const given = write.add('Unsqueeze', [last], { axes: [2, 4] });
  const split = write.on(type).div(given, apart.sum(isMost, [2, 4]));
  const owed = write.add('Reshape', [apart.mul(isMost, split)], {
    shape: [regions, upright.count, level.count, channels],
  });
  if (write.wants(IMAGE)) {
    const zeros = write.add('ConstantOfShape', [], { shape: table, value: constant(type, [0], [1]) });
    const tuples = write.add('Unsqueeze', [place], { axes: [3] });
    const laid = write.add('ScatterND', [zeros, tuples, each.mul(owed, weights)], { reduction: 'add' });
    const back = write.add('Reshape', [laid], { shape: [images, height, width, channels] });
    write.become(IMAGE, write.add('Transpose', [back], { perm: [0, 3, 1, 2] }), type);
  }
  if (!write.wants(REGIONS)) return;
  const moved = write.add('ReduceSum', [each.mul(owed, found)], { axes: [3], keepdims: 0 });
  const of = (axis: SampledAxis, others: string, dim: 1 | 2) => {
    const product = write.on(type).mul(moved, others);
    const sum = write.add('ReduceSum', [product], { axes: [3 - dim], keepdims: 0 });
    return sampleSlope(write, axis, sum);
  };
  giveBounds(write, [of(rows, across(level.weights), 1), of(columns, down(upright.weights), 2)]);
}

function sidesOf(write: OperatorGradient, { inside, place, size, sizes }: SampledAxis): Sides {
  const at = write.on(write.sumType);
  const low = at.of('Floor', place);
  const rest = at.sub(place, low);
  const flat = (parts: readonly string[]) => {
    const joined = write.add('Concat', parts, { axis: 3 });
    return write.add('Reshape', [joined], { shape: [sizes[0] ?? 1, elementCount(sizes.slice(1)) * 2] });
  };
  const places = flat([low, at.of('Min', at.add(low, 1), size - 1)]);
  return {
    count: elementCount(sizes.slice(1)) * 2,
    places: write.cast(places, 'int64'),
    weights: flat([at.sub(1, rest), rest].map((weight) => at.where(inside, weight, 0))),
  };
}

/** Of the weights' gradient, what a sample's place gets: the one behind grows as the one before falls. */
function sampleSlope(write: OperatorGradient, axis: SampledAxis, owed: string) {
  const { inside, sizes } = axis;
  const apart = write.add('Reshape', [owed], { shape: [...sizes.slice(0, 3), 2] });
  const [before, behind] = [0, 1].map((side) =>
    write.add('Slice', [apart], { starts: [side], ends: [side + 1], axes: [3], steps: [1] }),
  );
  const at = write.on(write.sumType);
  return { axis, slope: at.where(inside, at.sub(behind ?? '', before ?? ''), 0) };
}
