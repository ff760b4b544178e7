/**
 * @file Gradients of pooling. Samples and channels are put side by side as images of one channel, and with them the windows
 * along dimensions where they do not overlap, so that all of these may be sharded; the places inside such a window are
 * positions of the image then:
 *
 *     n c (y k) x  ->  (n c y) 1 k x        one window of k over k, and as before over x
 *
 * A transposed convolution with a kernel of ones adds the gradient of each window to its positions.
 */
import { elementCount } from '../graph.js';
import { constant } from './constants.js';
import { neededIntegers, numberOf, operand, result } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import { type DimensionAxes, dimensionSizes, plainAxes, type RearrangedAxis } from './rearrange.js';
import { layingBack, type SpatialWindow, windowsOf } from './windows.js';

/** Every element of a window weighs the same: one over how many there are. */
export function averagePoolGradient(write: OperatorGradient): void {
  if (!write.wants(0)) return;
  const images = imagesOf(write);
  const pooled = images.pooled(write, 'grad0');
  const counts = images.windows.map((window) =>
    countsOf(window, numberOf(write.operator, 'count_include_pad', 0) !== 0),
  );
  const { dtype } = operand(write.operator, 0);
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
    scaled = write.add('Mul', [scaled, write.tensor(weights)]);
  }
  if (uniform !== 1) scaled = write.add('Mul', [scaled, write.scalar(dtype, uniform)]);
  images.give(write, layBack(write, images, scaled));
}

/** (Σ |x|^p)^(1/p): |x|^(p−1) sign x · y^(1−p) · g. Where the norm is zero PyTorch has no number; here it is zero. */
export function lpPoolGradient(write: OperatorGradient): void {
  if (!write.wants(0)) return;
  const images = imagesOf(write);
  const pooled = images.pooled(write, normGradient(write));
  images.give(write, layBack(write, images, pooled), powerDerivative(write));
}

/** As lpPoolGradient, over all positions. */
export function globalLpPoolGradient(write: OperatorGradient): void {
  if (!write.wants(0)) return;
  const product = write.add('Mul', [powerDerivative(write), normGradient(write)]);
  write.become(0, product, operand(write.operator, 0).dtype);
}

/** The first of the largest elements of a window gets the whole gradient, as in PyTorch. */
export function maxPoolGradient(write: OperatorGradient): void {
  if (!write.wants(0)) return;
  const images = imagesOf(write);
  const pooled = images.pooled(write, 'grad0');
  const input = images.whole(write, 'in0');
  const [first = [], , ...places] = images.large;
  const rows = first;
  const positions = places.flat();
  const joined: DimensionAxes = [rows, positions];
  if (images.isParted) {
    const flat = write.rearrange(input, images.large, joined);
    const count = elementCount(dimensionSizes(places));
    const found = write.add('ArgMax', [flat], { axis: 1, keepdims: 1 });
    const steps = write.positions([1, count], 1);
    const isFirst = write.add('Equal', [steps, found]);
    const own = write.rearrange(pooled, images.small, [rows, []]);
    const taken = write.add('Where', [isFirst, own, write.scalarLike(0, 0)]);
    images.give(write, write.rearrange(taken, joined, images.large));
    return;
  }
  // Each place of a window becomes a channel; the kernel that unfolds windows also folds them back.
  const { windows } = images;
  const kernel = windows.map((window) => window.kernel);
  const taps = elementCount(kernel);
  const { dtype } = operand(write.operator, 0);
  const apart = write.tensor(constant(FINE, identityOf(taps), [taps, 1, ...kernel]));
  const { pads = [], output_padding: behind, ...attributes } = layingBack(windows);
  const around = windows.flatMap((window) => window.pads);
  const ends = Array.isArray(pads) ? pads.map(Number) : [];
  const value = constant(FINE, [LOWEST]);
  const edges = [0, 0, ...ends.slice(0, windows.length), 0, 0, ...ends.slice(windows.length)];
  const isPadding = around.some((size) => size > 0) || ends.some((size) => size > 0);
  const fine = write.inType(input, dtype, FINE);
  const padded = isPadding ? write.add('Pad', [fine], { pads: edges, constant_value: value }) : fine;
  const unfolded = write.add('Conv', [padded, apart], attributes);
  const found = write.add('ArgMax', [unfolded], { axis: 1, keepdims: 1 });
  const steps = write.positions([1, taps, ...windows.map(() => 1)], 1);
  const isFirst = write.add('Equal', [steps, found]);
  const resultGradient = write.inType(pooled, dtype, FINE);
  const taken = write.add('Where', [isFirst, resultGradient, write.scalar(FINE, 0)]);
  const folding = { ...attributes, pads, ...(behind ? { output_padding: behind } : {}) };
  const laid = write.add('ConvTranspose', [taken, apart], folding);
  images.give(write, write.inType(laid, FINE, dtype));
}

function identityOf(size: number): readonly number[] {
  return Array.from({ length: size * size }, (_, place) => (place % (size + 1) === 0 ? 1 : 0));
}

/** The value of padding in a search for the maximum: finite, since infinity times zero is NaN. */
const LOWEST = -3e38;

/** ONNX Runtime convolves in float32. */
const FINE = 'float32';

/** All positions have the same weight. */
export function globalAveragePoolGradient(write: OperatorGradient): void {
  if (!write.wants(0)) return;
  const { dtype, shape } = operand(write.operator, 0);
  const share = write.scalar(dtype, 1 / elementCount(shape.slice(2)));
  const scaled = write.add('Mul', ['grad0', share]);
  write.add('Expand', [scaled], { shape }, 'd0');
}

