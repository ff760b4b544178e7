/**
 * @file Gradients of pooling. Samples and channels are put side by side as images of one channel, and with them the windows
 * along dimensions where they do not overlap, so that all of these may be sharded; the places inside such a window are
 * positions of the image then:
 *
 *     n c (y k) x  ->  (n c y) 1 k x        one window of k over k, and as before over x
 *
 * What a window owes its positions is laid back by a transposed convolution with a kernel of ones.
 */
import type { DimensionFactors } from '../factor-rule.js';
import { elementCount } from '../graph.js';
import { constant } from './constants.js';
import { keptDimensions, positionsAlong } from './expansion.js';
import { neededIntegers, numberOf, operand, result } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import { type Axes, type Axis, dimensionsOf, plainAxes, rearrange, sizesOf } from './rearrange.js';
import { layingBack, type Window, windowsOf } from './windows.js';

/** Every element of a window weighs the same: one over how many there are. */
export function averagePoolGradient(write: OperatorGradient): void {
  if (!write.wants(0)) return;
  const images = imagesOf(write);
  const pooled = images.pooled(write, 'grad0');
  const counts = images.windows.map((window) => countsOf(window, numberOf(write.view, 'count_include_pad', 0) !== 0));
  const { dtype } = operand(write.view, 0);
  let uniform = 1;
  let scaled = pooled;
  for (const [index, list] of counts.entries()) {
    const [first = 1] = list;
    if (list.every((count) => count === first)) {
      uniform /= first;
      continue;
    }
    const shape = [list.length, ...counts.slice(index + 1).map(() => 1)];
    const weights = constant(
      dtype,
      list.map((count) => 1 / count),
      shape,
    );
    scaled = write.add('Mul', [scaled, write.tensor(weights)], dimensionsOf(images.small));
  }
  if (uniform !== 1) scaled = write.add('Mul', [scaled, write.scalar(dtype, uniform)], dimensionsOf(images.small));
  images.give(write, layBack(write, images, scaled));
}

/** (Σ |x|^p)^(1/p): |x|^(p−1) sign x · y^(1−p) · g. Where the norm is zero PyTorch has no number; here it is zero. */
export function lpPoolGradient(write: OperatorGradient): void {
  if (!write.wants(0)) return;
  const images = imagesOf(write);
  const pooled = images.pooled(write, normSlope(write));
  images.give(write, layBack(write, images, pooled), powerSlope(write));
}

/** As lpPoolGradient, over all positions. */
export function globalLpPoolGradient(write: OperatorGradient): void {
  if (!write.wants(0)) return;
  const product = write.like(0, 'Mul', [powerSlope(write), normSlope(write)]);
  write.become(0, product, operand(write.view, 0).dtype);
}

