/**
 * @file Tensors compared as wholes.
 */
import type { ConstantTensor } from '../../src/ir/graph.js';
import { numbersOf } from '../../src/ir/ops/constants.js';
import type { Values } from '../ir/ops/one-node.js';

/** A tensor's numbers. */
export function valuesOf(tensor: ConstantTensor): Values {
  return { dtype: tensor.dtype, shape: tensor.shape, data: numbersOf(tensor) };
}

/** The remainder, on some processors, of terms in double precision that cancel. */
const ROUNDING = 1e-12;

/** ‖got − expected‖ / ‖expected‖ (‖got‖ where nothing but zeros and rounding is expected); NaN where shapes differ. */
export function relativeError(got: ConstantTensor, expected: ConstantTensor): number {
  if (got.shape.join() !== expected.shape.join()) return Number.NaN;
  const [own, wanted] = [numbersOf(got), numbersOf(expected)];
  // Equal infinities (masked scores) are not a difference.
  const errors = wanted.map((value, index) => (own[index] === value ? 0 : (own[index] ?? Number.NaN) - value));
  const scale = norm(wanted.filter(Number.isFinite));
  return norm(errors) / (scale < ROUNDING ? 1 : scale);
}

function norm(values: readonly number[]): number {
  return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
}
