/**
 * @file `autopar export`: trained weights in the model's own ONNX file, or as safetensors.
 */

import type { ExitKind } from '../api/index.js';
import { exportWeights } from '../api/verbs.js';
import type { Command, CommandContext } from './command.js';
import { bytesText, countText } from './quantity.js';

interface ExportFlags {
  readonly output?: string;
  readonly checkpoint?: string;
  readonly model?: string;
}

export const exportCommand: Command<ExportFlags> = {
  name: 'export',
  says: "write trained weights into the model's ONNX file, or as safetensors",
  arguments: [{ name: '<dir>', says: 'folder that compile wrote, with checkpoints of autopar train' }],
  options: [
    {
      flags: '-o, --output <file>',
      says: '.onnx model or .safetensors weights by name (default: <model>-trained.onnx)',
    },
    { flags: '--checkpoint <dir>', says: 'checkpoint, or folder with checkpoints: the newest (default: of <dir>)' },
    { flags: '--model <file>', says: 'the ONNX file, if it was moved since compile' },
  ],
  examples: [
    {
      line: 'autopar export gpt-tiny.autopar',
      says: 'write gpt-tiny-trained.onnx with the weights of the newest checkpoint',
    },
    {
      line: 'autopar export gpt-tiny.autopar -o gpt-tiny.safetensors --json',
      says: "write the weights under their modules' names, and a JSON summary",
    },
  ],
  run: runExport,
};

async function runExport(
  context: CommandContext,
  [directory = '']: readonly string[],
  flags: ExportFlags,
): Promise<ExitKind> {
  const { output } = context;
  const file = flags.output ?? `${directory.replace(/(\.autopar)?\/*$/, '')}-trained.onnx`;
  const exported = await exportWeights({ directory, ...flags, output: file });
  const { step, tensors, bytes, checkpoint } = exported;
  output.print(`${countText(tensors, 'tensor')} (${bytesText(bytes)}) after step ${step} are in ${file}`);
  output.data({ schema: 'autopar-export-v1', directory, checkpoint, step, file, tensors, bytes });
  return 'done';
}
