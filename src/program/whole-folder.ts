/**
 * @file Loading a program from a folder that another process may replace meanwhile: `compile` puts a new folder in its place.
 */
import { stat } from 'node:fs/promises';
import { stableJson } from './atomic.js';
import type { Program } from './program.js';
import { readProgram } from './reader.js';
import { AutoparError } from './values.js';

/**
 * Loads the files of `program`, which was read from `folder`.
 * @throws AutoparError (input) `folder-replaced` where the folder has been replaced: files may be missing, or be of both programs
 */
export async function loadWhole<Loaded extends { readonly close: () => Promise<void> }>(
  program: Program,
  folder: string,
  load: () => Promise<Loaded>,
): Promise<Loaded> {
  const place = await placeOf(folder);
  let loaded: Loaded | null = null;
  let failure: unknown = null;
  try {
    loaded = await load();
  } catch (error) {
    failure = error;
  }
  const replaced = (await placeOf(folder)) !== place || (loaded === null && (await holdsAnother(folder, program)));
  if (!replaced || (failure !== null && !isOfFiles(failure))) {
    if (loaded !== null) return loaded;
    throw failure;
  }
  await loaded?.close();
  throw new AutoparError(
    'folder-replaced',
    'input',
    `the program ${folder} was replaced by another one while it was loaded`,
    { file: folder },
    'run the command again when `compile` has ended',
  );
}

/** Tells a folder from another one of the same name; empty where there is none. */
async function placeOf(folder: string): Promise<string> {
  return stat(folder).then(
    ({ dev, ino }) => `${dev} ${ino}`,
    () => '',
  );
}

async function holdsAnother(folder: string, program: Program): Promise<boolean> {
  const found = await readProgram(folder).catch(() => null);
  return found !== null && stableJson(found) !== stableJson(program);
}

function isOfFiles(error: unknown): boolean {
  return error instanceof AutoparError && error.exit === 'input';
}
