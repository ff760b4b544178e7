/**
 * @file The gradient of a convolution's kernel: for each place of the kernel, the image it reads times the result's gradient.
 * It is an operator of its own, as in every library, also because its image needs borders where positions are sharded. ONNX does
 * not have this operator, so its expansion replaces it:
 *
 *     g co (n y)  ·  g (n y) ci  ->  g co ci        for each k; y at x = y · stride + k · dilation
 *
 * Positions with adjacent windows are joined with the samples there, and the places inside a window with the input channels, so
 * that they may be sharded as in the forward; if all are of this kind, it is one matmul. A kernel of many places is written as
 * a convolution again, with samples and channels swapped and the result's gradient as the kernel:
 *
 *     (ci) (g n) x  ⋆  (g co) n y  ->  ci (g co) k        strides and dilations swapped
 *
 * That is one operator, but half as fast: in ONNX Runtime on a CPU its few results make narrow matmuls.
 */
import type { DimensionFactors } from '../factor-rule.js';
import { type Attributes, elementCount } from '../graph.js';
import type { Expansion, Operator, OperatorEntry } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { entry } from './entry.js';
import { ExpansionWriter } from './expansion.js';
import { mismatch, neededIntegers, numberOf, operand, result } from './operands.js';
import { type DimensionAxes, dimensionSizes, dimensionsOf, type RearrangedAxis, rearrange } from './rearrange.js';
import { type SpatialWindow, sideOf, spatialNames, takingFrom, withoutPads } from './windows.js';

const DOMAIN = 'autopar';
const OP = 'KernelGradient';

export const kernelGradientEntry: OperatorEntry = entry({
  op: OP,
  domain: DOMAIN,
  family: 'convolution',
  isWritten: true,
  infer: (operator) => {
    const [image, taps] = [operand(operator, 0), operand(operator, 1)];
    const kernel = neededIntegers(operator, 'kernel_shape');
    if (image.shape.length !== taps.shape.length || kernel.length + 2 !== image.shape.length)
      throw mismatch(operator, 'image, gradient and kernel have different numbers of dimensions');
    const columns = (image.shape[1] ?? 1) / numberOf(operator, 'group', 1);
    return [{ dtype: image.dtype, shape: [taps.shape[1] ?? 1, columns, ...kernel] }];
  },
  rule: (operator) => {
    const names = spatialNames(windowsIn(operator), 0);
    const group = numberOf(operator, 'group', 1);
    const [ci, co] = group > 1 ? ['(g ci)', '(g co)'] : ['ci', 'co'];
    const sides = [`n+ ${ci} ${names.input.join(' ')}`, `n+ ${co} ${names.plain.map(([y]) => `${y}+`).join(' ')}`];
    const text = `${sides.join(', ')} -> ${co} ci ${names.kernel.join(' ')}`;
    return bindRule(text, operator, group > 1 ? { g: group } : {}, names.windows);
  },
  linear: () => [[0], [1]],
  resize: (operator, rule, size) =>
    rule.factors.has('g') ? { ...operator.attributes, group: size('g') } : operator.attributes,
  bordered: (operator, cut) => withoutPads(operator, windowsIn(operator), cut),
  expansion: writtenOut,
  work: (operator) => ({
    flops: 2 * elementCount(operand(operator, 1).shape) * elementCount(result(operator, 0).shape.slice(1)),
  }),
  note: 'Positions inside a window are not sharded. Made by --train; it occurs in no file.',
});

/** One window for each position of the gradient. */
function windowsIn(operator: Operator): readonly SpatialWindow[] {
  const of = (name: string, index: number, otherwise: number) => neededIntegers(operator, name)[index] ?? otherwise;
  const count = operand(operator, 0).shape.length - 2;
  return Array.from({ length: count }, (_, index) => ({
    input: operand(operator, 0).shape[index + 2] ?? 1,
    output: operand(operator, 1).shape[index + 2] ?? 1,
    kernel: of('kernel_shape', index, 1),
    stride: of('strides', index, 1),
    dilation: of('dilations', index, 1),
    pads: [of('pads', index, 0), of('pads', index + count, 0)],
  }));
}

/** Domain, operator and attributes of a kernel's gradient. Operands are `image` and `taps`; the windows are over the image. */
export function kernelGradientOf(
  windows: readonly SpatialWindow[],
  group: number,
): { readonly domain: string; readonly op: string; readonly attributes: Attributes } {
  return { domain: DOMAIN, op: OP, attributes: { ...takingFrom(windows), group } };
}

/** A tensor of samples, channels and positions. */
interface Image {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dims: readonly DimensionFactors[];
}

