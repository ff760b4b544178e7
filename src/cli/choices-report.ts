/**
 * @file The common part of reports on choices of operator plans and of training steps: the effect of another cluster.
 */
import { bytesText, portionText, secondsText } from './quantity.js';
import { numberColumns, tableLines, textColumns } from './table.js';

/** A change of the cluster with the plan that is best then; null where nothing fits. */
export interface ChangedCluster {
  readonly change: string;
  readonly best: { readonly seconds: number; readonly bytes: number; readonly texts: readonly string[] } | null;
  /** Its seconds over those of the current plan. */
  readonly ratio: number | null;
}

/** @param titles of the columns for each plan beside its seconds and memory */
export function sensitivityTable(titles: readonly string[], changes: readonly ChangedCluster[]): readonly string[] {
  return tableLines(
    [...textColumns('with'), ...numberColumns('step', 'faster', 'memory'), ...textColumns(...titles)],
    changes.map(({ change, best, ratio }) =>
      best === null || ratio === null
        ? [change, 'nothing fits', '', '', ...titles.map(() => '')]
        : [change, secondsText(best.seconds), portionText(1 - ratio), bytesText(best.bytes), ...best.texts],
    ),
    80,
  );
}
