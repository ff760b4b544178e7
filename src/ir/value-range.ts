/**
 * @file The whole numbers that an input may hold: rows of a table that it indexes, or classes of the loss. Ranks would differ on
 * any other: one whose shard of a table lacks the row takes zeros, and one that holds all rows fails.
 */
import { AutoparError, type ErrorPlace } from './error.js';

/** A whole number is `from` or more and less than `below`, or `ignored`. */
export interface ValueRange {
  readonly from: number;
  readonly below: number;
  readonly ignored: number | null;
  /** Whether it is a class; else it is a row of a table. */
  readonly isLabel: boolean;
}

export function isInRange(value: number, { from, below, ignored }: ValueRange): boolean {
  return (value >= from && value < below) || value === ignored;
}

/**
 * The error (input) `label-out-of-range` or `token-out-of-range` for a value.
 * @param at the value's place, as in `ids[0, 3]`
 * @param advice what to do about a row that the table does not have
 */
export function outOfRange(
  at: string,
  value: number,
  { from, below, ignored, isLabel }: ValueRange,
  where: ErrorPlace,
  advice = '',
): AutoparError {
  if (!isLabel)
    return new AutoparError(
      'token-out-of-range',
      'input',
      `${at} is ${value}, and the table that it indexes has ${below} rows`,
      where,
      `its values are ${from} to ${below - 1}${advice}`,
    );
  return new AutoparError(
    'label-out-of-range',
    'input',
    `${at} is ${value}, and there are ${below} classes`,
    where,
    ignored === null
      ? `labels are ${from} to ${below - 1}; the model's loss ignores none`
      : `labels are ${from} to ${below - 1}, or ${ignored} for none (--ignore-index names another value when compiling)`,
  );
}
