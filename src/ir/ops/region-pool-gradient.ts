/**
 * @file The gradient of MaxRoiPool (Girshick 2015): each bin of a region passes its gradient to its largest pixel. The
 * number of pixels of a bin is known only at run time, so maxima are computed for ranges whose lengths are powers of two, of
 * which two overlapping ones make a bin (a sparse table), first along rows, then along columns:
 *
 *     most over [a, b)  =  the larger of  most over [a, a + 2ᵏ)  and  most over [b − 2ᵏ, b)        2ᵏ ≤ b − a < 2ᵏ⁺¹
 *
 * Bounds are rounded to whole pixels: a region itself has no gradient.
 */
import { elementCount } from '../graph.js';
import { constant } from './constants.js';
import { numberOf, operand, result } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';

/** Indices of the operands. */
const [IMAGE, REGIONS] = [0, 1];

/** Largest values of ranges, and their places: row · width + column, int64. */
interface Most {
  readonly values: string;
  readonly places: string;
}

/** The bins of all regions along an axis: [region, result]. */
interface Bins {
  /** int64: the exponent of two ranges' length, and the starts of both. */
  readonly level: string;
  readonly starts: readonly [string, string];
  readonly isEmpty: string;
}

export function pooledRegionGradient(write: OperatorGradient): void {
  const { operator } = write;
  if (write.wants(REGIONS)) write.none(REGIONS);
  if (!write.wants(IMAGE)) return;
  const { dtype, shape } = operand(operator, IMAGE);
  const [images = 1, channels = 1, height = 1, width = 1] = shape;
  const [regions = 1, , tall = 1, wide = 1] = result(operator, 0).shape;
  const [rows, columns] = [binsOf(write, 2), binsOf(write, 3)];
  // [image, row, channel, column]: a region's rows are then whole rows of the table.
  const transposed = write.add('Transpose', ['in0'], { perm: [0, 2, 1, 3] });
  const whole = write.on('int64');
  const ordered = whole.add(
    whole.mul(write.positions([1, height, 1, 1], 1), width),
    write.positions([1, 1, 1, width], 3),
  );
  const places = write.add('Expand', [ordered], { shape: [images, height, channels, width] });
  const upright = ranges(write, { values: transposed, places }, { axis: 1, size: height });
  const table = (names: readonly string[]) =>
    write.add('Reshape', [write.add('Concat', names, { axis: 0 })], {
      shape: [names.length * images * height, channels, width],
    });
  const tables = {
    values: table(upright.map(({ values }) => values)),
    places: table(upright.map((one) => one.places)),
  };
  const owner = write.cast(column(write, 0), 'int64');
  const row = (start: string) => whole.add(whole.mul(whole.add(whole.mul(rows.level, images), owner), height), start);
  const [above, below] = rows.starts.map((start) => {
    const index = row(start);
    const taken = (name: string) => write.add('Gather', [name, index], { axis: 0 });
    return { values: taken(tables.values), places: taken(tables.places) };
  });
  const bands = larger(write, above as Most, below as Most);
  const level = ranges(write, bands, { axis: 3, size: width });
  const joined = (names: readonly string[]) => write.add('Concat', names, { axis: 3 });
  const across = { values: joined(level.map(({ values }) => values)), places: joined(level.map((one) => one.places)) };
  const [left, right] = columns.starts.map((start) => {
    const index = whole.add(whole.mul(columns.level, width), start);
    const apart = write.add('Unsqueeze', [index], { axes: [1, 2] });
    const spread = write.add('Expand', [apart], { shape: [regions, tall, channels, wide] });
    const taken = (name: string) => write.add('GatherElements', [name, spread], { axis: 3 });
    return { values: taken(across.values), places: taken(across.places) };
  });
  const found = larger(write, left as Most, right as Most);
  const apart = write.add('Unsqueeze', [owner], { axes: [2, 3] });
  const first = whole.mul(apart, height * width);
  const target = whole.add(found.places, first);
  const resultGradient = write.add('Transpose', ['grad0'], { perm: [0, 2, 1, 3] });
  const empty = write
    .on('bool')
    .of(
      'Or',
      write.add('Unsqueeze', [rows.isEmpty], { axes: [2, 3] }),
      write.add('Unsqueeze', [columns.isEmpty], { axes: [1, 2] }),
    );
  const maskedGradient = write.on(dtype).where(empty, 0, resultGradient);
  const inLine = (name: string) =>
    write.add('Reshape', [write.add('Transpose', [name], { perm: [2, 0, 1, 3] })], {
      shape: [channels, regions * tall * wide],
    });
  const zeros = write.add('ConstantOfShape', [], {
    shape: [channels, elementCount([images, height, width])],
    value: constant(dtype, [0], [1]),
  });
  const laid = write.add('ScatterElements', [zeros, inLine(target), inLine(maskedGradient)], {
    axis: 1,
    reduction: 'add',
  });
  const back = write.add('Reshape', [laid], { shape: [channels, images, height, width] });
  write.become(IMAGE, write.add('Transpose', [back], { perm: [1, 0, 2, 3] }), dtype);
}

