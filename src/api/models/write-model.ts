/**
 * @file `--write-model F.onnx`: a command also writes the model that it generates.
 */
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { AutoparError } from '../../ir/error.js';
import { checkPlace } from '../../program/atomic.js';

export interface WriteModelOptions {
  /**
   * ONNX file to write the model of `generate` to, at `globalBatch`, its weights as inputs without values. In place of `generate`
   * it gives the same result.
   */
  readonly writeModel?: string;
  /** Replaces the file of `writeModel` where there is one. */
  readonly force?: boolean;
}

export interface WrittenModel {
  /** The file of `writeModel`, where that was given. */
  readonly writtenModel?: string;
}

/**
 * Runs `work`, then writes the model's file. The file exists only after the work is done.
 * @throws AutoparError before the work (usage) `bad-option`, (exit cannotWrite) `file-exists`, `cannot-write`; after it if the
 *   file cannot be written
 */
export async function alsoWritten<Result extends object>(
  { writeModel: file, force = false, generate = '', globalBatch }: WriteModelOptions & Generated,
  work: () => Promise<Result>,
): Promise<Result & WrittenModel> {
  if (file === undefined) return work();
  await checkFile(file, force);
  const result = await work();
  await (await import('./generated.js')).writeGenerated(file, generate, globalBatch);
  return { ...result, writtenModel: file };
}

interface Generated {
  readonly generate?: string | undefined;
  readonly globalBatch?: number;
}

async function checkFile(file: string, force: boolean): Promise<void> {
  if (path.extname(file).toLowerCase() !== '.onnx')
    throw new AutoparError(
      'bad-option',
      'usage',
      `--write-model ${file}: expected a name that ends in .onnx`,
      { file },
      'for example --write-model model.onnx',
    );
  const information = await stat(file).catch(() => null);
  if (information?.isDirectory())
    throw new AutoparError(
      'cannot-write',
      'cannotWrite',
      `cannot write ${file}: it is a folder`,
      { file },
      'choose another path',
    );
  if (information && !force)
    throw new AutoparError(
      'file-exists',
      'cannotWrite',
      `${file} exists, and --write-model would replace it`,
      { file },
      'choose another name, or replace it with --force',
    );
  await checkPlace(file);
}
