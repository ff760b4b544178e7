/**
 * @file Gradients of convolutions. That of the image is the transposed convolution of the result's; that of the kernel is a
 * matrix product for each of its places, of the image as that place meets it and the result's gradient:
 *
 *     g co (n y)  ·  g (n y) ci  ->  g co ci        for each k; y at x = y · stride + k · dilation
 *
 * Positions whose windows lie side by side join the samples there, and the places inside a window the input channels, so
 * that they may be sharded as in the forward; with all of them so it is one product. A kernel of many places is written as
 * a convolution again, in which samples and channels change places and the result's gradient is the kernel:
 *
 *     (ci) (g n) x  ⋆  (g co) n y  ->  ci (g co) k        strides and dilations exchanged
 *
 * That is one operator, but half as fast: in ONNX Runtime on a CPU its few results make narrow products.
 */
import type { DimensionFactors } from '../factor-rule.js';
import { numberOf, operand, result } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import { type Axes, type Axis, dimensionsOf, rearrange, sizesOf } from './rearrange.js';
import { takingFrom, type Window } from './windows.js';

/** A tensor of samples, channels and positions. */
export interface Image {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dims: readonly DimensionFactors[];
}

export function operandImage(write: OperatorGradient): Image {
  return { name: 'in0', shape: operand(write.view, 0).shape, dims: write.dimsOfOperand(0) };
}

export function gradientImage(write: OperatorGradient, name = 'grad0'): Image {
  return { name, shape: result(write.view, 0).shape, dims: write.dimsOfResult(0) };
}

/** The bias is added everywhere: its gradient is the sum over samples and positions. */
export function addBiasGradient(write: OperatorGradient, gradient = 'grad0', bias = 2): void {
  if (!write.wants(bias)) return;
  const axes = write.dimsOfResult(0).flatMap((_, axis) => (axis === 1 ? [] : [axis]));
  write.add('ReduceSum', [gradient], write.dimsOfOperand(bias), { axes, keepdims: 0 }, `d${bias}`);
}

/** What a window is in the gradient of a kernel: by dimension of positions. */
interface Place {
  readonly window: Window;
  /** Positions of the image: one axis, or windows and the places inside them. */
  readonly image: readonly Axis[];
  readonly tap: Axis;
  readonly kernel: Axis;
  readonly passes: boolean;
}

/** More places of a kernel than these are not written out. */
const MOST_PLACES = 27;

/** Writes `d1`. `image` is what the kernel is moved over, `taps` has one position for each of its windows. */
export function addKernelGradient(
  write: OperatorGradient,
  windows: readonly Window[],
  image: Image,
  taps: Image,
): void {
  const { shape, dtype } = operand(write.view, 1);
  const group = numberOf(write.view, 'group', 1);
  const [groups, own] = [taps.dims[1] ?? [], shape[1] ?? 1];
  const g: Axis = { size: group, dims: group > 1 ? groups.slice(0, 1) : [] };
  const ownDims = (dims: DimensionFactors) => (group > 1 ? dims.slice(1) : dims);
  const n: Axis = { size: image.shape[0] ?? 1, dims: image.dims[0] ?? [] };
  const rows: Axis = { size: (shape[0] ?? 1) / group, dims: ownDims(groups) };
  const columns: Axis = { size: own, dims: ownDims(image.dims[1] ?? []) };
  const places = windows.map((window, index) => placeOf(write, window, index, image, taps));
  const [passing, rest] = [places.filter(({ passes }) => passes), places.filter(({ passes }) => !passes)];
  const from: Axes = [[n], [g, columns], ...places.map((place) => place.image)];
  const fromTaps: Axes = [[n], [g, rows], ...places.map(({ tap }) => [tap])];
  const joined = [n, ...passing.map(({ tap }) => tap)];
  const inside = [columns, ...passing.map(({ kernel }) => kernel)];
  const into: Axes = [[g, rows], [columns], ...places.map(({ kernel }) => [kernel])];
  if (rest.length === 0) {
    const left = rearrange(write, taps.name, fromTaps, [[g], [rows], joined]);
    const right = rearrange(write, image.name, from, [[g], joined, inside]);
    const made: Axes = [[g], [rows], inside];
    const product = write.add('MatMul', [left, right], dimensionsOf(made));
    write.become(1, rearrange(write, product, made, into), dtype);
    return;
  }
  if (rest.reduce((count, { window }) => count * window.kernel, 1) <= MOST_PLACES) {
    const left = rearrange(write, taps.name, fromTaps, [[g], [rows], [...joined, ...rest.map(({ tap }) => tap)]]);
    const moving: Axes = [[g, ...inside], joined, ...rest.map((place) => place.image)];
    const product = placeByPlace(write, rearrange(write, image.name, from, moving), moving, left, rest, [
      g,
      rows,
      inside,
    ]);
    const made: Axes = [[...rest.map(({ kernel }) => kernel), g], [rows], inside];
    write.become(1, rearrange(write, product, made, into), dtype);
    return;
  }
  const moving = rearrange(write, image.name, from, [inside, [g, ...joined], ...rest.map((place) => place.image)]);
  const fixed = rearrange(write, taps.name, fromTaps, [[g, rows], joined, ...rest.map(({ tap }) => [tap])]);
  const made: Axes = [inside, [g, rows], ...rest.map(({ kernel }) => [kernel])];
  const turned = rest.map(({ window }) => turnedWindow(window));
  const attributes = { ...takingFrom(turned), group };
  const convolved = write.add('Conv', [moving, fixed], dimensionsOf(made), attributes);
  const sizes = turned.map(
    ({ input, kernel, stride, dilation, pads }) =>
      Math.floor((input + pads[0] + pads[1] - dilation * (kernel - 1) - 1) / stride) + 1,
  );
  const wanted = sizesOf(made).slice(2);
  const kept = cropped(write, convolved, dimensionsOf(made), sizes, wanted);
  write.become(1, rearrange(write, kept, made, into), dtype);
}

