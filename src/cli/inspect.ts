/**
 * @file `autopar inspect`: how autopar understands a model.
 */

import type { ExitKind } from '../api/index.js';
import { inspect } from '../api/verbs.js';
import { withoutUndefined } from '../api/words.js';
import type { Command, CommandContext } from './command.js';
import { inspectionJson } from './inspect-json.js';
import { inspectionLines } from './inspect-report.js';
import { importOptionsOf, type ModelFlags, modelOptions, modelSource } from './model-options.js';
import { parameterOptions } from './training-form-options.js';
import { refuseTraining, type TrainingFlags, trainingOf, trainingOptions } from './training-options.js';
import { type WriteModelFlags, writeModelIn, writeModelOptions, writtenModelLines } from './write-model.js';

interface InspectFlags extends ModelFlags, WriteModelFlags, TrainingFlags {
  readonly parameters?: boolean;
}

/** Options of the training step that is shown. Micro-batches are a plan's, and inspect makes none. */
const stepOptions = trainingOptions
  .filter(({ flags }) => !flags.startsWith('--micro-batch'))
  .map((option) =>
    option.flags === '--train' ? { ...option, says: 'inspect the training step of the model' } : option,
  );

export const inspectCommand: Command<InspectFlags> = {
  name: 'inspect',
  says: 'show the dimensions, parameters, operators and layers of a model',
  arguments: [{ name: '[model]', says: 'ONNX file; or --model' }],
  options: [
    ...modelOptions,
    ...parameterOptions,
    { flags: '--parameters', says: 'list all parameters, not only the largest' },
    ...stepOptions,
    ...writeModelOptions,
  ],
  examples: [
    { line: 'autopar inspect models/gpt-tiny.onnx', says: 'dimensions, parameters, operators, layers, fused regions' },
    {
      line: 'autopar inspect models/llama-tiny.onnx --global-batch 8 --parameters',
      says: 'at another batch, with the list of parameters',
    },
  ],
  run: runInspect,
};

async function runInspect(context: CommandContext, [file]: readonly string[], flags: InspectFlags): Promise<ExitKind> {
  const { output, signal } = context;
  if (!flags.train) refuseTraining(flags);
  const source = modelSource(file, flags.model, 'inspect');
  const { tie, untie, trainable, frozen, parameters = false } = flags;
  const inspection = await inspect({
    ...source,
    ...writeModelIn(flags),
    ...(await importOptionsOf(flags)),
    ...withoutUndefined({ tie, untie, trainable, frozen }),
    ...(flags.train ? await trainingOf(flags) : {}),
    signal,
    onProgress: (text) => output.progress(text),
  });
  for (const note of inspection.notes) output.note(`note: ${note}`);
  for (const line of inspectionLines(inspection, output, parameters)) output.print(line);
  for (const line of writtenModelLines(inspection)) output.print(line);
  output.data(inspectionJson(inspection));
  return 'done';
}
