/**
 * @file Inputs that hold rows of a table or class labels: the values that may be fed. Others are refused before any rank starts,
 * as PyTorch refuses them.
 */

import { elementCount } from '../../ir/graph.js';
import { isInRange, outOfRange, type ValueRange } from '../../ir/value-range.js';
import type { Program } from '../../program/program.js';
import type { PlanTraining } from '../../strategy/plan.js';
import { numberReader, unravelIndex } from '../verification/numbers.js';
import type { Arrays } from './arrays.js';

/**
 * Checks what is fed to a program.
 * @param file where the arrays are from
 * @throws AutoparError (exit input) `label-out-of-range`, `token-out-of-range` with the first such value and its position
 */
export function checkValues(
  arrays: Arrays,
  inputs: Program['inputs'],
  training: PlanTraining | null,
  file?: string,
): void {
  for (const [name, range] of valueRanges(inputs, training)) {
    const array = arrays[name];
    if (!array) continue;
    const read = numberReader(array);
    for (let index = 0; index < elementCount(array.shape); index++) {
      const value = read(index);
      if (isInRange(value, range)) continue;
      const at = `${name}[${unravelIndex(index, array.shape).join(', ')}]`;
      throw outOfRange(at, value, range, { tensor: name, ...(file === undefined ? {} : { file }) });
    }
  }
}

/**
 * By input of a program: the values that it may hold, where it holds labels or indexes tables. Rows count from the end of a table
 * where they are negative, as in ONNX; not in training.
 */
export function valueRanges(inputs: Program['inputs'], training: PlanTraining | null): ReadonlyMap<string, ValueRange> {
  const ranges = new Map<string, ValueRange>();
  // Several stages may read an input.
  for (const { name, rows } of inputs) {
    const range = labelRange(name, training) ?? rowRange(rows, training === null);
    if (range && range.below < (ranges.get(name)?.below ?? Infinity)) ranges.set(name, range);
  }
  return ranges;
}

/** The classes that an input's values may be; null for an input that holds no labels. */
export function labelRange(input: string, training: PlanTraining | null): ValueRange | null {
  const labels = training?.loss.labels;
  if (labels?.input !== input) return null;
  return { from: 0, below: labels.classes, ignored: labels.ignoreIndex, isLabel: true };
}

/** The rows of a table that an input's values may be; null for an input that indexes none. */
export function rowRange(rows: number | null | undefined, countsFromEnd: boolean): ValueRange | null {
  if (rows === null || rows === undefined) return null;
  return { from: countsFromEnd ? -rows : 0, below: rows, ignored: null, isLabel: false };
}

/** Exclusive upper bounds for random labels, by input. */
export function labelBounds(training: PlanTraining | undefined): Readonly<Record<string, number>> {
  const range = training?.loss.labels;
  return range ? { [range.input]: range.classes } : {};
}
