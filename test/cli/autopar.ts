/**
 * @file Runs the built command as a user would.
 */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Answer, Asked } from './warm.js';

const MAIN = fileURLToPath(new URL('../../bundle/cli/main.js', import.meta.url));

const WARM = fileURLToPath(new URL('./warm.js', import.meta.url));

/** The user's cache folder for commands that are run here. */
const CACHE = mkdtempSync(join(tmpdir(), 'autopar-cache-'));
process.once('exit', () => rmSync(CACHE, { recursive: true, force: true }));

/** The repository root, seen from dist/test/cli/. */
export const ROOT = dirname(dirname(dirname(dirname(fileURLToPath(import.meta.url)))));

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Called with the process once it runs. */
  readonly meanwhile?: (kill: (signal: NodeJS.Signals) => void) => void;
  /** In a process of its own, whatever is run. */
  readonly alone?: boolean;
}

/**
 * Runs `autopar` with the words given, without a terminal; earlier measurements of this machine are not seen. Commands that
 * nobody interrupts share a process, one after the other.
 */
export function autopar(words: readonly string[], options: RunOptions = {}): Promise<Ended> {
  const { cwd = ROOT, meanwhile, alone = false } = options;
  const env = { AUTOPAR_DEBUG: '', XDG_CACHE_HOME: CACHE, ...options.env };
  return alone || meanwhile ? inItsOwnProcess({ words, cwd, env }, meanwhile) : inTurn({ words, cwd, env });
}

function inItsOwnProcess({ words, cwd, env }: Asked, meanwhile: RunOptions['meanwhile']): Promise<Ended> {
  const child = spawn(process.execPath, [MAIN, ...words], {
    cwd,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk;
  });
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk;
  });
  meanwhile?.((signal) => child.kill(signal));
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, stdout, stderr }));
  });
}

/** The process that the commands of a file share, made by the first; it holds nobody up but while it works. */
const shared = (() => {
  let process: ChildProcess | null = null;
  return (): ChildProcess => {
    process ??= fork(WARM, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    return process;
  };
})();

/** Answers come in the order of the questions. */
function inTurn(asked: Asked): Promise<Ended> {
  const child = shared();
  return new Promise((resolve, reject) => {
    waiting.push({ resolve, reject });
    if (waiting.length === 1) listen(child);
    child.send(asked);
  });
}

const waiting: { readonly resolve: (ended: Ended) => void; readonly reject: (error: Error) => void }[] = [];

function listen(child: ChildProcess): void {
  const answered = (answer: Answer) => {
    waiting.shift()?.resolve(answer);
    if (waiting.length > 0) return;
    child.off('message', answered).off('exit', died).unref();
    child.channel?.unref();
  };
  const died = (code: number | null) => {
    for (const { reject } of waiting.splice(0)) reject(new Error(`the process of the commands ended with ${code}`));
  };
  child.ref();
  child.channel?.ref();
  child.on('message', answered).on('exit', died);
}

/** Runs a line of documentation: `autopar …` or `npx autopar …`. */
export function autoparLine(line: string, options: RunOptions = {}): Promise<Ended> {
  return autopar(line.replace(/^npx /, '').split(/\s+/).slice(1), options);
}

/** A fresh folder with the shipped models in models/; `remove` deletes it. */
export function workplace(): { readonly folder: string; readonly remove: () => void } {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  symlinkSync(join(ROOT, 'models'), join(folder, 'models'), 'junction');
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
