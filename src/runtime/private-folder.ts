/**
 * @file A folder that exists while ranks open their files in it. Open files need no name: once the ranks have loaded, the folder
 * is removed, and the files disappear with the ranks, however they end.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { folderError } from './disk-file.js';

/** Runs `act` with a new folder in `parent`. @throws AutoparError `offload-folder` (cannotWrite) where it cannot be made */
export async function withPrivateFolder<Result>(
  parent: string = tmpdir(),
  act: (folder: string) => Promise<Result>,
): Promise<Result> {
  const prefix = path.join(path.resolve(parent), 'autopar-offload-');
  const folder = await mkdtemp(prefix).catch((error: unknown) => {
    throw folderError(prefix, 'files of ranks', error);
  });
  try {
    return await act(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