/** The first of the largest elements of a window takes all, as in PyTorch. */
export function maxPoolGradient(write: OperatorGradient): void {
  if (!write.wants(0)) return;
  const images = imagesOf(write);
  const pooled = images.pooled(write, 'grad0');
  const input = images.whole(write, 'in0');
  const [first = [], , ...places] = images.large;
  const rows = first;
  const positions = places.flat();
  const joined: Axes = [rows, positions];
  if (images.isParted) {
    const flat = rearrange(write, input, images.large, joined);
    const count = elementCount(sizesOf(places));
    const kept = keptDimensions(dimensionsOf(joined), [1]);
    const found = write.add('ArgMax', [flat], kept, { axis: 1, keepdims: 1 });
    const names = dimensionsOf(joined)[1] ?? [];
    const steps = positionsAlong(write, [1, count], 1, names);
    const isFirst = write.add('Equal', [steps, found], dimensionsOf(joined));
    const own = rearrange(write, pooled, images.small, [rows, []]);
    const taken = write.add('Where', [isFirst, own, write.scalarLike(0, 0)], dimensionsOf(joined));
    images.give(write, rearrange(write, taken, joined, images.large));
    return;
  }
  // Each place of a window becomes a channel; the kernel that takes them apart also lays them back.
  const { windows, small, large } = images;
  const kernel = windows.map((window) => window.kernel);
  const taps = elementCount(kernel);
  const { dtype } = operand(write.view, 0);
  const apart = write.tensor(constant(FINE, identityOf(taps), [taps, 1, ...kernel]));
  const { pads = [], output_padding: behind, ...attributes } = layingBack(windows);
  const around = windows.flatMap((window) => window.pads);
  const positionDims = dimensionsOf(large);
  // No factor of the forward is as large as a window.
  const channels: DimensionFactors = [];
  const [rowDims = [], , ...seen] = dimensionsOf(small);
  const dims = [rowDims, channels, ...seen];
  const ends = Array.isArray(pads) ? pads.map(Number) : [];
  const value = constant(FINE, [LOWEST]);
  const edges = [0, 0, ...ends.slice(0, windows.length), 0, 0, ...ends.slice(windows.length)];
  const isPadding = around.some((size) => size > 0) || ends.some((size) => size > 0);
  const fine = write.inType(input, dtype, FINE, positionDims);
  const padded = isPadding ? write.add('Pad', [fine], positionDims, { pads: edges, constant_value: value }) : fine;
  const unfolded = write.add('Conv', [padded, apart], dims, attributes);
  const found = write.add('ArgMax', [unfolded], keptDimensions(dims, [1]), { axis: 1, keepdims: 1 });
  const steps = positionsAlong(write, [1, taps, ...windows.map(() => 1)], 1, channels);
  const isFirst = write.add('Equal', [steps, found], dims);
  const owed = write.inType(pooled, dtype, FINE, dimensionsOf(small));
  const taken = write.add('Where', [isFirst, owed, write.scalar(FINE, 0)], dims);
  const folding = { ...attributes, pads, ...(behind ? { output_padding: behind } : {}) };
  const laid = write.add('ConvTranspose', [taken, apart], positionDims, folding);
  images.give(write, write.inType(laid, FINE, dtype, positionDims));
}

function identityOf(size: number): readonly number[] {
  return Array.from({ length: size * size }, (_, place) => (place % (size + 1) === 0 ? 1 : 0));
}

/** What padding holds in a search for the largest: a number, since infinity times zero is none. */
const LOWEST = -3e38;

/** ONNX Runtime convolves in float32. */
const FINE = 'float32';

/** Positions weigh the same. */
export function globalAveragePoolGradient(write: OperatorGradient): void {
  if (!write.wants(0)) return;
  const { dtype, shape } = operand(write.view, 0);
  const share = write.scalar(dtype, 1 / elementCount(shape.slice(2)));
  const scaled = write.add('Mul', ['grad0', share], write.dimsOfResult(0));
  write.add('Expand', [scaled], write.dimsOfOperand(0), { shape }, 'd0');
}

/** Equal largest elements share, as PyTorch's amax has it: no order of positions, which may be sharded, is needed. */
export function globalMaxPoolGradient(write: OperatorGradient): void {
  if (!write.wants(0)) return;
  const { dtype, shape } = operand(write.view, 0);
  const axes = shape.flatMap((_, axis) => (axis < 2 ? [] : [axis]));
  const type = write.sumType;
  const dims = write.dimsOfOperand(0);
  const isLargest = write.cast(write.like(0, 'Equal', ['in0', 'out0']), dims, type);
  const count = write.add('ReduceSum', [isLargest], write.dimsOfResult(0), { axes, keepdims: 1 });
  const gradient = write.inType('grad0', dtype, type, write.dimsOfResult(0));
  const share = write.add('Div', [gradient, count], write.dimsOfResult(0));
  write.become(0, write.like(0, 'Mul', [isLargest, share]), type);
}

/** Operand and result as images of one channel. */
interface Images {
  readonly windows: readonly Window[];
  /** Dimensions of the operand's images and of the result's. */
  readonly large: Axes;
  readonly small: Axes;
  /** No two windows share a position, and none leaves one out. */
  readonly isParted: boolean;
  readonly whole: (write: OperatorGradient, name: string) => string;
  readonly pooled: (write: OperatorGradient, name: string) => string;
  /** The operand's images become its gradient, times a factor of the operand's shape where given. */
  readonly give: (write: OperatorGradient, name: string, factor?: string) => void;
}

