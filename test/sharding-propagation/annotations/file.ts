/**
 * @file Annotation files for tests, and the refusals of what they hold.
 */
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { AutoparError } from '../../../src/ir/error.js';

export async function fileOf(text: string, name = 'pins.yaml'): Promise<string> {
  const file = join(await mkdtemp(join(tmpdir(), 'autopar-test-')), name);
  await writeFile(file, text);
  return file;
}

/** The refusal, once it is sure to be one for the user. */
export async function refused(t: ExecutionContext, work: () => unknown): Promise<AutoparError> {
  const error = await t.throwsAsync(async () => {
    await work();
  });
  if (!(error instanceof AutoparError)) throw error ?? new Error('not refused');
  t.truthy(error.hint);
  return error;
}
