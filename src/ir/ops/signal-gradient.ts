/**
 * @file Gradients of Fourier transforms. A transform is a matrix, and its gradient that matrix transposed: the transform the
 * other direction, without its scale. Frames that overlap are added up by a transposed convolution.
 */
import { elementCount } from '../graph.js';
import { constant, numbersOf } from './constants.js';
import { padsOn } from './movement-shapes.js';
import { numberOf, operand, result, tensor } from './operands.js';
import type { GradientTable, OperatorGradient } from './operator-gradient.js';
import { type Transform, transform } from './signal-shapes.js';

const FROM_CONSTANTS = 'it is made from constants';

export const SIGNAL_GRADIENTS: GradientTable = {
  DFT: (write) => transformGradient(write),
  STFT: (write) => framesGradient(write),
  BlackmanWindow: FROM_CONSTANTS,
  HammingWindow: FROM_CONSTANTS,
  HannWindow: FROM_CONSTANTS,
  MelWeightMatrix: FROM_CONSTANTS,
};

function transformGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  const { axis, length, real } = transform(operator);
  const own = shape[axis] ?? 1;
  const inverse = numberOf(operator, 'inverse', 0) !== 0;
  const isHalf = numberOf(operator, 'onesided', 0) !== 0;
  // The tensor in between has `length` positions: the operand's or the result's number, except in rare transforms.
  if (real || (isHalf && length !== own)) {
    matrixGradient(write);
    return;
  }
  const last = shape.length - 1;
  const attributes = { axis, dft_length: length, inverse: inverse ? 0 : 1 };
  const back = write.add('DFT', ['grad0'], attributes);
  const scale = write.scalar(dtype, inverse ? 1 / length : length);
  let made = write.add('Mul', [back, scale]);
  if (length > own) {
    made = write.add('Slice', [made], { starts: [0], ends: [own], axes: [axis], steps: [1] });
  } else if (length < own) {
    made = write.add('Pad', [made], { pads: padsOn(shape.length, axis, 0, own - length) });
  }
  if (shape[last] === 1) {
    made = write.add('Slice', [made], { starts: [0], ends: [1], axes: [last], steps: [1] });
  }
  write.become(0, made, dtype);
}

/** The transform written out as a matrix: [positions of the result, parts, positions of the operand, parts]. */
function matrixGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  const { axis } = transform(operator);
  const sizes = [
    result(operator, 0).shape[axis] ?? 1,
    result(operator, 0).shape.at(-1) ?? 1,
    shape[axis] ?? 1,
    shape.at(-1) ?? 1,
  ];
  const matrix = write.tensor(constant(dtype, transformMatrix(write, sizes), sizes));
  const letters = shape.slice(0, -1).map((_, at) => String.fromCharCode('a'.charCodeAt(0) + at));
  const named = (along: string, parts: string) =>
    letters.map((letter, at) => (at === axis ? along : letter)).join('') + parts;
  const equation = `${named('y', 'q')},yqxp->${named('x', 'p')}`;
  write.add('Einsum', ['grad0', matrix], { equation }, 'd0');
}

function transformMatrix({ operator }: OperatorGradient, sizes: readonly number[]): readonly number[] {
  const { length, real }: Transform = transform(operator);
  const inverse = numberOf(operator, 'inverse', 0) !== 0;
  const [rows = 1, rowParts = 1, columns = 1, columnParts = 1] = sizes;
  const values: number[] = [];
  for (let row = 0; row < rows; row++)
    for (let part = 0; part < rowParts; part++)
      for (let column = 0; column < columns; column++)
        for (let from = 0; from < columnParts; from++) {
          // All frequencies of a real signal but the first (and the middle one) stand for their mirror image too.
          const mirrored = real && column > 0 && 2 * column !== length ? 2 : 1;
          const scale = column >= length ? 0 : inverse ? mirrored / length : 1;
          values.push(scale * phasorPart(((inverse ? 1 : -1) * row * column) / length, part, from));
        }
  return values;
}

/** Real (0) or imaginary (1) part of e^{2πi·turns}, times 1 (from 0) or i (from 1). */
function phasorPart(turns: number, part: number, from: number): number {
  const angle = 2 * Math.PI * turns;
  const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
  if (part === from) return cosine;
  return part === 1 ? sine : -sine;
}

function framesGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { shape } = operand(operator, 0);
  const [, , bins = 1] = result(operator, 0).shape;
  const frame = scalar(write, 'frame_length') ?? operator.inputs[2]?.shape[0] ?? 1;
  const parts = shape[2] ?? 1;
  const values: number[] = [];
  for (let bin = 0; bin < bins; bin++)
    for (let part = 0; part < 2; part++)
      for (let from = 0; from < parts; from++)
        for (let at = 0; at < frame; at++) values.push(phasorPart((-bin * at) / frame, part, from));
  if (write.wants(0)) signalGradient(write, values, [bins * 2, parts, frame]);
  if (write.wants(2)) windowGradient(write, values, [bins, 2, parts, frame]);
}

/** Each frame's gradient is added to the samples under it: [b, (bins parts), frames] → [b, parts, samples]. */
function signalGradient(write: OperatorGradient, values: readonly number[], sizes: readonly number[]): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  const [channels = 1, parts = 1, frame = 1] = sizes;
  const [n = 1, length = 1] = shape;
  const count = result(operator, 0).shape[1] ?? 1;
  const step = scalar(write, 'frame_step') ?? 1;
  const kernel = write.tensor(constant(dtype, values, sizes));
  const windowed = operator.inputs[2] ? write.add('Mul', [kernel, 'in2']) : kernel;
  const transposed = write.add('Transpose', ['grad0'], { perm: [0, 2, 3, 1] });
  const flat = write.add('Reshape', [transposed], { shape: [n, channels, count] });
  const attributes = {
    kernel_shape: [frame],
    strides: [step],
    output_padding: [length - (count - 1) * step - frame],
  };
  const added = write.add('ConvTranspose', [flat, windowed], attributes);
  const ordered = parts === 1 ? added : write.add('Transpose', [added], { perm: [0, 2, 1] });
  write.add('Reshape', [ordered], { shape }, 'd0');
}

/** The window multiplies every frame: what each frame's positions get, times the samples there, summed over frames. */
function windowGradient(write: OperatorGradient, values: readonly number[], sizes: readonly number[]): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  const [, , parts = 1, frame = 1] = sizes;
  const step = scalar(write, 'frame_step') ?? 1;
  const count = result(operator, 0).shape[1] ?? 1;
  const matrix = write.tensor(constant(dtype, values, sizes));
  const shares = write.add('Einsum', ['grad0', matrix], { equation: 'bfkq,kqpm->bfmp' });
  const places = Array.from({ length: count * frame }, (_, at) => Math.floor(at / frame) * step + (at % frame));
  const index = write.tensor(constant('int64', places, [count, frame]));
  const signal = write.add('Reshape', ['in0'], { shape: [...shape.slice(0, 2), parts] });
  const seen = write.add('Gather', [signal, index], { axis: 1 });
  const product = write.add('Mul', [shares, seen]);
  write.add('ReduceSum', [product], { axes: [0, 1, 3], keepdims: 0 }, 'd2');
}

/** The number that a constant input holds; undefined where it is left out. */
function scalar({ operator }: OperatorGradient, name: string): number | undefined {
  const held = tensor(operator, name);
  return held && elementCount(held.shape) === 1 ? numbersOf(held)[0] : undefined;
}
