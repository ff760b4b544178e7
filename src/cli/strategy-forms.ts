/**
 * @file `autopar strategy export`, `import` and `merge`: between our checkpoint and those of others.
 */

import path from 'node:path';
import type { Converted, ConvertOptions, ExitKind, StrategyForm } from '../api/index.js';
import { usageError, withoutUndefined } from '../api/words.js';
import type { Command, CommandContext } from './command.js';
import { degreeOptions } from './degrees.js';
import {
  configurationOption,
  modelOption,
  modelOptions,
  printNotes,
  type StrategyModelFlags,
  sizeOptions,
  stageOption,
  strategyData,
} from './strategy-options.js';
import { integerParser } from './values.js';

interface StrategyExportFlags extends StrategyModelFlags {
  readonly mindspore?: string;
  readonly onnx?: string;
  readonly pins?: string;
  readonly megatron?: string;
  readonly torchtitan?: string;
  readonly tpPlan?: string;
  readonly stage?: number;
}

export const exportCommand: Command<StrategyExportFlags> = {
  name: 'export',
  says: 'export a plan to other formats',
  arguments: [{ name: '<plan>', says: 'folder that compile wrote, plan.json, or an annotated ONNX model' }],
  options: [
    { flags: '--mindspore <file>', says: 'MindSpore strategy checkpoint, as JSON (.json) or protobuf' },
    { flags: '--onnx <file>', says: 'a copy of the model with multi-device annotations' },
    { flags: '--pins <file>', says: 'annotation file that pins every choice, JSON (.json) or YAML' },
    { flags: '--megatron <file>', says: 'flags of Megatron-LM, as an array of bash' },
    { flags: '--torchtitan <file>', says: 'a job configuration of torchtitan, in TOML' },
    { flags: '--tp-plan <file>', says: "Hugging Face's tp_plan: a style by module name, in JSON" },
    modelOption,
    stageOption,
  ],
  examples: [
    {
      line: 'autopar strategy export mlp.autopar --mindspore mlp.ckpt --onnx mlp-annotated.onnx',
      says: 'for MindSpore, and into a copy of the model',
    },
    { line: 'autopar strategy export mlp.autopar --mindspore mlp.json', says: "MindSpore's JSON form" },
  ],
  run: runExport,
};

async function runExport(
  context: CommandContext,
  [plan = '']: readonly string[],
  flags: StrategyExportFlags,
): Promise<ExitKind> {
  const { mindspore, onnx, pins, tpPlan, megatron, torchtitan, stage } = flags;
  const targets: readonly (readonly [string | undefined, StrategyForm])[] = [
    [mindspore, /\.json$/i.test(mindspore ?? '') ? 'mindspore-json' : 'mindspore'],
    [onnx, 'onnx'],
    [pins, 'annotations'],
    [megatron, 'megatron'],
    [torchtitan, 'torchtitan'],
    [tpPlan, 'tp-plan'],
  ];
  const asked = targets.flatMap(([output, to]) => (output === undefined ? [] : [{ output, to }]));
  if (asked.length === 0) {
    throw usageError(
      'missing-argument',
      'export: the form is missing',
      'give --mindspore FILE, or another of --onnx, --pins, --tp-plan, --megatron and --torchtitan',
    );
  }
  const { convertStrategies } = await import('../api/index.js');
  const common = { from: plan, ...modelOptions(flags), ...withoutUndefined({ stage }) };
  return report(context, 'export', await convertStrategies(asked.map((target) => ({ ...common, ...target }))));
}

interface ImportFlags extends StrategyModelFlags {
  readonly output?: string;
  readonly devices?: number;
  readonly dp?: number;
  readonly tp?: number;
  readonly sp?: number;
  readonly configuration?: string;
  readonly pinsOnly?: boolean;
}

export const importCommand: Command<ImportFlags> = {
  name: 'import',
  says: 'import a plan, or pins for `compile --annotations`, from other formats',
  arguments: [
    { name: '<checkpoint>', says: 'MindSpore strategy checkpoint, or ONNX model with multi-device annotations' },
  ],
  options: [
    { flags: '-o, --output <file>', says: 'file to write (default: <stem>.plan.json or <stem>.pins.yaml)' },
    modelOption,
    ...degreeOptions(['dp', 'tp', 'sp']),
    {
      flags: '--devices <n>',
      says: 'number of devices; refuse a checkpoint for another number',
      parse: integerParser(1),
    },
    configurationOption,
    { flags: '--pins-only', says: 'read ONNX annotations and ignore an embedded plan' },
    ...sizeOptions,
  ],
  examples: [
    {
      line: 'autopar strategy import mlp-annotated.onnx -o read.plan.json',
      says: 'the plan that was written into the model',
    },
    {
      line: 'autopar strategy import mlp.ckpt --model models/mlp.onnx -o mlp.pins.yaml',
      says: "MindSpore's strategies as pins on the model",
    },
  ],
  run: runImport,
};

async function runImport(
  context: CommandContext,
  [from = '']: readonly string[],
  flags: ImportFlags,
): Promise<ExitKind> {
  const { convertStrategy, holdsPlan } = await import('../api/index.js');
  const { devices, dp, tp, sp, configuration, pinsOnly } = flags;
  const plan = !pinsOnly && (await holdsPlan(from));
  const stem = path.basename(from).replace(/\.\w+$/, '');
  const degrees = withoutUndefined({ dp, tp, sp });
  const options: ConvertOptions = {
    from,
    to: plan ? 'plan' : 'annotations',
    output: flags.output ?? `${stem}.${plan ? 'plan.json' : 'pins.yaml'}`,
    ...modelOptions(flags),
    ...(Object.keys(degrees).length > 0 ? { degrees } : {}),
    ...withoutUndefined({ devices, configuration, pinsOnly }),
  };
  return report(context, 'import', [await convertStrategy(options)]);
}

interface MergeFlags {
  readonly output?: string;
}

export const mergeCommand: Command<MergeFlags> = {
  name: 'merge',
  says: 'merge the files of pipeline stages into one',
  arguments: [{ name: '<files...>', says: 'MindSpore strategy checkpoints, one per stage' }],
  options: [{ flags: '-o, --output <file>', says: 'file to write: .ckpt or .json (default: merged.ckpt)' }],
  examples: [
    {
      line: 'autopar strategy merge mlp.ckpt -o merged.ckpt',
      says: 'parameters get their stage in front: 0-fc1.weight',
    },
    { line: 'autopar strategy merge mlp.json -o merged.json', says: 'the same in JSON' },
  ],
  run: runMerge,
};

async function runMerge(context: CommandContext, files: readonly string[], flags: MergeFlags): Promise<ExitKind> {
  const { mergeStrategies } = await import('../api/index.js');
  return report(context, 'merge', [await mergeStrategies(files, flags.output ?? 'merged.ckpt')]);
}

/** Names of forms for people. */
const NAMES: Readonly<Record<StrategyForm, string>> = {
  plan: 'plan',
  mindspore: 'MindSpore strategy checkpoint',
  'mindspore-json': 'MindSpore strategy checkpoint in JSON',
  onnx: 'annotated ONNX model',
  annotations: 'annotations',
  megatron: 'flags of Megatron-LM',
  torchtitan: 'job configuration of torchtitan',
  'tp-plan': 'tp_plan',
};

/** Reports the written files. */
export function report({ output }: CommandContext, action: string, written: readonly Converted[]): ExitKind {
  for (const { to, output: file, notes } of written) {
    printNotes(output, notes);
    output.print(`${file}: ${NAMES[to]}`);
  }
  strategyData(output, action, { written });
  return 'done';
}