function writtenOut(operator: Operator): Expansion {
  const rule = kernelGradientEntry.rule(operator);
  const write = new ExpansionWriter();
  const image = (index: number): Image => ({
    name: `in${index}`,
    shape: operand(operator, index).shape,
    dims: rule.inputs[index] ?? [],
  });
  const made = kernelGradient(write, operator, image(0), image(1), rule.outputs[0] ?? []);
  const { nodes, constants } = write.finish();
  const named = (name: string) => (name === made ? 'out0' : name);
  const renamed = nodes.map((node) => ({
    ...node,
    inputs: node.inputs.map((name) => (name === null ? null : named(name))),
    outputs: node.outputs.map(named),
  }));
  return { nodes: renamed, constants };
}

/** A window in the gradient of a kernel, for one dimension of positions. */
interface WindowDimension {
  readonly window: SpatialWindow;
  /** Positions of the image: one axis, or windows and the places inside them. */
  readonly image: readonly RearrangedAxis[];
  readonly tap: RearrangedAxis;
  readonly kernel: RearrangedAxis;
  readonly passes: boolean;
}

/** Maximum number of places of a kernel that are written out one by one. */
const MOST_PLACES = 27;

/** `image` is what the kernel is moved over, `taps` has one position for each of its windows. Returns the kernel's gradient. */
function kernelGradient(
  write: ExpansionWriter,
  operator: Operator,
  image: Image,
  taps: Image,
  kernelDims: readonly DimensionFactors[],
): string {
  const { shape } = result(operator, 0);
  const group = numberOf(operator, 'group', 1);
  const [groups, own] = [taps.dims[1] ?? [], shape[1] ?? 1];
  const g: readonly RearrangedAxis[] = group > 1 ? [{ size: group, dims: groups.slice(0, 1) }] : [];
  const ownDims = (dims: DimensionFactors) => (group > 1 ? dims.slice(1) : dims);
  const n: RearrangedAxis = { size: image.shape[0] ?? 1, dims: image.dims[0] ?? [] };
  const rows: RearrangedAxis = { size: (shape[0] ?? 1) / group, dims: ownDims(groups) };
  const columns: RearrangedAxis = { size: own, dims: ownDims(image.dims[1] ?? []) };
  const places = windowsIn(operator).map((window, index) => placeOf(kernelDims, window, index, image, taps));
  const [passing, rest] = [places.filter(({ passes }) => passes), places.filter(({ passes }) => !passes)];
  const from: DimensionAxes = [[n], [...g, columns], ...places.map((place) => place.image)];
  const fromTaps: DimensionAxes = [[n], [...g, rows], ...places.map(({ tap }) => [tap])];
  const joined = [n, ...passing.map(({ tap }) => tap)];
  const inside = [columns, ...passing.map(({ kernel }) => kernel)];
  const into: DimensionAxes = [[...g, rows], [columns], ...places.map(({ kernel }) => [kernel])];
  if (rest.length === 0) {
    const left = rearrange(write, taps.name, fromTaps, [g, [rows], joined]);
    const right = rearrange(write, image.name, from, [g, joined, inside]);
    const made: DimensionAxes = [g, [rows], inside];
    const matmul = write.add('MatMul', [left, right], dimensionsOf(made));
    return rearrange(write, matmul, made, into);
  }
  if (rest.reduce((count, { window }) => count * window.kernel, 1) <= MOST_PLACES) {
    const left = rearrange(write, taps.name, fromTaps, [g, [rows], [...joined, ...rest.map(({ tap }) => tap)]]);
    const moving: DimensionAxes = [g, joined, ...rest.map((place) => place.image), inside];
    const right = rearrange(write, image.name, from, moving);
    return rearrange(write, ...placeByPlace(write, right, moving, left, rest, [g, rows, inside]), into);
  }
  const moving = rearrange(write, image.name, from, [inside, [...g, ...joined], ...rest.map((place) => place.image)]);
  const fixed = rearrange(write, taps.name, fromTaps, [[...g, rows], joined, ...rest.map(({ tap }) => [tap])]);
  const made: DimensionAxes = [inside, [...g, rows], ...rest.map(({ kernel }) => [kernel])];
  const swapped = rest.map(({ window }) => swappedWindow(window));
  const attributes = { ...takingFrom(swapped), group };
  const convolved = write.add('Conv', [moving, fixed], dimensionsOf(made), attributes);
  const sizes = swapped.map(
    ({ input, kernel, stride, dilation, pads }) =>
      Math.floor((input + pads[0] + pads[1] - dilation * (kernel - 1) - 1) / stride) + 1,
  );
  const wanted = dimensionSizes(made).slice(2);
  const kept = cropped(write, convolved, dimensionsOf(made), sizes, wanted);
  return rearrange(write, kept, made, into);
}

