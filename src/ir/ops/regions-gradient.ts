/**
 * @file Gradients of operators on regions of images. Written here: those that are linear in a way plain operators can undo,
 * Col2Im, MaxUnpool, AffineGrid, CenterCropPad.
 */
import { elementCount } from '../graph.js';
import { constant } from './constants.js';
import { centredPlaces, placesGradient } from './movement-gradient.js';
import { integers, neededIntegers, operand, result } from './operands.js';
import type { GradientTable, OperatorGradient } from './operator-gradient.js';
import { plainDeformed } from './plain-deformed.js';
import { plainRoiAlign } from './plain-regions.js';
import { pooledRegionGradient } from './region-pool-gradient.js';

export const REGION_GRADIENTS: GradientTable = {
  RoiAlign: { plain: plainRoiAlign },
  MaxRoiPool: pooledRegionGradient,
  DeformConv: { plain: plainDeformed },
  Col2Im: (write) => blocksGradient(write),
  MaxUnpool: (write) => unpoolGradient(write),
  AffineGrid: (write) => gridGradient(write),
  CenterCropPad: (write) => {
    const [from, to] = [operand(write.operator, 0).shape, result(write.operator, 0).shape];
    const axes = from.flatMap((size, axis) => {
      const wanted = to[axis] ?? size;
      return size === wanted ? [] : [{ axis, places: centredPlaces(size, wanted) }];
    });
    placesGradient(write, axes);
  },
};

/** Every block gets the gradient under it: a lookup of each of its positions in the flattened image, zero outside. */
function blocksGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  const [n = 1, , blocks = 1] = shape;
  const image = neededIntegers(operator, 'image_shape');
  const flat = write.add('Reshape', ['grad0'], {
    shape: [n, result(operator, 0).shape[1] ?? 1, elementCount(image)],
  });
  const places = blockPlaces(write);
  const size = [places.length / blocks, blocks];
  const index = write.tensor(
    constant(
      'int64',
      places.map((at) => Math.max(0, at)),
      size,
    ),
  );
  const taken = write.add('Gather', [flat, index], { axis: 2 });
  const inside = write.tensor(
    constant(
      'bool',
      places.map((at) => Number(at >= 0)),
      size,
    ),
  );
  const kept = write.add('Where', [inside, taken, write.scalar(dtype, 0)]);
  write.add('Reshape', [kept], { shape }, 'd0');
}

/** For each position in a block and each block: its index in the flattened image; −1 in the padding. */
function blockPlaces({ operator }: OperatorGradient): readonly number[] {
  const image = neededIntegers(operator, 'image_shape');
  const block = neededIntegers(operator, 'block_shape');
  const rank = image.length;
  const ones = image.map(() => 1);
  const [strides, dilations] = [integers(operator, 'strides') ?? ones, integers(operator, 'dilations') ?? ones];
  const pads = integers(operator, 'pads') ?? [...ones, ...ones].map(() => 0);
  const counts = image.map((size, axis) => {
    const reach = (dilations[axis] ?? 1) * ((block[axis] ?? 1) - 1) + 1;
    const room = size + (pads[axis] ?? 0) + (pads[axis + rank] ?? 0) - reach;
    return Math.floor(room / (strides[axis] ?? 1)) + 1;
  });
  return eachPlace(block).flatMap((inner) =>
    eachPlace(counts).map((outer) =>
      image.reduce((flat, size, axis) => {
        const start = (outer[axis] ?? 0) * (strides[axis] ?? 1) - (pads[axis] ?? 0);
        const at = start + (inner[axis] ?? 0) * (dilations[axis] ?? 1);
        return flat < 0 || at < 0 || at >= size ? -1 : flat * size + at;
      }, 0),
    ),
  );
}

/** All index tuples below the sizes, the last one fastest. */
function eachPlace(sizes: readonly number[]): readonly (readonly number[])[] {
  return sizes.reduce<readonly (readonly number[])[]>(
    (tuples, size) => tuples.flatMap((tuple) => Array.from({ length: size }, (_, at) => [...tuple, at])),
    [[]],
  );
}

/** Each value gets the gradient at its place. Places count through all images; modulo an image's size, they count inside it. */
function unpoolGradient(write: OperatorGradient): void {
  const { operator } = write;
  const [from, to] = [operand(operator, 0).shape, result(operator, 0).shape];
  const each = elementCount(to.slice(1));
  const whole = write.add('Reshape', ['grad0'], { shape: [from[0] ?? 1, each] });
  const places = write.add('Reshape', ['in1'], { shape: [from[0] ?? 1, elementCount(from.slice(1))] });
  const inside = write.add('Mod', [places, write.scalar(operand(operator, 1).dtype, each)]);
  const taken = write.add('GatherElements', [whole, inside], { axis: 1 });
  write.add('Reshape', [taken], { shape: from }, 'd0');
}

/** grid = theta · (position, 1): the positions themselves are the grid of the identity. */
function gridGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  const [n = 1, rank = 2] = shape;
  const size = neededIntegers(operator, 'size').slice(2);
  const points = elementCount(size);
  const identity = Array.from({ length: rank * (rank + 1) }, (_, at) =>
    Number(at % (rank + 1) === Math.floor(at / (rank + 1))),
  );
  const theta = write.tensor(constant(dtype, identity, [1, rank, rank + 1]));
  const grid = write.add('AffineGrid', [theta], { ...operator.attributes, size: [1, 1, ...size] });
  const flatten = (name: string, count: number) => write.add('Reshape', [name], { shape: [count, points, rank] });
  const grad = flatten('grad0', n);
  const transposed = write.add('Transpose', [grad], { perm: [0, 2, 1] });
  const places = flatten(grid, 1);
  // The last column of theta is added to every point.
  const moved = write.add('MatMul', [transposed, places]);
  const shift = write.add('ReduceSum', [transposed], { axes: [2], keepdims: 1 });
  write.add('Concat', [moved, shift], { axis: 2 }, 'd0');
}
