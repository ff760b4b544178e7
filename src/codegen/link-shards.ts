/**
 * @file Weights of a target's folder: the files of the bundled runtime's program.
 */
import { constants } from 'node:fs';
import { copyFile, link, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { cannotWrite } from '../program/atomic.js';

/**
 * Gives `files` of the folder `beside` the same names in `directory`: links where the file system has them, else copies.
 * @param asCopies never links: readers of ONNX refuse data files that have several names
 * @throws AutoparError (exit cannotWrite)
 */
export async function linkShards(
  files: Iterable<string>,
  beside: string,
  directory: string,
  asCopies: boolean,
  signal?: AbortSignal,
): Promise<void> {
  try {
    await mkdir(path.join(directory, 'weights'), { recursive: true });
    for (const file of files) {
      signal?.throwIfAborted();
      const [from, to] = [path.join(beside, file), path.join(directory, file)];
      const copy = () => copyFile(from, to, constants.COPYFILE_FICLONE);
      await (asCopies ? copy() : link(from, to).catch(copy));
    }
  } catch (error) {
    throw cannotWrite(error, directory);
  }
}
