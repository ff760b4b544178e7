/**
 * @file A Fourier transform's attributes, resolved for its shape.
 */
import type { Operator } from '../operator.js';
import { checkedAxis, integers, numberOf, operand } from './operands.js';

export interface Transform {
  readonly axis: number;
  /** Number of samples that are transformed. */
  readonly length: number;
  /** Whether the result has no imaginary part: a one-sided inverse. */
  readonly real: boolean;
}

export function transform(operator: Operator): Transform {
  const { shape } = operand(operator, 0);
  const axis = checkedAxis(operator, integers(operator, 'axis')?.[0] ?? -2, shape.length);
  const real = numberOf(operator, 'onesided', 0) !== 0 && numberOf(operator, 'inverse', 0) !== 0;
  const own = shape[axis] ?? 1;
  return { axis, real, length: integers(operator, 'dft_length')?.[0] ?? (real ? 2 * (own - 1) : own) };
}
