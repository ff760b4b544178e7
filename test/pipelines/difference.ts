/**
 * @file How far two trainings are apart.
 */
import { numbersOf } from '../../src/ir/ops/constants.js';
import type { ConstantTensor } from '../../src/program/values.js';

/** Results of a training. */
export interface Left {
  readonly losses: readonly number[];
  /** Weights, moments and the optimizer's scalars after the last step, by the state's name. */
  readonly state: Readonly<Record<string, ConstantTensor>>;
}

/** The largest difference of a loss, or of an element of any state, as a share of the largest element beside it. */
export function worstDifference(alone: Left, staged: Left): number {
  const names = Object.keys(alone.state);
  if (names.length === 0 || names.some((name) => !staged.state[name])) return Number.POSITIVE_INFINITY;
  const pairs = names.map((name) => [values(alone, name), values(staged, name)] as const);
  return Math.max(
    ...[[alone.losses, staged.losses] as const, ...pairs].map(([wanted, got]) => difference(wanted, got)),
  );
}

function values({ state }: Left, name: string): readonly number[] {
  const tensor = state[name];
  return tensor ? numbersOf(tensor).map(Number) : [];
}

/** The largest difference of two lists, as a share of the largest value that is wanted. */
export function difference(wanted: readonly number[], got: readonly number[]): number {
  const scale = wanted.reduce((most, value) => Math.max(most, Math.abs(value)), Number.MIN_VALUE);
  const most = wanted.reduce((sum, value, index) => Math.max(sum, Math.abs(value - (got[index] ?? Number.NaN))), 0);
  return wanted.length === got.length ? most / scale : Number.POSITIVE_INFINITY;
}
