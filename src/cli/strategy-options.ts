/**
 * @file Common options of the subcommands of `autopar strategy`.
 */
import type { ModelOptions } from '../api/index.js';
import { withoutUndefined } from '../api/words.js';
import type { CommandOption } from './command.js';
import { dimensionOptions, globalBatchOption, type ModelFlags } from './model-options.js';
import type { Output } from './output.js';
import { integerParser } from './values.js';

export type StrategyModelFlags = Pick<ModelFlags, 'model' | 'dim' | 'shape' | 'globalBatch'>;

export const modelOption: CommandOption = {
  flags: '--model <file>',
  says: 'the ONNX model (default: the path in the compiled folder)',
};

/** For models without a plan that says how they were imported. */
export const sizeOptions: readonly CommandOption[] = [...dimensionOptions, globalBatchOption];

export const stageOption: CommandOption = {
  flags: '--stage <n>',
  says: 'only this pipeline stage, for a MindSpore file',
  parse: integerParser(0),
};

export const configurationOption: CommandOption = {
  flags: '--configuration <name>',
  says: 'which multi-device configuration of an ONNX model to read',
};

export function modelOptions({ model, dim: dims, shape: shapes, globalBatch }: StrategyModelFlags): ModelOptions {
  return withoutUndefined({ model, dims, shapes, globalBatch });
}

/** The object of --json. */
export function strategyData(output: Output, action: string, result: Readonly<Record<string, unknown>>): void {
  output.data({ schema: 'autopar-strategy-v1', action, ...result });
}

export function printNotes(output: Output, notes: readonly string[]): void {
  for (const note of notes) output.note(`note: ${note}`);
}
