/**
 * @file Gradients of convolutions. The image's is the transposed convolution of the result's gradient, the kernel's is an
 * operator of its own (kernel-gradient.ts), and the bias's is a sum.
 */
import { kernelGradientOf } from './kernel-gradient.js';
import { numberOf, result } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import type { SpatialWindow } from './windows.js';

/** The bias is added everywhere: its gradient is the sum over samples and positions. */
export function addBiasGradient(write: OperatorGradient, gradient = 'grad0', bias = 2): void {
  if (!write.wants(bias)) return;
  const axes = result(write.operator, 0).shape.flatMap((_, axis) => (axis === 1 ? [] : [axis]));
  write.add('ReduceSum', [gradient], { axes, keepdims: 0 }, `d${bias}`);
}

/** Writes `d1`, if it is wanted. `image` is what the kernel is moved over, `taps` has one position for each of its windows. */
export function addKernelGradient(
  write: OperatorGradient,
  windows: readonly SpatialWindow[],
  image: string,
  taps: string,
): void {
  if (!write.wants(1)) return;
  const { domain, op, attributes } = kernelGradientOf(windows, numberOf(write.operator, 'group', 1));
  write.addOf(domain, op, [image, taps], attributes, 'd1');
}