/** Maxima of the ranges of 1, 2, 4, … positions from every position on, up to the size of the axis. */
function ranges(
  write: OperatorGradient,
  single: Most,
  { axis, size }: { readonly axis: number; readonly size: number },
): readonly Most[] {
  const levels = [single];
  for (let length = 1; length * 2 <= size; length *= 2) {
    const before = levels.at(-1) ?? single;
    const next = Array.from({ length: size }, (_, at) => Math.min(at + length, size - 1));
    const index = write.tensor(constant('int64', next, [size]));
    const later = (name: string) => write.add('Gather', [name, index], { axis });
    levels.push(larger(write, before, { values: later(before.values), places: later(before.places) }));
  }
  return levels;
}

/** The larger of two maxima, and the first if they are equal. */
function larger(write: OperatorGradient, first: Most, second: Most): Most {
  const at = write.on('bool');
  const isFirst = at.of('GreaterOrEqual', first.values, second.values);
  const either = (a: string, b: string) => write.add('Where', [isFirst, a, b]);
  return { values: either(first.values, second.values), places: either(first.places, second.places) };
}

/** A column of the regions, [region, 1]. */
function column(write: OperatorGradient, index: number): string {
  const bounds = { starts: [index], ends: [index + 1], axes: [1], steps: [1] };
  return write.add('Slice', [`in${REGIONS}`], bounds);
}

/** `axis`: 2 for rows, 3 for columns. */
function binsOf(write: OperatorGradient, axis: 2 | 3): Bins {
  const { operator } = write;
  const { dtype, shape } = operand(operator, IMAGE);
  const [size, pooled] = [shape[axis] ?? 1, result(operator, 0).shape[axis] ?? 1];
  const at = write.on(dtype);
  const [low, high] = (axis === 2 ? [2, 4] : [1, 3]).map((index) => {
    const scaled = at.mul(column(write, index), numberOf(operator, 'spatial_scale', 1));
    // Halves are rounded away from zero.
    return at.mul(at.of('Sign', scaled), at.of('Floor', at.add(at.of('Abs', scaled), 0.5)));
  });
  const length = at.of('Max', at.add(at.sub(high ?? '', low ?? ''), 1), 1);
  const bin = at.div(length, pooled);
  const order = (from: number) =>
    write.tensor(
      constant(
        dtype,
        Array.from({ length: pooled }, (_, place) => place + from),
        [pooled],
      ),
    );
  const within = (place: string) => at.of('Min', at.of('Max', at.add(place, low ?? ''), 0), size);
  const start = within(at.of('Floor', at.mul(bin, order(0))));
  const end = within(at.of('Ceil', at.mul(bin, order(1))));
  const isEmpty = at.of('LessOrEqual', end, start);
  const whole = write.on('int64');
  const first = write.cast(at.of('Min', start, size - 1), 'int64');
  const count = whole.of('Max', whole.sub(write.cast(end, 'int64'), first), 1);
  let level: string | null = null;
  for (let power = 2; power <= size; power *= 2) {
    const isLonger = write.cast(whole.of('GreaterOrEqual', count, power), 'int64');
    level = level === null ? isLonger : whole.add(level, isLonger);
  }
  const exponent = level ?? whole.mul(count, 0);
  const powers = Array.from({ length: Math.floor(Math.log2(size)) + 1 }, (_, at) => 2 ** at);
  const table = write.tensor(constant('int64', powers, [powers.length]));
  const power = write.add('Gather', [table, exponent], { axis: 0 });
  return { level: exponent, starts: [first, whole.sub(whole.add(first, count), power)], isEmpty };
}
