/**
 * @file The positions at which RoiAlign and CropAndResize sample the rows or columns of an image, per region, as in ONNX Runtime.
 *
 *     RoiAlign        u = start + p · length / P + (k + ½) · length / (P · K)      K samples for each of P results
 *     CropAndResize   u = start + p · length / (P − 1)                             the middle where P is 1
 *
 * RoiAlign's K is ⌈length / P⌉ if no number is given. A pixel then contributes to at most six samples, which are at most 1 apart
 * and more than ½ if there are several: those are found for each pixel.
 */
import { constant } from './constants.js';
import { numberOf, operand, result, text } from './operands.js';
import type { Arithmetic, OperatorWriter } from './operator-writer.js';

/** Samples along one axis: tensors [region, result, sample, pixel], of size 1 where they are the same for all. */
export interface SampledAxis {
  /** The image's dimension. */
  readonly axis: number;
  readonly size: number;
  /** The shape of the tensors. */
  readonly sizes: readonly number[];
  /** u, moved to the border if it is a little outside. */
  readonly place: string;
  /** Whether u is inside the image, or near enough. */
  readonly inside: string;
  /** The weight of a sample in the mean of the axis. */
  readonly share: string | number;
}

/** More samples than a pixel contributes to, the nearest one before them included. */
const MOST_NEAR = 6;

/** The common start of all axes of an operator. */
class RegionAxis {
  readonly size: number;
  readonly pooled: number;
  readonly regions: number;
  readonly region: Arithmetic;

  constructor(
    readonly write: OperatorWriter,
    readonly axis: number,
  ) {
    const { operator } = write;
    this.size = operand(operator, 0).shape[axis] ?? 1;
    this.regions = result(operator, 0).shape[0] ?? 1;
    this.pooled = result(operator, 0).shape[axis] ?? 1;
    this.region = write.on(write.sumType);
  }

  /** A column of the regions, [region, 1, 1, 1]. */
  column(index: number): string {
    const { write } = this;
    const { dtype } = operand(write.operator, 1);
    const own = write.inType('in1', dtype, write.sumType);
    const place = write.tensor(constant('int64', [index], []));
    const taken = write.add('Gather', [own, place], { axis: 1 });
    return write.add('Unsqueeze', [taken], { axes: [1, 2, 3] });
  }

  /** Numbers of each result and sample, [result, sample, 1]. */
  numbers(samples: number, of: (result: number, sample: number) => number): string {
    const values = Array.from({ length: this.pooled * samples }, (_, at) => of(Math.floor(at / samples), at % samples));
    return this.write.tensor(constant(this.write.sumType, values, [this.pooled, samples, 1]));
  }

  /** 0, 1, … along the pixels. */
  pixels(): string {
    const { write } = this;
    return write.cast(write.positions([1, 1, 1, this.size], 3), write.sumType);
  }
}

/** `axis`: 2 for rows, 3 for columns. */
export function alignedAxis(write: OperatorWriter, axis: 2 | 3): SampledAxis {
  const { operator } = write;
  const own = new RegionAxis(write, axis);
  const { region, size, pooled } = own;
  const scale = numberOf(operator, 'spatial_scale', 1);
  const isHalf = text(operator, 'coordinate_transformation_mode', 'half_pixel') === 'half_pixel';
  const [low, high] = axis === 2 ? [1, 3] : [0, 2];
  const [start, end] = [low, high].map((index) => region.sub(region.mul(own.column(index), scale), isHalf ? 0.5 : 0));
  const raw = region.sub(end ?? '', start ?? '');
  const length = isHalf ? raw : region.of('Max', raw, 1);
  const bin = region.div(length, pooled);
  const perResult = region;
  const order = own.numbers(1, (result) => result);
  const first = perResult.add(start ?? '', perResult.mul(order, bin));
  const ratio = numberOf(operator, 'sampling_ratio', 0);
  const found = ratio > 0 ? given(own, ratio) : nearSamples(own, bin, first);
  const { at, middle, count } = found;
  const free = at.add(first, at.div(at.mul(middle, bin), count));
  const within = at.of('And', at.of('GreaterOrEqual', free, -1), at.of('LessOrEqual', free, size));
  const place = at.of('Min', at.of('Max', free, 0), size - 1);
  return {
    axis,
    size,
    sizes: [own.regions, pooled, ratio > 0 ? ratio : MOST_NEAR, ratio > 0 ? 1 : size],
    place,
    inside: found.exists === null ? within : at.of('And', within, found.exists),
    share: typeof count === 'number' ? 1 / count : region.div(1, count),
  };
}

/** k + ½, how many samples there are for each result, and whether a sample is one of them. */
interface NumberedSamples {
  readonly at: Arithmetic;
  readonly middle: string;
  readonly count: number | string;
  readonly exists: string | null;
}

function given(own: RegionAxis, count: number): NumberedSamples {
  const middle = own.numbers(count, (_, sample) => sample + 0.5);
  return { at: own.region, middle, count, exists: null };
}

/** The samples near each pixel, whatever their number. `first`: where each result's samples begin, `bin`: the size of its bin. */
function nearSamples(own: RegionAxis, bin: string, first: string): NumberedSamples {
  const { region } = own;
  const whole = region.of('Ceil', bin);
  const count = region.of('Max', whole, 1);
  const step = region.div(bin, count);
  // A region of length zero has no samples: any divisor will do.
  const safe = region.where(region.of('Greater', step, 0), step, 1);
  const near = region;
  const from = near.sub(near.sub(own.pixels(), near.add(first, near.mul(step, 0.5))), 1);
  const nearest = near.of('Max', near.of('Floor', near.div(from, safe)), 0);
  const at = region;
  const number = at.add(
    nearest,
    own.numbers(MOST_NEAR, (_, sample) => sample),
  );
  return { at, middle: at.add(number, 0.5), count, exists: at.of('Less', number, whole) };
}

/** `axis`: 2 for rows, 3 for columns. */
export function croppedAxis(write: OperatorWriter, axis: 2 | 3): SampledAxis {
  const { operator } = write;
  const own = new RegionAxis(write, axis);
  const { region, size, pooled } = own;
  const [low, high] = axis === 2 ? [0, 2] : [1, 3];
  const scale = size - 1;
  const [start, end] = [low, high].map((index) => region.mul(own.column(index), scale));
  const length = region.sub(end ?? '', start ?? '');
  const at = region;
  const part = own.numbers(1, (result) => (pooled === 1 ? 0.5 : result / (pooled - 1)));
  const free = at.add(start ?? '', at.mul(part, length));
  const isNearest = text(operator, 'mode', 'bilinear') === 'nearest';
  return {
    axis,
    size,
    sizes: [own.regions, pooled, 1, 1],
    place: isNearest ? at.of('Floor', at.add(free, 0.5)) : free,
    inside: at.of('And', at.of('GreaterOrEqual', free, 0), at.of('LessOrEqual', free, size - 1)),
    share: 1,
  };
}
