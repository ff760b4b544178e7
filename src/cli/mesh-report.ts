/**
 * @file The axes of a mesh as a table: the levels that their groups run on, over which link, and their time per step.
 */
import type { AxisUse, CompileResult } from '../api/index.js';
import { bytesText, countText, rateText, secondsText } from './quantity.js';
import { tableLines } from './table.js';

/** Nothing where no axis has more than one rank. */
export function meshLines(axes: readonly AxisUse[]): readonly string[] {
  if (axes.length === 0) return ['one rank: no axis communicates'];
  return tableLines(
    [
      { title: 'axis' },
      { title: 'ranks', right: true },
      { title: 'runs on' },
      { title: 'slowest link' },
      { title: 'sent per rank', right: true },
      { title: 'time', right: true },
      { title: 'hidden', right: true },
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

/** `8 micro-batches`, `4 micro-batches in halves`. */
export function microBatchesText({ microBatches, interleave }: CompileResult['plan']['schedule']): string {
  const count = countText(microBatches / (interleave ?? 1), 'micro-batch', 'micro-batches');
  return interleave ? `${count} in halves` : count;
}
