/**
 * @file `autopar plot`: the losses of training runs in one picture.
 */

import type { ExitKind } from '../api/index.js';
import { plot } from '../api/verbs.js';
import type { Command, CommandContext } from './command.js';
import { type Column, numberColumns, tableLines, textColumns } from './table.js';

interface PlotFlags {
  readonly output?: string;
}

export const plotCommand: Command<PlotFlags> = {
  name: 'plot',
  says: 'draw the losses of training runs as SVG',
  arguments: [{ name: '<run...>', says: 'folders of train, or metrics.jsonl; NAME=DIR sets the legend' }],
  options: [{ flags: '-o, --output <file>', says: 'SVG file to write (default: losses.svg)' }],
  examples: [
    { line: 'autopar plot gpt-tiny.autopar', says: "one run's losses, and those of its evaluations" },
    {
      line: 'autopar plot one=gpt-tiny.autopar again=gpt-tiny.autopar -o both.svg',
      says: 'two runs in one picture',
    },
  ],
  run: runPlot,
};

const COLUMNS: readonly Column[] = [...textColumns('run'), ...numberColumns('steps', 'first loss', 'last loss')];

async function runPlot({ output }: CommandContext, runs: readonly string[], flags: PlotFlags): Promise<ExitKind> {
  const made = await plot({ runs, ...flags });
  const rows = made.runs.map(({ name, steps, firstLoss, lastLoss }) => [
    name,
    String(steps),
    firstLoss.toPrecision(6),
    lastLoss.toPrecision(6),
  ]);
  for (const line of tableLines(COLUMNS, rows)) output.print(line);
  output.print(`the picture is in ${made.file}`);
  output.data({ schema: 'autopar-plot-v1', ...made });
  return 'done';
}
