/**
 * @file Steps as the runs of other groups predict them: the accuracy of a fit where nothing was measured. (Hastie, Tibshirani &
 * Friedman, The Elements of Statistical Learning, 2009, section 7.10: cross-validation.)
 */
import { madeOnce } from '../../ir/remembered.js';
import type { FittedLayers } from './fit-layers.js';
import { type PlacedRun, stepSeconds } from './linear-step.js';

/** Most groups that are left out one at a time; with more groups, several are left out together. */
const MOST_FOLDS = 20;

/**
 * Seconds of each run's step, predicted by the runs outside its group; null where all are in one.
 * @param groupOf the group that is left out with a run
 */
export function crossValidatedSeconds(
  fit: FittedLayers,
  groupOf: (run: PlacedRun, index: number) => string,
): readonly number[] | null {
  const names = fit.runs.map(groupOf);
  const groups = [...new Set(names)].sort();
  if (groups.length < 2) return null;
  const foldOf = new Map(groups.map((name, index) => [name, index % MOST_FOLDS]));
  const byFold = new Map<number, Float64Array>();
  return fit.runs.map((run, index) => {
    const fold = foldOf.get(names[index] as string) as number;
    const logs = madeOnce(byFold, fold, () => fit.without((_, other) => foldOf.get(names[other] as string) !== fold));
    return stepSeconds(run, logs);
  });
}
