/**
 * @file Elements that dropout keeps, computed as in docs/training.md, element by element in whole numbers: it shares nothing with
 * the graph that makes the masks.
 */
import type { ConstantTensor } from '../../../src/ir/graph.js';
import { constant } from '../../../src/ir/ops/constants.js';

const GAMMA = 0x9e3779b97f4a7c15n;

export interface Mask {
  readonly shape: readonly number[];
  readonly ratio: number;
  /** Which of the graph's dropouts it is, from 1 on, in the order of the graph. */
  readonly ordinal: number;
  /** From 0 on. */
  readonly step: number;
  readonly seed: number;
}

/** Truth values of `shape`: whether an element is kept. */
export function maskOf({ shape, ratio, ordinal, step, seed }: Mask): ConstantTensor {
  const stream = (number: number) => mixed(BigInt(seed) + BigInt(number) * GAMMA);
  const own = stream(ordinal + 2) | 1n;
  const key = mixed(BigInt(step) * GAMMA + stream(1));
  const width = shape.at(-1) ?? 1;
  const count = shape.reduce((product, size) => product * size, 1);
  const bound = BigInt(Math.round(ratio * 2 ** 53)) << 11n;
  const kept = Array.from({ length: count }, (_, position) => {
    const row = mixed(BigInt(Math.floor(position / width)) * GAMMA + key);
    const column = mixed(BigInt(position % width) * GAMMA + stream(2)) | 1n;
    return BigInt.asUintN(64, row * own * column) >= bound ? 1 : 0;
  });
  return constant('bool', kept, shape);
}

/** SplitMix64's finalizer of the number's 64 low bits. */
function mixed(number: bigint): bigint {
  const low = (value: bigint) => BigInt.asUintN(64, value);
  const first = low(number);
  const second = low((first ^ (first >> 30n)) * 0xbf58476d1ce4e5b9n);
  const third = low((second ^ (second >> 27n)) * 0x94d049bb133111ebn);
  return third ^ (third >> 31n);
}
