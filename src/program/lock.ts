/**
 * @file One process at a time: a file that states which process works in a folder. The file of an ended process is taken over.
 */
import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import { mkdir, readFile, rm, rmdir, stat } from 'node:fs/promises';
import { AutoparError } from '../ir/error.js';
import { cannotWrite } from './atomic.js';
import { isAlive, thisHost } from './leftovers.js';

interface LockOwner {
  readonly host: string;
  readonly process: number;
  /** When the process began, where the system says so: numbers of processes are used again. */
  readonly started: string;
}

/**
 * Takes the lock `file`, in a folder that exists; the returned function releases it.
 * @param what the activity under the lock, for the message: `a training writes to this folder`
 * @throws AutoparError (cannotWrite) `folder-in-use` where another process has it
 */
export async function takeLock(file: string, what: string): Promise<() => Promise<void>> {
  const own: LockOwner = { host: thisHost(), process: process.pid, started: startedAt(process.pid) };
  const text = `${JSON.stringify(own)}\n`;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    if (create(file, text)) return () => rm(file, { force: true });
    const found = await readOwner(file);
    if (found && holds(found)) throw inUse(file, what, found);
    await removeDead(file);
  }
  throw inUse(file, what, null);
}

/**
 * Refuses what no process may do while another one has the lock `file`.
 * @throws AutoparError (cannotWrite) `folder-in-use`
 */
export async function checkUnlocked(file: string, what: string): Promise<void> {
  if ((await stat(file).catch(() => null)) === null) return;
  const found = await readOwner(file);
  if (found && holds(found)) throw inUse(file, what, found);
}

const ATTEMPTS = 10;

/**
 * Removes the lock of an ended process, one contender at a time: a dead lock stays dead until it is removed, and a lock that
 * another contender has created meanwhile is read again.
 */
async function removeDead(file: string): Promise<void> {
  const turn = `${file}.turn`;
  try {
    await mkdir(turn);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw cannotWrite(error, file);
    const { mtimeMs = Date.now() } = await stat(turn).catch(() => ({}) as { mtimeMs?: number });
    // The contender that made the folder was killed before it removed it.
    if (Date.now() - mtimeMs > TURN_MILLISECONDS) await rmdir(turn).catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, EMPTY_MILLISECONDS));
    return;
  }
  try {
    const found = await readOwner(file);
    if (!found || !holds(found)) await rm(file, { force: true });
  } finally {
    await rmdir(turn).catch(() => undefined);
  }
}

/** Far longer than one contender needs to remove a lock. */
const TURN_MILLISECONDS = 10_000;

/** A lock that was just made may not be filled yet; one that stays empty is of a process that was killed. */
const EMPTY_MILLISECONDS = 200;

function create(file: string, text: string): boolean {
  try {
    const handle = openSync(file, 'wx');
    writeSync(handle, text);
    closeSync(handle);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw cannotWrite(error, file);
  }
}

/** Null where the file says nothing. */
async function readOwner(file: string): Promise<LockOwner | null> {
  for (let attempt = 0; attempt < 2; attempt++) {
    const text = await readFile(file, 'utf8').catch(() => '');
    if (text.endsWith('\n')) return parsed(text);
    await new Promise((resolve) => setTimeout(resolve, EMPTY_MILLISECONDS));
  }
  return null;
}

function parsed(text: string): LockOwner | null {
  try {
    const { host, process: number, started } = JSON.parse(text) as Partial<Record<keyof LockOwner, unknown>>;
    return { host: String(host), process: Number(number), started: String(started) };
  } catch {
    return null;
  }
}

/** A process on another machine counts as alive: its state is unknown. */
function holds({ host, process: number, started }: LockOwner): boolean {
  return host !== thisHost() || (isAlive(number) && startedAt(number) === started);
}

/** In the system's ticks, from Linux's /proc; empty elsewhere. */
function startedAt(number: number): string {
  try {
    const text = readFileSync(`/proc/${number}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ')[STARTED] ?? '';
  } catch {
    return '';
  }
}

/** Position of the start among the fields behind the name. */
const STARTED = 19;

function inUse(file: string, what: string, owner: LockOwner | null): AutoparError {
  const isHere = owner?.host === thisHost();
  const who = owner ? `process ${owner.process}${isHere ? '' : ' of another machine'}` : 'another process';
  return new AutoparError(
    'folder-in-use',
    'cannotWrite',
    `${who} is using this folder: ${what}`,
    { file },
    isHere ? 'wait until it ends, or end it' : `if it no longer runs, remove ${file}`,
  );
}
