/**
 * @file Files of an untrusted folder: files that it names are read from the folder itself, whatever `..`, links and pipes
 * refer to.
 */
import { lstat, realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import { AutoparError } from '../ir/error.js';

/**
 * The path of a file that a folder names or holds, which may not exist.
 * @throws AutoparError `file-outside` (input) where it is outside of the folder, by name or by link; `file-unreadable` (input)
 *   where it is not a regular file: opening a pipe would wait for ever
 */
export async function insideFolder(folder: string, name: string): Promise<string> {
  const file = path.join(folder, name);
  if (path.isAbsolute(name) || !isInside(file, folder)) throw outside(file, path.resolve(folder, name));
  const real = await realpath(file).catch(() => null);
  if (real === null) return file;
  if (!isInside(real, await realpath(folder))) throw outside(file, real);
  const found = await stat(real);
  if (found.isFile() || found.isDirectory()) return file;
  throw new AutoparError(
    'file-unreadable',
    'input',
    `${file} is not a regular file`,
    { file },
    'replace it by the file',
  );
}

/**
 * The path of a file that a program is made of, which may not exist: the file itself, reached by no link. Behind a link inside of
 * the folder another of its files could stand in for it.
 * @throws AutoparError as `insideFolder`; `file-outside` (input) for every link
 */
export async function ownFile(folder: string, name: string): Promise<string> {
  const file = await insideFolder(folder, name);
  for (let part = file; path.relative(folder, part) !== ''; part = path.dirname(part)) {
    const found = await lstat(part).catch(() => null);
    if (found?.isSymbolicLink())
      throw new AutoparError(
        'file-outside',
        'input',
        `${part} is a link to ${await realpath(part)}`,
        { file: part },
        'replace the link by the file; autopar does not follow links in a program',
      );
  }
  return file;
}

function outside(file: string, real: string): AutoparError {
  return new AutoparError(
    'file-outside',
    'input',
    `${file} is ${real}, outside the folder`,
    { file },
    'copy the file into the folder; autopar does not follow links and paths out of it',
  );
}

function isInside(file: string, folder: string): boolean {
  const relative = path.relative(folder, file);
  return relative !== '..' && !relative.startsWith(`..${path.sep}`) && !path.isAbsolute(relative);
}
