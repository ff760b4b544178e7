/**
 * @file Properties of every refusal: an error for the user with its code and exit, a message that says so,
 * soon, without a stack trace, and a folder that is afterwards as it was before.
 */
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { AutoparError, EXIT, type ExitKind } from '../../src/ir/error.js';
import { autopar, ROOT } from '../cli/autopar.js';

export interface Refusal {
  readonly code: string;
  readonly exit: ExitKind;
  /** Found in "message | hint". */
  readonly says: RegExp;
}

/** A folder of its own with copies of the shipped models in models/, removed when the test ends. */
export function workplace(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-bad-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  cpSync(join(ROOT, 'models'), join(folder, 'models'), { recursive: true });
  return folder;
}

/** Everything below a folder, hidden names too. */
export function listing(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort();
}

/** `work` must be refused as stated, leaving `folder` as it was. */
export async function refused(
  t: ExecutionContext,
  folder: string,
  work: () => Promise<unknown>,
  { code, exit, says }: Refusal,
): Promise<void> {
  const before = listing(folder);
  const error = await work().then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof AutoparError)) {
    t.fail(error instanceof Error ? `a fault of ours: ${error.stack}` : 'nothing was refused');
    return;
  }
  t.deepEqual([error.code, error.exit], [code, exit], error.message);
  t.regex(`${error.message} | ${error.hint ?? ''}`, says);
  t.deepEqual(listing(folder), before, 'nothing is left behind');
}

/** A command line must be refused as stated: exit code, one error on stderr, under --json one object on stdout. */
export async function refusedCommand(
  t: ExecutionContext,
  folder: string,
  words: readonly string[],
  { code, exit, says }: Refusal,
): Promise<void> {
  const before = listing(folder);
  const [plain, json] = await Promise.all([
    autopar(words, { cwd: folder }),
    autopar([...words, '--json'], { cwd: folder }),
  ]);
  t.deepEqual([plain.code, json.code], [EXIT[exit], EXIT[exit]], plain.stderr);
  t.is(plain.stdout, '');
  t.true(plain.stderr.startsWith(`error[${code}]: `), plain.stderr);
  t.regex(plain.stderr, says);
  t.notRegex(plain.stderr, /\n\s+at /, 'no stack trace');
  const { error } = JSON.parse(json.stdout) as { error: { code: string; message: string; where: object } };
  t.is(error.code, code);
  t.true(plain.stderr.includes(error.message.split('\n')[0] ?? ''));
  t.is(typeof error.where, 'object');
  t.deepEqual(listing(folder), before, 'nothing is left behind');
}
