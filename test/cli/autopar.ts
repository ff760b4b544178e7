/**
 * @file Runs the built command as a user would.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const MAIN = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url));

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
}

/** Runs `autopar` with the words given, without a terminal; what was measured of this machine before is not seen. */
export function autopar(
  words: readonly string[],
  { cwd = ROOT, env = {}, meanwhile }: RunOptions = {},
): Promise<Ended> {
  const child = spawn(process.execPath, [MAIN, ...words], {
    cwd,
    env: { ...process.env, AUTOPAR_DEBUG: '', XDG_CACHE_HOME: CACHE, ...env },
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
