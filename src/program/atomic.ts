/**
 * @file Atomic writes, so that no file is ever seen half-written: to a temporary name beside the target, synced, then renamed.
 * On any failure, the temporary is removed and the previous file or folder stays.
 */
import { constants } from 'node:fs';
import { access, type FileHandle, mkdir, open, rename, rm, rmdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { AutoparError } from '../ir/error.js';
import { removeLeftovers, temporaryName } from './leftovers.js';

/** Writes a whole file. Throws AutoparError (exit cannotWrite) where the disk is full or the place not writable. */
export async function writeFileAtomic(file: string, data: Uint8Array | string): Promise<void> {
  await streamFileAtomic(file, async (write) => {
    await write(typeof data === 'string' ? Buffer.from(data, 'utf8') : data);
  });
}

/** Writes a value as JSON with sorted keys and a final newline: equal values give equal bytes. */
export async function writeJsonAtomic(file: string, value: unknown): Promise<void> {
  await writeFileAtomic(file, stableJson(value));
}

/** JSON with keys sorted at every level, two spaces of indentation, and a final newline. */
export function stableJson(value: unknown): string {
  return `${JSON.stringify(sorted(value), null, 2)}\n`;
}

/**
 * Writes a file piece by piece, never holding all of it: `fill` gets a function that appends bytes.
 * The file appears under its name when `fill` is done, or not at all.
 */
export async function streamFileAtomic(
  file: string,
  fill: (write: (bytes: Uint8Array) => Promise<void>) => Promise<void>,
): Promise<void> {
  await removeLeftovers(file);
  const temporary = temporaryName(file);
  let handle: FileHandle | null = null;
  try {
    handle = await open(temporary, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o666);
    const opened = handle;
    await fill((bytes) => writeAll(opened, bytes));
    await handle.sync();
    await handle.close();
    handle = null;
    await rename(temporary, file);
  } catch (error) {
    await handle?.close().catch(() => undefined);
    await rm(temporary, { force: true }).catch(() => undefined);
    throw cannotWrite(error, file);
  }
}

/**
 * Fills a fresh folder beside `folder` and then puts it in `folder`'s place, replacing the previous folder.
 * `fill` gets the temporary folder; when it throws (an abort included), the temporary is removed and `folder` is as before.
 */
export async function writeFolderAtomic(folder: string, fill: (temporary: string) => Promise<void>): Promise<void> {
  await removeLeftovers(folder);
  const temporary = temporaryName(folder);
  const parents: string[] = [];
  try {
    await makeParents(path.dirname(temporary), parents);
    await mkdir(temporary);
    await fill(temporary);
    await replaceFolder(temporary, folder);
  } catch (error) {
    await rm(temporary, { recursive: true, force: true }).catch(() => undefined);
    for (const parent of parents.reverse()) await rmdir(parent).catch(() => undefined);
    throw inPlace(cannotWrite(error, folder), temporary, folder);
  }
}

/**
 * Checks that a file can be created at this place, before long work whose result it is.
 * @throws AutoparError (cannotWrite)
 */
export async function checkPlace(file: string): Promise<void> {
  await access(path.dirname(file) + path.sep, constants.W_OK).catch((error: unknown) => {
    throw cannotWrite(error, file);
  });
}

/** Brings the names in a folder to the disk. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Removes a folder so that it is never seen half-removed. */
export async function removeFolderAtomic(folder: string): Promise<void> {
  const aside = temporaryName(folder);
  try {
    await rename(folder, aside);
    await rm(aside, { recursive: true, force: true });
  } catch (error) {
    throw cannotWrite(error, folder);
  }
}

/**
 * Makes `folder` and its missing parents, one by one (Node's `recursive` never ends where a system has folders in which none
 * can be made, as /proc): `made` gets those that did not exist, outermost first.
 */
export async function makeParents(folder: string, made: string[] = []): Promise<void> {
  const found = await stat(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
    return null;
  });
  if (found) return;
  await makeParents(path.dirname(folder), made);
  const isOurs = await mkdir(folder).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      // Another process was quicker.
      if (error.code !== 'EEXIST') throw error;
      return false;
    },
  );
  if (isOurs) made.push(folder);
}

