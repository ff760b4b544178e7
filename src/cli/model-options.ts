/**
 * @file Options for reading a model: the common options of commands that take a MODEL.
 */
import type { ImportOptions } from '../api/index.js';
import { badOption, FAMILY_NAMES, usageError, withoutUndefined } from '../api/words.js';
import type { CommandOption } from './command.js';
import { listText } from './quantity.js';
import { beforeFile, integerParser, nameAndValue, repeatedValues, sizes } from './values.js';

/** Their values, by the names that the parser gives them. */
export interface ModelFlags {
  readonly model?: string;
  readonly dim?: Readonly<Record<string, number>>;
  readonly shape?: Readonly<Record<string, readonly number[]>>;
  readonly const?: Readonly<Record<string, string>>;
  readonly globalBatch?: number;
  readonly weights?: readonly string[];
}

/** Sizes of a model's inputs. */
export const dimensionOptions: readonly CommandOption[] = [
  {
    flags: '--dim <name=n>',
    says: 'bind a dimension by name, or by place (x[0]=n); repeatable',
    parse: nameAndValue(integerParser(1), 'batch=8'),
    repeats: true,
  },
  {
    flags: '--shape <input=n,...>',
    says: 'bind all dimensions of an input; repeatable',
    parse: nameAndValue(sizes, 'ids=2,128'),
    repeats: true,
  },
];

export const globalBatchOption: CommandOption = {
  flags: '--global-batch <n>',
  says: 'rebuild the model at this batch size',
  parse: integerParser(1),
};

export const modelOptions: readonly CommandOption[] = [
  {
    flags: '--model <family:key=value,...>',
    says: `generated model instead of a file: ${listText(FAMILY_NAMES, 'or')}`,
  },
  ...dimensionOptions,
  {
    flags: '--const <name=value>',
    says: 'fix an input to a number, true, false, or the array of a .npy file; repeatable',
    parse: nameAndValue(String, 'mask=mask.npy', beforeFile),
    repeats: true,
  },
  globalBatchOption,
  {
    flags: '--weights <glob>',
    says: 'inputs that are weights, not data; repeatable',
    parse: repeatedValues,
    repeats: true,
  },
];

/** The options of importing that the flags stand for; reads the files of `--const`. */
export async function importOptionsOf({
  dim: dims,
  shape: shapes,
  const: files,
  globalBatch,
  weights,
}: ModelFlags): Promise<ImportOptions> {
  return withoutUndefined({ dims, shapes, constants: files && (await readConstants(files)), globalBatch, weights });
}

/**
 * The model that a command is about: a file, or a family.
 * @throws AutoparError (usage) `missing-argument` for neither, `bad-option` for both
 */
export function modelSource(
  file: string | undefined,
  family: string | undefined,
  command: string,
): { readonly model: string } | { readonly generate: string } {
  if (file !== undefined && family === undefined) return { model: file };
  if (file === undefined && family !== undefined) return { generate: family };
  const hint = `give a file or --model gpt:layers=12; autopar ${command} --help shows its usage`;
  if (file === undefined) throw usageError('missing-argument', 'neither a model file nor --model is given', hint);
  throw badOption(`--model ${family} contradicts the file ${file}`, hint);
}

async function readConstants(
  files: Readonly<Record<string, string>>,
): Promise<NonNullable<ImportOptions['constants']>> {
  if (Object.keys(files).length === 0) return {};
  const { readArray } = await import('../api/index.js');
  const read = Object.entries(files).map(
    async ([name, text]) => [name, literalOf(text) ?? (await readArray(text))] as const,
  );
  return Object.fromEntries(await Promise.all(read));
}

/** The number or boolean that a text is; null for the name of a file. */
function literalOf(text: string): number | boolean | null {
  if (text === 'true' || text === 'false') return text === 'true';
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) : null;
}
