/**
 * @file A Fourier transform's attributes, resolved for its shape.
 */
import type { OperatorView } from '../operator.js';
import { checkedAxis, integers, numberOf, operand } from './operands.js';

export interface Transform {
  readonly axis: number;
  /** Number of samples that are transformed. */
  readonly length: number;
  /** Whether the result has no imaginary part: a one-sided inverse. */
  readonly real: boolean;
}

export function transform(view: OperatorView): Transform {
  const { shape } = operand(view, 0);
  const axis = checkedAxis(view, integers(view, 'axis')?.[0] ?? -2, shape.length);
  const real = numberOf(view, 'onesided', 0) !== 0 && numberOf(view, 'inverse', 0) !== 0;
  const own = shape[axis] ?? 1;
  return { axis, real, length: integers(view, 'dft_length')?.[0] ?? (real ? 2 * (own - 1) : own) };
}