/** An error about something inside the temporary folder, with the names that the user knows. */
function inPlace(error: unknown, temporary: string, folder: string): unknown {
  if (!(error instanceof AutoparError) || !error.where.file?.startsWith(temporary)) return error;
  const [message, file] = [error.message, error.where.file].map((text) => text.replaceAll(temporary, folder));
  return new AutoparError(error.code, error.exit, message ?? '', { ...error.where, file: file ?? folder }, error.hint);
}

/**
 * Puts `temporary` (on the same file system) in the place of `folder`. The old folder steps aside first and is removed
 * last; if the new one cannot take its place, the old one returns. Among processes that replace one folder at the same
 * time, the last one has its own there.
 */
async function replaceFolder(temporary: string, folder: string): Promise<void> {
  try {
    for (let attempt = 1; ; attempt++) {
      const aside = await stepAside(folder);
      try {
        await rename(temporary, folder);
      } catch (error) {
        const taken = TAKEN.has((error as NodeJS.ErrnoException).code ?? '');
        if (aside !== null) await (taken ? rm(aside, { recursive: true, force: true }) : rename(aside, folder));
        if (!taken || attempt === ATTEMPTS) throw error;
        continue;
      }
      if (aside !== null) await rm(aside, { recursive: true, force: true });
      return;
    }
  } catch (error) {
    throw cannotWrite(error, folder);
  }
}

/** Another process put its folder where there was none a moment ago. */
const TAKEN: ReadonlySet<string> = new Set(['ENOTEMPTY', 'EEXIST']);
const ATTEMPTS = 20;

/** Renames a folder, and returns its new name; null where there is no folder, or another process was quicker. */
async function stepAside(folder: string): Promise<string | null> {
  const aside = temporaryName(folder, 'old');
  try {
    await stat(folder);
    await rename(folder, aside);
    return aside;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

/** The user error for a failed file operation; errors that are not the file system's are returned unchanged. */
export function cannotWrite(error: unknown, file: string): unknown {
  if (!(error instanceof Error) || error instanceof AutoparError || !('syscall' in error)) return error;
  const code = 'code' in error ? String(error.code) : '';
  const [reason, hint] = REASONS[code] ?? [error.message, 'check the path and its permissions'];
  return new AutoparError(
    code === 'ENOSPC' || code === 'EDQUOT' ? 'disk-full' : 'cannot-write',
    'cannotWrite',
    `cannot write ${file}: ${reason}`,
    { file },
    hint,
  );
}

const REASONS: Readonly<Record<string, readonly [reason: string, hint: string]>> = {
  ENOSPC: ['the disk is full', 'free some space, or write to another disk'],
  EDQUOT: ['the disk quota is used up', 'free some space, or write to another disk'],
  EACCES: ['permission denied', 'choose a folder that you may write to'],
  EPERM: ['permission denied', 'choose a folder that you may write to'],
  EROFS: ['the file system is read-only', 'choose another folder'],
  ENOENT: ['its folder does not exist', 'create the folder first, or choose another one'],
  ENOTDIR: ['a part of the path is a file, not a folder', 'choose another path'],
  EISDIR: ['it is a folder', 'choose another path'],
  EXDEV: ['the temporary copy is on another file system', 'choose a folder that is not a mount point'],
  EBUSY: ['it is in use', 'choose another path'],
  ENAMETOOLONG: ['the name is too long', 'choose a shorter one'],
  ELOOP: ['its symbolic links form a cycle', 'choose another path'],
  EEXIST: ['something else is there', 'choose another path'],
};

async function writeAll(handle: FileHandle, bytes: Uint8Array): Promise<void> {
  let written = 0;
  while (written < bytes.byteLength) {
    const length = Math.min(bytes.byteLength - written, 2 ** 30);
    written += (await handle.write(bytes, written, length)).bytesWritten;
  }
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== 'object') return value;
  const record = value as Readonly<Record<string, unknown>>;
  return Object.fromEntries(
    Object.keys(record)
      .sort()
      .map((key) => [key, sorted(record[key])]),
  );
}
