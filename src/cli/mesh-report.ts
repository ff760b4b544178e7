/**
 * @file The axes of a mesh as a table: the levels that their groups run on, over which link, and their time per step.
 */
import type { AxisUse, CompileResult } from '../api/index.js';
import { bytesText, countText, rateText, secondsText } from './quantity.js';
import { numberColumns, tableLines, textColumns } from './table.js';

/** One line where no axis has more than one rank. */
export function meshLines(axes: readonly AxisUse[]): readonly string[] {
  if (axes.length === 0) return ['one rank: no axis communicates'];
  return [...ofStageLines(axes), ...axisTable(axes)];
}

/** The stage whose ranks' bytes these are, where all are of one: the one whose ranks send most. */
function ofStageLines(axes: readonly AxisUse[]): readonly string[] {
  const stages = new Set(axes.map(({ stage }) => stage));
  const [stage] = stages;
  if (stage === undefined || stages.size > 1) return [];
  const sent = axes.reduce((sum, { sentBytes }) => sum + sentBytes, 0);
  return [`a rank of stage ${stage}, the stage whose ranks send most: ${bytesText(sent)} per step`, ''];
}

function axisTable(axes: readonly AxisUse[]): readonly string[] {
  return tableLines(
    [
      ...textColumns('axis'),
      ...numberColumns('ranks'),
      ...textColumns('runs on', 'slowest link'),
      ...numberColumns('sent per rank', 'time', 'hidden'),
    ],
    axes.map(({ axis, ranks, levels, link, sentBytes, seconds, hiddenSeconds }) => [
      axis,
      `${ranks}`,
      levels.map(({ level, members }) => `${level} ${members}`).join(' · '),
      link === null ? '' : `${link.level}, ${rateText(link.bytesPerSecond)}`,
      sentBytes > 0 ? bytesText(sentBytes) : '',
      secondsText(seconds),
      hiddenSeconds > 0 ? secondsText(hiddenSeconds) : '',
    ]),
  );
}

/** Meshes of stages, one after the other: `tp 2 | dp 2`; axes of one rank are left out where there are others. */
export function stageMeshesText(
  meshes: readonly (readonly { readonly axis: string; readonly size: number }[])[],
): string {
  return meshes
    .map((axes) => {
      const used = axes.filter(({ size }) => size > 1);
      return (used.length > 0 ? used : axes.slice(0, 1)).map(({ axis, size }) => `${axis} ${size}`).join(' · ');
    })
    .join(' | ');
}

/** `1f1b, 8 micro-batches`. */
export function scheduleText({ schedule, training }: Pick<CompileResult['plan'], 'schedule' | 'training'>): string {
  const { kind, virtualStages = 1 } = schedule;
  const batches = microBatchesText(schedule);
  const chunks = virtualStages > 1 ? `, ${virtualStages} chunks a stage` : '';
  return training ? `${kind}, ${batches}${chunks}` : `forwards alone${chunks}`;
}

/** `8 micro-batches`, `4 micro-batches in halves`. */
function microBatchesText({ microBatches, interleave }: CompileResult['plan']['schedule']): string {
  const count = countText(microBatches / (interleave ?? 1), 'micro-batch', 'micro-batches');
  return interleave ? `${count} in halves` : count;
}
