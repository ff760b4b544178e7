/**
 * @file `autopar strategy`: strategy checkpoints between their forms.
 */
import type { ExitKind } from '../api/index.js';
import { usageError } from '../api/words.js';
import { type Command, type CommandContext, unknownAction } from './command.js';
import { convertCommand } from './strategy-convert.js';
import { diffCommand } from './strategy-diff.js';
import { exportCommand, importCommand, mergeCommand } from './strategy-forms.js';
import { showCommand } from './strategy-show.js';

const SUBCOMMANDS: readonly Command<never>[] = [
  exportCommand,
  importCommand,
  mergeCommand,
  diffCommand,
  convertCommand,
  showCommand,
];

export const strategyCommand: Command = {
  name: 'strategy',
  says: 'export, import, merge, compare, convert and show strategy checkpoints',
  arguments: [{ name: '[action]', says: SUBCOMMANDS.map(({ name }) => name).join(', ') }],
  options: [],
  examples: [
    {
      line: 'autopar compile models/mlp.onnx --dp 2 --tp 2 --plan-only -o mlp.autopar',
      says: 'write a folder with plan.json, the strategy checkpoint',
    },
    { line: 'autopar strategy show mlp.autopar', says: 'print its decisions' },
  ],
  subcommands: SUBCOMMANDS,
  run: withoutAction,
};

function withoutAction(_context: CommandContext, [action]: readonly string[]): Promise<ExitKind> {
  const names = SUBCOMMANDS.map(({ name }) => name);
  if (action !== undefined) throw unknownAction(strategyCommand, action);
  throw usageError(
    'missing-argument',
    'strategy: the action is missing',
    `give one of ${names.join(', ')}; autopar strategy --help lists them`,
  );
}
