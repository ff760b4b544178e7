/**
 * @file `autopar strategy diff`: the different decisions of two checkpoints, and the cost of each.
 */
import type { Compared, ExitKind } from '../api/index.js';
import type { Command, CommandContext } from './command.js';
import type { Output } from './output.js';
import { partText } from './part-text.js';
import { bytesText, countText, secondsText } from './quantity.js';
import { modelOption, modelOptions, type StrategyModelFlags, strategyData } from './strategy-options.js';
import { numberColumns, tableLines, textColumns } from './table.js';

interface DiffFlags extends StrategyModelFlags {
  readonly exitCode?: boolean;
  readonly all?: boolean;
}

export const diffCommand: Command<DiffFlags> = {
  name: 'diff',
  says: 'list differences of two checkpoints and their cost',
  arguments: [
    { name: '<before>', says: 'checkpoint of any form' },
    { name: '<after>', says: 'another of the same model' },
  ],
  options: [
    { flags: '--exit-code', says: 'exit with 1 if they differ' },
    { flags: '--all', says: 'every line; by default equal lines are counted' },
    modelOption,
  ],
  examples: [
    { line: 'autopar strategy diff mlp.autopar read.plan.json --exit-code', says: 'the same plan: exit code 0' },
    { line: 'autopar strategy diff mlp.ckpt mlp.json', says: 'two MindSpore checkpoints: split counts and layouts' },
  ],
  run: runDiff,
};

async function runDiff(
  context: CommandContext,
  [before = '', after = '']: readonly string[],
  flags: DiffFlags,
): Promise<ExitKind> {
  const { output } = context;
  const { diffStrategies } = await import('../api/index.js');
  const difference = await diffStrategies(before, after, modelOptions(flags));
  for (const line of diffLines(difference, output, flags.all ?? false)) output.print(line);
  strategyData(output, 'diff', { before, after, ...difference });
  return flags.exitCode && !difference.same ? 'checkFailed' : 'done';
}

const PARTS = [
  { part: 'settings', title: 'settings' },
  { part: 'places', title: 'stages' },
  { part: 'operators', title: 'operators' },
  { part: 'tensors', title: 'layouts' },
  { part: 'redistributions', title: 'reshards' },
] as const;

function diffLines(difference: Compared, output: Output, all: boolean): readonly string[] {
  const { bold } = output.colors;
  if (difference.same) return ['no differences'];
  const parts = PARTS.flatMap(({ part, title }) => {
    const list = difference[part];
    if (list.length === 0) return [];
    const rows = all ? list.map((entry) => [entry.name, entry.before ?? NONE, entry.after ?? NONE]) : alike(list);
    return [bold(`${title} (${list.length})`), ...tableLines(textColumns('', 'before', 'after'), rows, 60), ''];
  });
  return [...parts, ...unsharedLines(difference), ...costLines(difference, output)];
}

function unsharedLines({ unshared }: Compared): readonly string[] {
  if (!unshared) return [];
  const { before, after } = unshared;
  const alone = `${countText(before, 'operator')} of the first and ${after} of the second are in one graph alone`;
  return [`the graphs of the steps differ: ${alone}, and not compared`, ''];
}

const NONE = '–';

/** Lines that read alike are one, with their number. */
function alike(list: Compared['operators']): readonly (readonly string[])[] {
  const groups = new Map<string, { readonly row: readonly string[]; count: number }>();
  for (const { name, before, after } of list) {
    const key = JSON.stringify([before, after]);
    const known = groups.get(key);
    if (known) known.count++;
    else groups.set(key, { row: [name, before ?? NONE, after ?? NONE], count: 1 });
  }
  return [...groups.values()].map(({ row: [name = '', ...texts], count }) => [
    count === 1 ? name : `${name} and ${count - 1} more`,
    ...texts,
  ]);
}

function costLines({ cost }: Compared, output: Output): readonly string[] {
  if (!cost) return ['cost unknown: the checkpoints hold no prediction'];
  const seconds = Object.entries(cost.parts).map(([part, number]) => [part, number, secondsText] as const);
  const rows = [
    ['step', cost.stepSeconds, secondsText] as const,
    ...seconds.map(([part, number, text]) => [`  ${partText(part)}`, number, text] as const),
    ...cost.peakBytes.map(
      (number, stage) => [cost.peakBytes.length > 1 ? `memory, stage ${stage}` : 'memory', number, bytesText] as const,
    ),
    ['received per rank', cost.bytesCommunicated, bytesText] as const,
  ];
  return [
    output.colors.bold(`predicted cost (${countText(seconds.length, 'part')})`),
    ...tableLines(
      [...textColumns(''), ...numberColumns('before', 'after', 'change')],
      rows.map(([name, { before, after }, text]) => [name, text(before), text(after), change(before, after)]),
    ),
  ];
}

function change(before: number, after: number): string {
  if (before === after) return '=';
  if (before === 0) return 'new';
  if (after === 0) return 'gone';
  const share = (after / before - 1) * 100;
  return `${share > 0 ? '+' : '−'}${Math.abs(share).toPrecision(3)} %`;
}
