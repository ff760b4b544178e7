/**
 * @file Labels of classes: what may be fed for them. A label that is no class would be looked up outside its row by some ranks
 * and count as nothing on others; it is refused before any rank starts, as PyTorch refuses it.
 */
import { AutoparError } from '../../ir/error.js';
import { elementCount } from '../../ir/graph.js';
import type { PlanTraining } from '../../strategy/plan.js';
import { numberReader, unravelIndex } from '../verification/numbers.js';
import type { Arrays } from './arrays.js';

/** @throws AutoparError (exit input) `label-out-of-range` naming the first label that is no class, and where it is */
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

/** Below what random labels are drawn. */
export function labelBounds(training: PlanTraining | undefined): Readonly<Record<string, number>> {
  const range = training?.loss.labels;
  return range ? { [range.input]: range.classes } : {};
}