function imagesOf(write: OperatorGradient): Images {
  const { view } = write;
  const { shape, dtype } = operand(view, 0);
  const [dims, pooledDims] = [write.dimsOfOperand(0), write.dimsOfResult(0)];
  const [n, c, ...ys] = plainAxes(result(view, 0).shape, pooledDims);
  const rows = [n, c].flatMap((axis) => axis ?? []);
  const windows = windowsOf(view, shape, neededIntegers(view, 'kernel_shape'));
  const places = windows.map((window, index) => {
    const names: DimensionFactors = dims[index + 2] ?? [];
    const y: Axis = ys[index] ?? { size: window.output, dims: [] };
    const passes = y.dims.length === 1 && names[0] === y.dims[0];
    if (!passes)
      return { passes, y, window, image: [{ size: window.input, dims: names }], inside: { size: 1, dims: [] } };
    const inside: Axis = { size: window.kernel, dims: names.slice(1) };
    return { passes, y, image: [y, inside], inside, window: { ...window, input: window.kernel, output: 1, stride: 1 } };
  });
  const first = [...rows, ...places.flatMap(({ passes, y }) => (passes ? [y] : []))];
  const from: Axes = [[n ?? NONE], [c ?? NONE], ...places.map(({ image }) => image)];
  const fromPooled: Axes = [[n ?? NONE], [c ?? NONE], ...places.map(({ y }) => [y])];
  const large: Axes = [first, [], ...places.map(({ passes, image, inside }) => (passes ? [inside] : image))];
  const small: Axes = [first, [], ...places.map(({ passes, y }) => (passes ? [] : [y]))];
  return {
    windows: places.map(({ window }) => window),
    large,
    small,
    isParted: places.every(({ passes }) => passes),
    whole: (to, name) => rearrange(to, name, from, large),
    pooled: (to, name) => rearrange(to, name, fromPooled, small),
    give: (to, name, factor) => {
      const back = rearrange(to, name, large, from);
      to.become(0, factor === undefined ? back : to.like(0, 'Mul', [back, factor]), dtype);
    },
  };
}

const NONE: Axis = { size: 1, dims: [] };

/** What each window holds is added to each of its positions. */
function layBack(write: OperatorGradient, { windows, large, small, isParted }: Images, pooled: string): string {
  if (isParted) return write.add('Expand', [pooled], dimensionsOf(large), { shape: sizesOf(large) });
  const kernel = windows.map((window) => window.kernel);
  const volume = Array.from({ length: elementCount(kernel) }, () => 1);
  const ones = write.tensor(constant(FINE, volume, [1, 1, ...kernel]));
  const { dtype } = operand(write.view, 0);
  const fine = write.inType(pooled, dtype, FINE, dimensionsOf(small));
  const laid = write.add('ConvTranspose', [fine, ones], dimensionsOf(large), layingBack(windows));
  return write.inType(laid, FINE, dtype, dimensionsOf(large));
}

/** Elements of each window along one dimension, those of the padding too where they count. */
function countsOf({ input, kernel, stride, dilation, pads, output }: Window, padding: boolean): readonly number[] {
  const [low, high] = padding ? [-pads[0], input + pads[1]] : [0, input];
  return Array.from({ length: output }, (_, index) => {
    const start = index * stride - pads[0];
    const places = Array.from({ length: kernel }, (_place, tap) => start + tap * dilation);
    return places.filter((place) => place >= low && place < high).length;
  });
}

/** g · y^(1−p), zero where y is; of the result's shape. */
function normSlope(write: OperatorGradient): string {
  const p = numberOf(write.view, 'p', 2);
  const at = write.on(write.dimsOfResult(0), operand(write.view, 0).dtype);
  if (p === 1) return 'grad0';
  const divisor = p === 2 ? 'out0' : at.of('Pow', 'out0', p - 1);
  return at.where(at.of('Equal', 'out0', 0), 0, at.div('grad0', divisor));
}

/** |x|^(p−1) sign x, of the operand's shape. */
function powerSlope(write: OperatorGradient): string {
  const p = numberOf(write.view, 'p', 2);
  if (p === 2) return 'in0';
  const sign = write.like(0, 'Sign', ['in0']);
  if (p === 1) return sign;
  const power = write.like(0, 'Pow', [write.like(0, 'Abs', ['in0']), write.scalarLike(0, p - 1)]);
  return write.like(0, 'Mul', [power, sign]);
}
