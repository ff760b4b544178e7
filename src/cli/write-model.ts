/**
 * @file `--write-model F.onnx`: the common part of the commands that take `--model`.
 */
import type { Inspection, InspectOptions } from '../api/index.js';
import { withoutUndefined } from '../api/words.js';
import type { CommandOption } from './command.js';

export type WriteModelFlags = Pick<InspectOptions, 'writeModel' | 'force'>;

/** The option of a command that has a `--force` of its own. */
export const writeModelOption: CommandOption = {
  flags: '--write-model <file.onnx>',
  says: 'also write the --model model, with weights as inputs',
};

export const writeModelOptions: readonly CommandOption[] = [
  writeModelOption,
  { flags: '--force', says: 'replace the file of --write-model' },
];

/** The options of a verb that the flags stand for. */
export function writeModelIn({ writeModel, force }: WriteModelFlags): WriteModelFlags {
  return withoutUndefined({ writeModel, force });
}

/** Where the model went, if it was written. */
export function writtenModelLines({ writtenModel }: Pick<Inspection, 'writtenModel'>): readonly string[] {
  return writtenModel === undefined ? [] : [`the model is in ${writtenModel}, its weights as inputs without values`];
}

/** The same for programs. */
export function writtenModelJson({ writtenModel }: Pick<Inspection, 'writtenModel'>): Pick<Inspection, 'writtenModel'> {
  return writtenModel === undefined ? {} : { writtenModel };
}