/**
 * The product for each place of the kernel, one behind the other: [(k… g), rows, inside]. `image` is [(g inside), joined, x…],
 * `left` [g, rows, (joined y…)].
 */
function placeByPlace(
  write: OperatorGradient,
  image: string,
  axes: Axes,
  left: string,
  rest: readonly Place[],
  [g, rows, inside]: readonly [Axis, Axis, readonly Axis[]],
): string {
  const dims = dimensionsOf(axes);
  const behind = rest.map(({ window }) => Math.max(0, reachOf(window) - window.pads[0] - window.input));
  const pads = [0, 0, ...rest.map(({ window }) => window.pads[0]), 0, 0, ...behind];
  const padded = pads.some((size) => size > 0) ? write.add('Pad', [image], dims, { pads, mode: 'constant' }) : image;
  const joined = axes[1] ?? [];
  const met: Axes = [axes[0] ?? [], joined, ...rest.map(({ tap }) => [tap])];
  const made: Axes = [[g], [rows], inside];
  const along = [...joined, ...rest.map(({ tap }) => tap)];
  const parts = placesOf(rest.map(({ window }) => window)).map((starts) => {
    const attributes = {
      starts,
      ends: rest.map(({ window }, index) => (starts[index] ?? 0) + (window.output - 1) * window.stride + 1),
      axes: rest.map((_, index) => index + 2),
      steps: rest.map(({ window }) => window.stride),
    };
    const part = write.add('Slice', [padded], dimensionsOf(met), attributes);
    // Turned as a whole, which a product does by itself where it can.
    const flat = rearrange(write, part, met, [[g], inside, along]);
    const right = write.add('Transpose', [flat], dimensionsOf([[g], along, inside]), { perm: [0, 2, 1] });
    return write.add('MatMul', [left, right], dimensionsOf(made));
  });
  const all: Axes = [[...rest.map(({ kernel }) => kernel), g], [rows], inside];
  return write.add('Concat', parts, dimensionsOf(all), { axis: 0 });
}

/** Where each place of a kernel meets the image first, the last dimension fastest. */
function placesOf(windows: readonly Window[]): readonly (readonly number[])[] {
  return windows.reduce<readonly (readonly number[])[]>(
    (places, { kernel, dilation }) =>
      places.flatMap((place) => Array.from({ length: kernel }, (_, at) => [...place, at * dilation])),
    [[]],
  );
}

/** Positions from the first that a window meets to the last. */
function reachOf({ output, stride, dilation, kernel }: Window): number {
  return (output - 1) * stride + dilation * (kernel - 1) + 1;
}

function placeOf(write: OperatorGradient, window: Window, index: number, image: Image, taps: Image): Place {
  const axis = index + 2;
  const tap: Axis = { size: window.output, dims: taps.dims[axis] ?? [] };
  const kernel: Axis = { size: window.kernel, dims: write.dimsOfOperand(1)[axis] ?? [] };
  const names = image.dims[axis] ?? [];
  const passes = tap.dims.length === 1 && names[0] === tap.dims[0];
  const place = { window, tap, kernel, passes };
  if (!passes) return { ...place, image: [{ size: window.input, dims: names }] };
  return { ...place, image: [tap, kernel] };
}

/** The same places met in the other order: the gradient's positions are the kernel, and the kernel's are the result. */
function turnedWindow(window: Window): Window {
  const { kernel, output, stride, dilation, input, pads } = window;
  const turned = { input, kernel: output, stride: dilation, dilation: stride, output: kernel };
  const behind = reachOf(window) - pads[0] - input;
  return { ...turned, pads: [pads[0], Math.max(0, behind)] };
}

/** Positions that are more than wanted, cut off behind. */
function cropped(
  write: OperatorGradient,
  name: string,
  dims: readonly DimensionFactors[],
  sizes: readonly number[],
  wanted: readonly number[],
): string {
  const axes = sizes.flatMap((size, index) => (size > (wanted[index] ?? 1) ? [index] : []));
  if (axes.length === 0) return name;
  const bounds = { starts: axes.map(() => 0), ends: axes.map((axis) => wanted[axis] ?? 1) };
  const attributes = { ...bounds, axes: axes.map((axis) => axis + 2), steps: axes.map(() => 1) };
  return write.add('Slice', [name], dims, attributes);
}
