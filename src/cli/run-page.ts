/** @file `--report` of a run: the spans of each rank in the last step, its memory and the data that it received. */

import type { Page, RunReport } from '../api/index.js';
import { shellWord } from '../api/words.js';
import { timelineSection } from './plan-page.js';
import { bytesText, secondsText } from './quantity.js';
import { numberColumns } from './table.js';

/** Milliseconds, as ranks take the time. */
const SECOND = 1e3;

/** @param directory of the program */
export function runPage(directory: string, report: RunReport, json: unknown): Page {
  const { spans, ranks, stepSeconds } = report;
  const first = spans.flat().reduce((least, { from }) => Math.min(least, from), Number.POSITIVE_INFINITY);
  // Actions contain instructions: each rank has a line of actions, and below it a line of instructions.
  const lines = spans.flatMap((_, rank) => [`rank ${rank}`, `${rank}: instructions`]);
  const bars = spans.flatMap((own, rank) =>
    own.map(({ kind, label, microBatch, from, until }) => ({
      line: 2 * rank + (label === null ? 0 : 1),
      from: ((label === null ? afterBubble(own, { kind, from, until }) : from) - first) / SECOND,
      until: (until - first) / SECOND,
      // `send forward to 1` is one of the sends.
      kind: kind.split(' ')[0] ?? kind,
      label: label ?? (microBatch === null ? kind : `${kind} of micro-batch ${microBatch}`),
    })),
  );
  const sorted = [...stepSeconds].sort((a, b) => a - b);
  return {
    title: `${directory}: run`,
    facts: [
      ['steps', String(stepSeconds.length)],
      ['median', `${secondsText(sorted[sorted.length >> 1] ?? 0)} per step`],
      ['ranks', `${ranks.length}, backend ${report.backend}`],
      ['operators', `autopar explain ${shellWord(directory)} --report FILE shows how each is sharded, and why`],
    ],
    sections: [
      timelineSection('The last step, as it ran', lines, bars),
      {
        heading: 'Memory over the last step',
        picture: {
          kind: 'memory',
          curves: spans.map((own, rank) => ({
            name: `rank ${rank}`,
            points: own.flatMap(({ from, heldBytes }) =>
              heldBytes === null ? [] : [[(from - first) / SECOND, heldBytes] as const],
            ),
            atPeak: `rank ${rank}`,
          })),
        },
      },
      {
        heading: 'Ranks',
        picture: {
          ...{ kind: 'bars', unit: 'MB', bars: ranks.map(({ rank }) => `rank ${rank}`) },
          parts: [{ name: 'memory at the peak', amounts: ranks.map(({ peakBytes }) => peakBytes / 1e6) }],
        },
        height: 150 + 34 * ranks.length,
        table: {
          columns: numberColumns('rank', 'computes', 'communicates', 'waits', 'memory at the peak', 'received'),
          rows: ranks.map(({ rank, computeSeconds, communicateSeconds, waitSeconds, peakBytes, bytesCommunicated }) => [
            String(rank),
            secondsText(computeSeconds),
            secondsText(communicateSeconds),
            secondsText(waitSeconds),
            bytesText(peakBytes),
            bytesText(bytesCommunicated),
          ]),
        },
      },
    ],
    json,
  };
}

type RunSpan = Pick<RunReport['spans'][number][number], 'kind' | 'from' | 'until'>;

/** When an action began to do something: one that receives may have waited before, which is drawn as a bubble. */
function afterBubble(spans: readonly RunSpan[], { kind, from, until }: RunSpan): number {
  if (!kind.startsWith('recv')) return from;
  return spans.find((span) => span.kind === 'bubble' && span.from >= from && span.until <= until)?.until ?? from;
}
