/**
 * @file `autopar strategy convert`: any checkpoint into any form that can hold it, and compiled weights for another plan.
 */

import type { ExitKind, StrategyForm } from '../api/index.js';
import { type AutoparError, usageError, withoutUndefined } from '../api/words.js';
import type { Command, CommandContext } from './command.js';
import { report } from './strategy-forms.js';
import {
  configurationOption,
  modelOption,
  modelOptions,
  type StrategyModelFlags,
  sizeOptions,
  stageOption,
  strategyData,
} from './strategy-options.js';
import { choiceAmong, integerParser } from './values.js';

interface ConvertFlags extends StrategyModelFlags {
  readonly output?: string;
  readonly to?: StrategyForm;
  readonly stage?: number;
  readonly configuration?: string;
  readonly weights?: boolean;
  readonly force?: boolean;
  readonly rank?: number;
}

const FORMS: readonly StrategyForm[] = [
  'plan',
  'mindspore',
  'mindspore-json',
  'onnx',
  'annotations',
  'megatron',
  'torchtitan',
];

export const convertCommand: Command<ConvertFlags> = {
  name: 'convert',
  says: 'convert a checkpoint, or reshard compiled weights for another plan',
  arguments: [
    { name: '<from>', says: 'checkpoint of any form; with --weights: compiled folder to reshard' },
    { name: '[target]', says: 'with --weights or --rank: target plan (folder or plan.json)' },
  ],
  options: [
    { flags: '-o, --output <file>', says: 'file to write; with --weights: folder (default: the target)' },
    {
      flags: '--to <form>',
      says: `${FORMS.join(', ')} (default: by the output's ending)`,
      parse: choiceAmong(FORMS),
    },
    { flags: '--weights', says: "reshard a compiled folder's weights for the target's plan" },
    { flags: '--force', says: 'with --weights: replace a folder with other files' },
    {
      flags: '--rank <r>',
      says: "source ranks that this target rank needs (MindSpore's rank_list_for_transform)",
      parse: integerParser(0),
    },
    modelOption,
    stageOption,
    configurationOption,
    ...sizeOptions,
  ],
  examples: [
    { line: 'autopar strategy convert mlp.ckpt -o mlp-again.json', says: 'protobuf to JSON, by the file endings' },
    {
      line: 'autopar strategy convert mlp.ckpt mlp.json --rank 1',
      says: 'source ranks of rank 1 between the two plans',
    },
  ],
  idle: [
    {
      option: 'force',
      when: ({ weights }) => !weights,
      says: () => '--force applies to --weights only',
      hint: 'leave it out',
    },
    {
      option: 'to',
      when: ({ weights, rank }) => weights === true || rank !== undefined,
      says: ({ weights }) =>
        `--to names the form of a checkpoint, and ${weights ? '--weights writes weights' : '--rank lists ranks'}`,
      hint: 'leave one of the two out',
    },
    {
      option: 'output',
      when: ({ weights, rank }) => !weights && rank !== undefined,
      says: () => '--output names a file to write, and --rank writes none',
      hint: 'leave one of the two out',
    },
    {
      option: 'rank',
      when: ({ weights }) => weights === true,
      says: () => '--rank lists ranks, and --weights reshards weights of all ranks',
      hint: 'leave one of the two out',
    },
  ],
  run: runConvert,
};

async function runConvert(
  context: CommandContext,
  [from = '', target]: readonly string[],
  flags: ConvertFlags,
): Promise<ExitKind> {
  const { output, to, stage, configuration } = flags;
  if (flags.weights) return recutTo(context, from, target, flags);
  if (flags.rank !== undefined) return listRanks(context, from, target, flags);
  if (target !== undefined && output !== undefined)
    throw missing('convert takes one checkpoint', 'leave out the second');
  const file = output ?? target;
  if (file === undefined) throw missing('convert: the file to write is missing', 'name it with -o');
  const { convertStrategy } = await import('../api/index.js');
  const converted = await convertStrategy({
    from,
    output: file,
    ...modelOptions(flags),
    ...withoutUndefined({ to, stage, configuration }),
  });
  return report(context, 'convert', [converted]);
}

async function recutTo(
  { output: out, signal }: CommandContext,
  from: string,
  to: string | undefined,
  flags: ConvertFlags,
): Promise<ExitKind> {
  if (to === undefined)
    throw missing('convert --weights: the plan to cut for is missing', 'name a folder or plan.json');
  const { output, force } = flags;
  const { recut } = await import('../api/index.js');
  const folder = await recut({
    from,
    to,
    ...modelOptions(flags),
    ...withoutUndefined({ output, force }),
    signal,
  });
  out.print(`${folder}: weights of ${from}, cut for the plan of ${to}`);
  strategyData(out, 'convert', { weights: { from, to, output: folder } });
  return 'done';
}

async function listRanks(
  { output }: CommandContext,
  from: string,
  to: string | undefined,
  flags: ConvertFlags,
): Promise<ExitKind> {
  const { rank = 0 } = flags;
  if (to === undefined) throw missing('convert --rank: the plan to change to is missing', 'name its checkpoint');
  const { ranksForTransform } = await import('../api/index.js');
  const ranks = await ranksForTransform(from, to, rank, modelOptions(flags));
  output.print(`rank ${rank} needs the files of ${ranks.length === 1 ? 'rank' : 'ranks'} ${ranks.join(', ')}`);
  strategyData(output, 'convert', { rank, ranks });
  return 'done';
}

function missing(message: string, hint: string): AutoparError {
  return usageError('missing-argument', message, hint);
}
