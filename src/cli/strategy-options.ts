/**
 * @file Common options of the subcommands of `autopar strategy`.
 */
import type { ModelOptions } from '../api/index.js';
import type { CommandOption } from './command.js';
import { dimensionOptions, requestedDimensions } from './model-options.js';
import type { Output } from './output.js';
import { integerParser } from './values.js';

export interface StrategyModelFlags {
  readonly model?: string;
  readonly dim?: Readonly<Record<string, number>>;
  readonly shape?: Readonly<Record<string, readonly number[]>>;
  readonly globalBatch?: number;
}

export const modelOption: CommandOption = {
  flags: '--model <file>',
  says: 'the ONNX model (default: the path in the compiled folder)',
};

/** For models without a plan that says how they were imported. */
export const sizeOptions: readonly CommandOption[] = [
  ...dimensionOptions,
  {
    flags: '--global-batch <n>',
    says: 'rebuild the model at this batch size',
    parse: integerParser('--global-batch', 1),
  },
];

export const stageOption: CommandOption = {
  flags: '--stage <n>',
  says: 'only this pipeline stage, for a MindSpore file',
  parse: integerParser('--stage', 0),
};

export const configurationOption: CommandOption = {
  flags: '--configuration <name>',
  says: 'which multi-device configuration of an ONNX model to read',
};

export function modelOptions({ model, globalBatch, ...sizes }: StrategyModelFlags): ModelOptions {
  return {
    ...(model === undefined ? {} : { model }),
    ...requestedDimensions(sizes),
    ...(globalBatch === undefined ? {} : { globalBatch }),
  };
}

/** The object of --json. */
export function strategyData(output: Output, action: string, result: Readonly<Record<string, unknown>>): void {
  output.data({ schema: 'autopar-strategy-v1', action, ...result });
}

export function printNotes(output: Output, notes: readonly string[]): void {
  for (const note of notes) output.note(`note: ${note}`);
}
