/**
 * @file Names of files that are being written, and files that a killed process has left under such a name: the next process that
 * writes to the same place removes them. A name states its writer, so that files of others or in progress are not removed.
 */
import { createHash, randomBytes } from 'node:crypto';
import { readlinkSync } from 'node:fs';
import { readdir, rename, rm, stat } from 'node:fs/promises';
import { hostname } from 'node:os';
import path from 'node:path';

/** `new`: the file or folder that will take the target's place. `old`: the previous target, until the new one is in place. */
type LeftoverKind = 'new' | 'old';

/** `.NAME.autopar-HOST-PROCESS-RANDOM.KIND.tmp` */
const PATTERN = /^\.(.*)\.autopar-([0-9a-f]{8})-(\d+)-[0-9a-f]{12}\.(new|old)\.tmp$/s;

const MOST_OF_NAME = 40;

/** Hidden, beside the target; a long name is shortened to its beginning and a digest, to stay within the limit for names. */
export function temporaryName(target: string, kind: LeftoverKind = 'new'): string {
  const absolute = path.resolve(target);
  const owner = `${thisHost()}-${process.pid}-${randomBytes(6).toString('hex')}`;
  return path.join(path.dirname(absolute), `.${startOf(absolute)}.autopar-${owner}.${kind}.tmp`);
}

/**
 * Removes files that ended processes left from writing to `target`. Where one of them had moved the old target aside and not
 * put the new one in its place, the old one is restored. Files that cannot be removed stay: writing reports why.
 */
export async function removeLeftovers(target: string): Promise<void> {
  const absolute = path.resolve(target);
  await sweep(path.dirname(absolute), (start) => (start === startOf(absolute) ? absolute : null));
}

/** The same for all targets in a folder whose names are short enough to be read off. */
export async function removeLeftoversIn(folder: string): Promise<void> {
  await sweep(path.resolve(folder), (start) => (start.length <= MOST_OF_NAME ? path.join(folder, start) : null));
}

/** @param targetOf the target of a leftover, by the beginning of its name; null where the leftover stays */
async function sweep(folder: string, targetOf: (start: string) => string | null): Promise<void> {
  // Within a folder that is being written, all is its writer's own.
  if (folder.split(path.sep).some((part) => PATTERN.test(part))) return;
  const names = await readdir(folder).catch((): string[] => []);
  for (const name of names) {
    const [, start, host, owner, kind] = PATTERN.exec(name) ?? [];
    const target = start === undefined ? null : targetOf(start);
    if (target === null || host !== thisHost() || isAlive(Number(owner))) continue;
    const leftover = path.join(folder, name);
    const isThere = await stat(target).then(
      () => true,
      () => false,
    );
    if (kind === 'old' && !isThere) await rename(leftover, target).catch(() => undefined);
    else await rm(leftover, { recursive: true, force: true }).catch(() => undefined);
  }
}

function startOf(absolute: string): string {
  const name = path.basename(absolute);
  return name.length <= MOST_OF_NAME ? name : `${name.slice(0, MOST_OF_NAME)}~${digest(name)}`;
}

/** The machine and, where it has several, the space of process numbers: a number means nothing elsewhere. */
export function thisHost(): string {
  return digest(`${hostname()} ${processSpace()}`);
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8);
}

function processSpace(): string {
  try {
    return readlinkSync('/proc/self/ns/pid');
  } catch {
    return '';
  }
}

export function isAlive(owner: number): boolean {
  try {
    process.kill(owner, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}
