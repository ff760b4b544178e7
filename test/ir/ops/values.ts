/**
 * @file Values of sample operands, the same on every machine, and how results are compared.
 */
import { isFloating } from '../../../src/ir/dtype.js';
import type { Values } from './one-node.js';
import type { Sample } from './sample.js';

/** Values for an operand, by its number. */
export function randomValues({ shape, dtype, low, high, step = 0 }: Sample, seed: number): Values {
  let state = (seed + 1) * 0x9e3779b9;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const count = shape.reduce((product, size) => product * size, 1);
  const data = Array.from({ length: count }, (_, index) => {
    const value = low + next() * (high - low);
    const moved = step * Math.floor((index * (shape[0] ?? 1)) / count);
    return (isFloating(dtype) ? value : Math.floor(value)) + moved;
  });
  return { dtype, shape, data };
}

/** The first place where values differ beyond the tolerance; null where none does. */
export function difference(got: Values, expected: Values, tolerance: number): string | null {
  if (got.shape.join() !== expected.shape.join()) return `shape [${got.shape}], expected [${expected.shape}]`;
  for (const [index, value] of expected.data.entries()) {
    const own = got.data[index] ?? Number.NaN;
    // An expected infinity would make the tolerance infinite: nothing but itself is near it.
    const near = Number.isFinite(value) && Math.abs(own - value) <= tolerance * (0.1 + Math.abs(value));
    const same = Object.is(own, value) || own === value || near;
    if (!same) return `element ${index}: ${own}, expected ${value}`;
  }
  return null;
}
