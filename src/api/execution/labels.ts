/**
 * @file Class labels: the values that may be fed. Some ranks would look up an out-of-range label outside its row, and others
 * would ignore it. Such a label is refused before any rank starts, as PyTorch refuses it.
 */
import { AutoparError } from '../../ir/error.js';
import { elementCount } from '../../ir/graph.js';
import type { PlanTraining } from '../../strategy/plan.js';
import { numberReader, unravelIndex } from '../verification/numbers.js';
import type { Arrays } from './arrays.js';

/** @throws AutoparError (exit input) `label-out-of-range` with the first label that is not a class, and its position */
export function checkLabels(arrays: Arrays, training: PlanTraining | null, file?: string): void {
  const range = training?.loss.labels;
  const labels = range && arrays[range.input];
  if (!range || !labels) return;
  const read = numberReader(labels);
  const { classes, ignoreIndex, input } = range;
  for (let index = 0; index < elementCount(labels.shape); index++) {
    const label = read(index);
    if ((label >= 0 && label < classes) || label === ignoreIndex) continue;
    throw new AutoparError(
      'label-out-of-range',
      'input',
      `${input}[${unravelIndex(index, labels.shape).join(', ')}] is ${label}, and there are ${classes} classes`,
      { tensor: input, ...(file === undefined ? {} : { file }) },
      ignoreIndex === null
        ? `labels are 0 to ${classes - 1}; the model's loss ignores none`
        : `labels are 0 to ${classes - 1}, or ${ignoreIndex} for none (--ignore-index names another value when compiling)`,
    );
  }
}

/** Exclusive upper bounds for random labels, by input. */
export function labelBounds(training: PlanTraining | undefined): Readonly<Record<string, number>> {
  const range = training?.loss.labels;
  return range ? { [range.input]: range.classes } : {};
}
