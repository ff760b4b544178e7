/**
 * @file RoiAlign (He et al. 2017) and CropAndResize, which sample regions of images on a grid, in plain operators. Samples form
 * rows and columns, so a mean of samples is its image between two matrices, which hold the weight of each pixel:
 *
 *     y[r c p q] = Σ over h w of A[r p h] · x[n(r) c h w] · B[r q w]        A[r p h] = mean over samples u of hat(u − h)
 *
 * With mode max, ONNX Runtime takes the largest share of a single pixel, weight times value, of the four around every sample,
 * not the largest mean of four; so does ONNX's definition.
 */
import { AutoparError } from '../error.js';
import { elementCount } from '../graph.js';
import { numberOf, operand, result, text } from './operands.js';
import type { OperatorWriter } from './operator-writer.js';
import { alignedAxis, type SampledAxis } from './region-samples.js';

/** Indices of the operands. */
const [IMAGE, OWNERS] = [0, 2];

export function plainRoiAlign(write: OperatorWriter): void {
  const { operator } = write;
  const [rows, columns] = [alignedAxis(write, 2), alignedAxis(write, 3)];
  if (text(operator, 'mode', 'avg') === 'avg') {
    plainMeans(write, rows, columns);
    return;
  }
  if (numberOf(operator, 'sampling_ratio', 0) <= 0)
    throw new AutoparError(
      'no-gradient',
      'input',
      `${operator.op} ${operator.name}: mode max with a sample count that depends on the region has no gradient`,
      { node: operator.name },
      'Export the model with a sampling_ratio, or with mode avg.',
    );
  plainLargest(write, rows, columns);
}

/** Means of samples; where CropAndResize looks outside, zero. */
export function plainMeans(write: OperatorWriter, rows: SampledAxis, columns: SampledAxis): void {
  const type = write.sumType;
  const spread = (name: string, place: number) => write.add('Unsqueeze', [name], { axes: [place] });
  const own = write.add('Unsqueeze', [ownersOf(write)], { axes: [1, 3] });
  const upright = write.add('Mul', [spread(weightsOf(write, rows), 2), own]);
  const pixels = write.inType(`in${IMAGE}`, operand(write.operator, IMAGE).dtype, type);
  const across = write.add('Einsum', [upright, pixels], { equation: 'rynh,nchw->rcyw' });
  const level = write.add('Transpose', [weightsOf(write, columns)], { perm: [0, 2, 1] });
  write.makes(0, write.add('MatMul', [across, spread(level, 1)]), type);
}

/** 1 where an image is a region's own: [region, image]. */
function ownersOf(write: OperatorWriter): string {
  const owner = write.cast(`in${OWNERS}`, 'int64');
  const column = write.add('Unsqueeze', [owner], { axes: [1] });
  const row = write.positions([1, operand(write.operator, IMAGE).shape[0] ?? 1], 1);
  return write.cast(write.add('Equal', [column, row]), write.sumType);
}

/** [region, result, pixel]: the weight of each pixel of an axis. */
function weightsOf(write: OperatorWriter, axis: SampledAxis): string {
  const at = write.on(write.sumType);
  const pixels = write.cast(write.positions([1, 1, 1, axis.size], 3), write.sumType);
  const near = at.of('Max', at.sub(1, at.of('Abs', at.sub(axis.place, pixels))), 0);
  const counted = at.mul(at.where(axis.inside, near, 0), axis.share);
  return write.add('ReduceSum', [counted], { axes: [2], keepdims: 0 });
}

/** The pixels before and after each sample of an axis: [region, (result, sample, side)]. */
interface Sides {
  readonly count: number;
  /** int64. */
  readonly places: string;
  readonly weights: string;
}

function plainLargest(write: OperatorWriter, rows: SampledAxis, columns: SampledAxis): void {
  const { operator } = write;
  const type = write.sumType;
  const { dtype, shape } = operand(operator, IMAGE);
  const [images = 1, channels = 1, height = 1, width = 1] = shape;
  const [regions = 1, , tall = 1, wide = 1] = result(operator, 0).shape;
  const [upright, level] = [sidesOf(write, rows), sidesOf(write, columns)];
  const down = (name: string) => write.add('Unsqueeze', [name], { axes: [2] });
  const across = (name: string) => write.add('Unsqueeze', [name], { axes: [1] });
  const places = write.on('int64');
  const owner = write.cast(write.add('Unsqueeze', [`in${OWNERS}`], { axes: [1, 2] }), 'int64');
  const row = places.add(places.mul(owner, height), down(upright.places));
  const place = places.add(places.mul(row, width), across(level.places));
  const weight = write.on(type).mul(down(upright.weights), across(level.weights));
  const transposed = write.add('Transpose', [write.inType(`in${IMAGE}`, dtype, type)], { perm: [0, 2, 3, 1] });
  const pixels = write.add('Reshape', [transposed], { shape: [images * height * width, channels] });
  const found = write.add('Gather', [pixels, place], { axis: 0 });
  const each = write.on(type).mul(found, write.add('Unsqueeze', [weight], { axes: [3] }));
  const form = [regions, tall, upright.count / tall, wide, level.count / wide, channels];
  const shares = write.add('Reshape', [each], { shape: form });
  const most = write.add('ReduceMax', [shares], { axes: [2, 4], keepdims: 0 });
  write.makes(0, write.add('Transpose', [most], { perm: [0, 3, 1, 2] }), type);
}

function sidesOf(write: OperatorWriter, { inside, place, size, sizes }: SampledAxis): Sides {
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
