/**
 * @file Gradients of what samples regions of images on a grid and averages: RoiAlign (He et al. 2017) and CropAndResize. Samples
 * lie in rows and columns, so a region's result is its image between two matrices, which hold what each pixel counts for:
 *
 *     y[r c p q] = Σ over h w of A[r p h] · x[n(r) c h w] · B[r q w]        A[r p h] = mean over samples u of hat(u − h)
 *
 * The image takes back Aᵀ dy B; what A and B get moves the samples, and these the bounds of the region.
 */
import { operand } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import type { SampledAxis } from './region-samples.js';

/** Places of the operands. */
const [IMAGE, REGIONS, OWNERS] = [0, 1, 2];

/** A gradient of an axis's samples: [region, result, sample, pixel], 1 where they are the same for all. */
interface Moved {
  readonly axis: SampledAxis;
  readonly slope: string;
}

export function sampledRegionGradient(write: OperatorGradient, rows: SampledAxis, columns: SampledAxis): void {
  const { view } = write;
  const type = write.sumType;
  const slope = write.inType('grad0', operand(view, IMAGE).dtype, type);
  const [upright, level] = [weightsOf(write, rows), weightsOf(write, columns)];
  const spread = (name: string, place: number) => write.add('Unsqueeze', [name], { axes: [place] });
  const own = write.add('Unsqueeze', [ownersOf(write)], { axes: [1, 3] });
  const across = write.add('MatMul', [slope, spread(level, 1)]);
  if (write.wants(IMAGE)) {
    const each = write.add('Mul', [spread(upright, 2), own]);
    write.become(IMAGE, write.add('Einsum', [each, across], { equation: 'rynh,rcyw->nchw' }), type);
  }
  if (!write.wants(REGIONS)) return;
  const pixels = write.inType(`in${IMAGE}`, operand(view, IMAGE).dtype, type);
  /** What the weights of an axis get: products with all images, of which each region's own counts. */
  const owed = (axis: SampledAxis, name: string, equation: string) => {
    const all = write.add('Einsum', [name, pixels], { equation });
    const kept = write.add('Mul', [all, own]);
    const summed = write.add('ReduceSum', [kept], { axes: [2], keepdims: 1 });
    return movedBy(write, axis, summed);
  };
  const turned = write.add('Transpose', [upright], { perm: [0, 2, 1] });
  const down = write.add('MatMul', [spread(turned, 1), slope]);
  giveBounds(write, [owed(rows, across, 'rcyw,nchw->rynh'), owed(columns, down, 'rchx,nchw->rxnw')]);
}

/** 1 where an image is a region's own: [region, image]. */
function ownersOf(write: OperatorGradient): string {
  const owner = write.cast(`in${OWNERS}`, 'int64');
  const column = write.add('Unsqueeze', [owner], { axes: [1] });
  const row = write.positions([1, operand(write.view, IMAGE).shape[0] ?? 1], 1);
  return write.cast(write.add('Equal', [column, row]), write.sumType);
}

/** How far each sample lies from each pixel. */
function distances(write: OperatorGradient, axis: SampledAxis) {
  const at = write.on(write.sumType);
  const pixels = write.cast(write.positions([1, 1, 1, axis.size], 3), write.sumType);
  const from = at.sub(axis.place, pixels);
  return { at, from, away: at.of('Abs', from) };
}

/** [region, result, pixel]: what each pixel of an axis counts for. */
function weightsOf(write: OperatorGradient, axis: SampledAxis): string {
  const { at, away } = distances(write, axis);
  const near = at.of('Max', at.sub(1, away), 0);
  const counted = at.mul(at.where(axis.inside, near, 0), axis.share);
  return write.add('ReduceSum', [counted], { axes: [2], keepdims: 0 });
}

/** What the samples get of their weights' gradient, [region, result, 1, pixel]. */
function movedBy(write: OperatorGradient, axis: SampledAxis, owed: string): Moved {
  const { at, from, away } = distances(write, axis);
  const reaches = at.of('And', at.of('Less', away, 1), axis.inside);
  const falls = at.where(reaches, at.of('Neg', at.of('Sign', from)), 0);
  return { axis, slope: at.mul(at.mul(falls, axis.share), owed) };
}

/** The bounds' gradients, summed over what they move. */
export function giveBounds(write: OperatorGradient, axes: readonly Moved[]): void {
  const { shape } = operand(write.view, REGIONS);
  const column = write.on(write.sumType);
  const made: (string | undefined)[] = [];
  for (const { axis, slope } of axes) {
    const at = write.on(write.sumType);
    const { low, high, scale, grows } = axis.bounds;
    const free = at.mul(slope, axis.free);
    const all = [1, 2, 3];
    const start = column.mul(at.sum(free, all), scale);
    const length = column.mul(at.sum(at.mul(free, axis.part), all), scale);
    const end = grows === null ? length : column.mul(length, grows);
    made[low] = column.sub(start, end);
    made[high] = end;
  }
  const joined = write.add(
    'Concat',
    made.map((name) => name ?? ''),
    { axis: 1 },
  );
  write.become(REGIONS, write.add('Reshape', [joined], { shape }), write.sumType);
}