/** A matmul with fewer columns takes as long as one with this many: a processor takes a vector of columns at a time. */
const FEW_COLUMNS = 16;

/**
 * The matmul for each place of the kernel, with its axes: [(k… g), rows, inside], or [g, rows, (k… inside)] if all places are
 * joined to one matmul since one alone has few columns. `image` is [g, joined, x…, inside], channels last, so that the elements
 * that a place reads are copied in whole rows whatever the stride; `left` is [g, rows, (joined y…)].
 */
function placeByPlace(
  write: ExpansionWriter,
  image: string,
  axes: DimensionAxes,
  left: string,
  rest: readonly WindowDimension[],
  [g, rows, inside]: readonly [readonly RearrangedAxis[], RearrangedAxis, readonly RearrangedAxis[]],
): readonly [product: string, axes: DimensionAxes] {
  const dims = dimensionsOf(axes);
  const behind = rest.map(({ window }) => Math.max(0, reachOf(window) - window.pads[0] - window.input));
  const pads = [0, 0, ...rest.map(({ window }) => window.pads[0]), 0, 0, 0, ...behind, 0];
  const padded = pads.some((size) => size > 0) ? write.add('Pad', [image], dims, { pads, mode: 'constant' }) : image;
  const joined = axes[1] ?? [];
  const met: DimensionAxes = [g, joined, ...rest.map(({ tap }) => [tap]), inside];
  const along = [...joined, ...rest.map(({ tap }) => tap)];
  const parts = placesOf(rest.map(({ window }) => window)).map((starts) => {
    const attributes = {
      starts,
      ends: rest.map(({ window }, index) => (starts[index] ?? 0) + (window.output - 1) * window.stride + 1),
      axes: rest.map((_, index) => index + 2),
      steps: rest.map(({ window }) => window.stride),
    };
    const part = write.add('Slice', [padded], dimensionsOf(met), attributes);
    return rearrange(write, part, met, [g, along, inside]);
  });
  const kernel = rest.map((place) => place.kernel);
  const matmul = (right: string, columns: readonly RearrangedAxis[]) =>
    write.add('MatMul', [left, right], dimensionsOf([g, [rows], columns]));
  if ((dimensionSizes([inside])[0] ?? 1) < FEW_COLUMNS) {
    const all = [...kernel, ...inside];
    return [matmul(write.add('Concat', parts, dimensionsOf([g, along, all]), { axis: 2 }), all), [g, [rows], all]];
  }
  const made: DimensionAxes = [[...kernel, ...g], [rows], inside];
  const matmuls = parts.map((part) => matmul(part, inside));
  return [write.add('Concat', matmuls, dimensionsOf(made), { axis: 0 }), made];
}

/** The first position of the image that each place of a kernel reads, the last dimension fastest. */
function placesOf(windows: readonly SpatialWindow[]): readonly (readonly number[])[] {
  return windows.reduce<readonly (readonly number[])[]>(
    (places, { kernel, dilation }) =>
      places.flatMap((place) => Array.from({ length: kernel }, (_, at) => [...place, at * dilation])),
    [[]],
  );
}

/** Number of positions from the first that a window reads to the last. */
function reachOf({ output, stride, dilation, kernel }: SpatialWindow): number {
  return (output - 1) * stride + dilation * (kernel - 1) + 1;
}

function placeOf(
  kernelDims: readonly DimensionFactors[],
  window: SpatialWindow,
  index: number,
  image: Image,
  taps: Image,
): WindowDimension {
  const axis = index + 2;
  const tap: RearrangedAxis = { size: window.output, dims: taps.dims[axis] ?? [] };
  const kernel: RearrangedAxis = { size: window.kernel, dims: kernelDims[axis] ?? [] };
  const names = image.dims[axis] ?? [];
  const passes = sideOf(window) !== 'overlaps';
  const place = { window, tap, kernel, passes };
  if (!passes) return { ...place, image: [{ size: window.input, dims: names }] };
  return { ...place, image: [tap, kernel] };
}

/** The same reads with roles swapped: the gradient's positions are the kernel, and the kernel's are the result. */
function swappedWindow(window: SpatialWindow): SpatialWindow {
  const { kernel, output, stride, dilation, input, pads } = window;
  const swapped = { input, kernel: output, stride: dilation, dilation: stride, output: kernel };
  const behind = reachOf(window) - pads[0] - input;
  return { ...swapped, pads: [pads[0], Math.max(0, behind)] };
}

/** Drops the positions at the end that are more than wanted. */
function cropped(
  write: ExpansionWriter,
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