/** Equal largest elements share the gradient, as in PyTorch's amax: this needs no order of positions, which may be sharded. */
export function globalMaxPoolGradient(write: OperatorGradient): void {
  if (!write.wants(0)) return;
  const { dtype, shape } = operand(write.operator, 0);
  const axes = shape.flatMap((_, axis) => (axis < 2 ? [] : [axis]));
  const type = write.sumType;
  const isLargest = write.cast(write.add('Equal', ['in0', 'out0']), type);
  const count = write.add('ReduceSum', [isLargest], { axes, keepdims: 1 });
  const gradient = write.inType('grad0', dtype, type);
  const share = write.add('Div', [gradient, count]);
  write.become(0, write.add('Mul', [isLargest, share]), type);
}

/** Operand and result as images of one channel. */
interface Images {
  readonly windows: readonly SpatialWindow[];
  /** Dimensions of the operand's images and of the result's. */
  readonly large: DimensionAxes;
  readonly small: DimensionAxes;
  /** Whether no two windows share a position, and none leaves one out. */
  readonly isParted: boolean;
  readonly whole: (write: OperatorGradient, name: string) => string;
  readonly pooled: (write: OperatorGradient, name: string) => string;
  /** The operand's images become its gradient, times a factor of the operand's shape where given. */
  readonly give: (write: OperatorGradient, name: string, factor?: string) => void;
}

function imagesOf(write: OperatorGradient): Images {
  const { operator } = write;
  const { shape, dtype } = operand(operator, 0);
  const [n, c, ...ys] = plainAxes(result(operator, 0).shape);
  const rows = [n, c].flatMap((axis) => axis ?? []);
  const windows = windowsOf(operator, shape, neededIntegers(operator, 'kernel_shape'));
  const places = windows.map((window, index) => {
    const y: RearrangedAxis = ys[index] ?? { size: window.output };
    const [name, ...others] = write.rule.outputs[0]?.[index + 2] ?? [];
    const passes = others.length === 0 && name !== undefined && name === write.rule.inputs[0]?.[index + 2]?.[0];
    if (!passes) return { passes, y, window, image: [{ size: window.input }], inside: { size: 1 } };
    const inside: RearrangedAxis = { size: window.kernel };
    return { passes, y, image: [y, inside], inside, window: { ...window, input: window.kernel, output: 1, stride: 1 } };
  });
  const first = [...rows, ...places.flatMap(({ passes, y }) => (passes ? [y] : []))];
  const from: DimensionAxes = [[n ?? NONE], [c ?? NONE], ...places.map(({ image }) => image)];
  const fromPooled: DimensionAxes = [[n ?? NONE], [c ?? NONE], ...places.map(({ y }) => [y])];
  const large: DimensionAxes = [first, [], ...places.map(({ passes, image, inside }) => (passes ? [inside] : image))];
  const small: DimensionAxes = [first, [], ...places.map(({ passes, y }) => (passes ? [] : [y]))];
  return {
    windows: places.map(({ window }) => window),
    large,
    small,
    isParted: places.every(({ passes }) => passes),
    whole: (to, name) => to.rearrange(name, from, large),
    pooled: (to, name) => to.rearrange(name, fromPooled, small),
    give: (to, name, factor) => {
      const back = to.rearrange(name, large, from);
      to.become(0, factor === undefined ? back : to.add('Mul', [back, factor]), dtype);
    },
  };
}

const NONE: RearrangedAxis = { size: 1 };

/** Adds the value of each window to each of its positions. */
function layBack(write: OperatorGradient, { windows, large, isParted }: Images, pooled: string): string {
  if (isParted) return write.add('Expand', [pooled], { shape: dimensionSizes(large) });
  const kernel = windows.map((window) => window.kernel);
  const volume = Array.from({ length: elementCount(kernel) }, () => 1);
  const ones = write.tensor(constant(FINE, volume, [1, 1, ...kernel]));
  const { dtype } = operand(write.operator, 0);
  const fine = write.inType(pooled, dtype, FINE);
  const laid = write.add('ConvTranspose', [fine, ones], layingBack(windows));
  return write.inType(laid, FINE, dtype);
}

/** Elements of each window along one dimension, those of the padding too where they count. */
function countsOf(
  { input, kernel, stride, dilation, pads, output }: SpatialWindow,
  padding: boolean,
): readonly number[] {
  const [low, high] = padding ? [-pads[0], input + pads[1]] : [0, input];
  return Array.from({ length: output }, (_, index) => {
    const start = index * stride - pads[0];
    const places = Array.from({ length: kernel }, (_place, tap) => start + tap * dilation);
    return places.filter((place) => place >= low && place < high).length;
  });
}

/** g · y^(1−p), zero where y is; of the result's shape. */
function normGradient(write: OperatorGradient): string {
  const p = numberOf(write.operator, 'p', 2);
  const at = write.on(operand(write.operator, 0).dtype);
  if (p === 1) return 'grad0';
  const divisor = p === 2 ? 'out0' : at.of('Pow', 'out0', p - 1);
  return at.where(at.of('Equal', 'out0', 0), 0, at.div('grad0', divisor));
}

/** |x|^(p−1) sign x, of the operand's shape. */
function powerDerivative(write: OperatorGradient): string {
  const p = numberOf(write.operator, 'p', 2);
  if (p === 2) return 'in0';
  const sign = write.add('Sign', ['in0']);
  if (p === 1) return sign;
  const power = write.add('Pow', [write.add('Abs', ['in0']), write.scalarLike(0, p - 1)]);
  return write.add('Mul', [power, sign]);
}
