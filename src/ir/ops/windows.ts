/**
 * @file Sliding windows, as convolutions and pooling have them: sizes of results, and how each spatial dimension is
 * named in a rule.
 *
 * A dimension whose windows are adjacent, without overlap or padding, is `(y k!)` → `y` and may be sharded (patch
 * embedding); one that the window does not touch (size 1, stride 1) passes; any other needs its neighbours' borders: `x~y` → `y`,
 * two factors, since the sizes differ.
 */
import type { DimensionFactors, Window as HaloWindow } from '../factor-rule.js';
import type { Attributes } from '../graph.js';
import type { Operator } from '../operator.js';
import { integers, mismatch, numberOf, text } from './operands.js';

/** One spatial dimension under a window. */
export interface SpatialWindow {
  readonly input: number;
  readonly kernel: number;
  readonly stride: number;
  readonly dilation: number;
  /** Elements added before and after. */
  readonly pads: readonly [number, number];
  readonly output: number;
}

/** The windows over each spatial dimension of `shape` (its dimensions from 2 on), from the operator's attributes. */
export function windowsOf(
  operator: Operator,
  shape: readonly number[],
  kernel: readonly number[],
): readonly SpatialWindow[] {
  const spatial = shape.slice(2);
  if (kernel.length !== spatial.length) throw mismatch(operator, `its kernel has ${kernel.length} dimensions`);
  const strides = integers(operator, 'strides') ?? spatial.map(() => 1);
  const dilations = integers(operator, 'dilations') ?? spatial.map(() => 1);
  const pads = integers(operator, 'pads') ?? spatial.flatMap(() => [0, 0]);
  const complete =
    strides.length === spatial.length && dilations.length === spatial.length && pads.length === 2 * spatial.length;
  if (!complete) throw mismatch(operator, `strides, dilations or pads do not have ${spatial.length} dimensions`);
  if ([...strides, ...dilations].some((step) => step < 1))
    throw mismatch(operator, 'a stride or dilation is not positive');
  const automatic = text(operator, 'auto_pad', 'NOTSET');
  return spatial.map((input, index) => {
    const window = { input, kernel: kernel[index] ?? 1, stride: strides[index] ?? 1, dilation: dilations[index] ?? 1 };
    const reach = window.dilation * (window.kernel - 1) + 1;
    if (automatic.startsWith('SAME')) {
      const output = Math.ceil(input / window.stride);
      const total = Math.max(0, (output - 1) * window.stride + reach - input);
      const less = Math.floor(total / 2);
      return { ...window, output, pads: automatic === 'SAME_UPPER' ? [less, total - less] : [total - less, less] };
    }
    const given: [number, number] =
      automatic === 'VALID' ? [0, 0] : [pads[index] ?? 0, pads[index + spatial.length] ?? 0];
    const ceiling = numberOf(operator, 'ceil_mode', 0) !== 0;
    const exact = (input + given[0] + given[1] - reach) / window.stride;
    // With ceil_mode a window may be longer than its dimension, by less than a stride.
    const steps = ceiling ? Math.ceil(exact) : Math.floor(exact);
    if (steps < 0) throw mismatch(operator, `a window of ${reach} does not fit a dimension of ${input}`);
    const output = steps + 1;
    // With ceil_mode a last window that would begin in the padding after the data is left out.
    const beyond = ceiling && (output - 1) * window.stride >= input + given[0];
    return { ...window, pads: given, output: beyond ? output - 1 : output };
  });
}

/** How spatial dimensions are written in a rule: of the operand, of the kernel, of the result. */
export interface SpatialNames {
  readonly input: readonly string[];
  readonly kernel: readonly string[];
  readonly output: readonly string[];
  /** The result's factors without marks, for expansions. */
  readonly plain: readonly DimensionFactors[];
  /** By factor whose shards need borders: the window over it. */
  readonly windows: Readonly<Record<string, HaloWindow>>;
}

/** `fill`: what windows read in the padding; null where they stay whole. */
export function spatialNames(windows: readonly SpatialWindow[], fill: number | null = null): SpatialNames {
  const rows = windows.map((window, index) => {
    const k = `k${index}!`;
    const side = sideOf(window);
    if (side === 'passes') return { input: `y${index}`, kernel: k, output: `y${index}` };
    if (side === 'beside') return { input: `(y${index} ${k})`, kernel: k, output: `y${index}` };
    if (fill === null) return { input: `x${index}!`, kernel: k, output: `y${index}!` };
    return { input: `x${index}~y${index}`, kernel: k, output: `y${index}` };
  });
  return {
    input: rows.map((row) => row.input),
    kernel: rows.map((row) => row.kernel),
    output: rows.map((row) => row.output),
    plain: rows.map((_, index) => [`y${index}`]),
    windows: Object.fromEntries(windows.map((window, index) => [`x${index}`, haloWindow(window, fill ?? 0)])),
  };
}

/**
 * How windows cover their dimension: `passes`: position by position; `beside`: side by side; else they overlap or leave some
 * out.
 */
export function sideOf({
  input,
  kernel,
  stride,
  dilation,
  pads,
  output,
}: SpatialWindow): 'passes' | 'beside' | 'overlaps' {
  if (pads[0] !== 0 || pads[1] !== 0) return 'overlaps';
  if (kernel === 1 && stride === 1 && output === input) return 'passes';
  return kernel === stride && dilation === 1 && output * kernel === input ? 'beside' : 'overlaps';
}

function haloWindow({ kernel, stride, dilation, pads }: SpatialWindow, fill: number): HaloWindow {
  return { stride, before: pads[0], reach: dilation * (kernel - 1) + 1, up: 1, fill };
}

/** Attributes of an operator whose shards have their borders: no padding along sharded dimensions (`x0`, `x1`, …). */
export function withoutPads(
  operator: Operator,
  windows: readonly SpatialWindow[],
  cut: ReadonlySet<string>,
): Attributes {
  const { auto_pad: _, ...rest } = operator.attributes;
  const pads = [0, 1].flatMap((side) =>
    windows.map((window, at) => (cut.has(`x${at}`) ? 0 : (window.pads[side] ?? 0))),
  );
  return { ...rest, pads };
}

/**
 * Attributes with which ConvTranspose adds windows of the results to the positions that these windows read: exactly the
 * operand's positions.
 */
export function layingBack(windows: readonly SpatialWindow[]): Attributes {
  return { ...takingFrom(windows), output_padding: windows.map((window) => Math.max(0, -missing(window))) };
}

/** Attributes with which a convolution has these windows, and more after them where there is room. */
export function takingFrom(windows: readonly SpatialWindow[]): Attributes {
  return {
    kernel_shape: windows.map(({ kernel }) => kernel),
    strides: windows.map(({ stride }) => stride),
    dilations: windows.map(({ dilation }) => dilation),
    pads: [...windows.map(({ pads }) => pads[0]), ...windows.map((window) => Math.max(0, missing(window)))],
  };
}

/** How far the last window reaches beyond the operand; below zero where positions are left that no window sees. */
function missing({ input, kernel, stride, dilation, pads, output }: SpatialWindow): number {
  return (output - 1) * stride + dilation * (kernel - 1) + 1 - pads[0] - input;
}
