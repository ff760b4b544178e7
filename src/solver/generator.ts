/**
 * @file A small deterministic generator of random numbers (Park and Miller 1988): equal seeds, equal searches.
 */
export interface Generator {
  /** From 0 up to, not including, 1. */
  next(): number;
  /** A whole number from 0 up to, not including, `count`. */
  below(count: number): number;
}

const MODULUS = 2147483647;

/** @param seed any whole number */
export function generator(seed: number): Generator {
  let state = (Math.abs(seed) % (MODULUS - 1)) + 1;
  const next = () => {
    state = (state * 48271) % MODULUS;
    return (state - 1) / (MODULUS - 1);
  };
  return { next, below: (count) => Math.floor(next() * count) };
}
