/**
 * @file A folder that cannot keep what is offloaded to disk ends a run with exit code 7: on a file system without room, on one
 * that is read-only, under a limit on the size of files. The message names the folder and the bytes that it is asked for, and
 * nothing is left in it.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import { canMount, missing } from '../missing.js';
import { autopar } from './autopar.js';

const MAIN = fileURLToPath(new URL('../../bundle/cli/main.js', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
const [compiled, kept] = [join(folder, 'compiled'), join(folder, 'kept')];
mkdirSync(kept);

test.before(async () => {
  const words = 'compile models/gpt-tiny.onnx --train --optimizer adam --devices 2 --dp 2 --offload all:disk'.split(
    ' ',
  );
  const { code, stderr } = await autopar([...words, '-o', compiled]);
  if (code !== 0) throw new Error(stderr);
});

test.after.always(() => rmSync(folder, { recursive: true, force: true }));

/** Runs the program in a shell, behind `limit`. */
function refused(t: ExecutionContext, limit: string, what: string, why: string): void {
  const script = `${limit}; exec "$0" "$@"`;
  const words = [process.execPath, MAIN, 'run', compiled, '--seed', '1', '--offload-dir', kept];
  const { status, stderr } = spawnSync('bash', ['-c', script, ...words], { encoding: 'utf8' });
  t.is(status, 7, stderr);
  const lines = [
    `error\\[offload-folder\\]: the offload folder ${kept} cannot store ${what}: ${why}`,
    `  in ${kept}`,
    '  hint: choose a folder with more room \\(--offload-dir\\), or compile with --offload PART:host',
  ];
  t.regex(stderr, new RegExp(`^${lines.join('\n')}$`, 'm'));
  t.deepEqual(readdirSync(kept), []);
}

const TENSOR = 'tensor \\S+ \\(\\d+ bytes, beside \\d+ of rank \\d\\)';

test.serial('files may not become as large', (t) =>
  refused(t, 'ulimit -f 16', TENSOR, 'its file system does not support files of that size'),
);

const noMount = missing(!canMount(), 'a full offload folder (no file system may be mounted here)');
for (const [options, what, why] of [
  ['size=64k', TENSOR, 'no space is left on it'],
  ['ro', 'files of ranks', 'it is read-only'],
] as const)
  (noMount ? test.serial.skip : test.serial)(`a file system mounted with ${options}`, (t) => {
    t.is(spawnSync('mount', ['-t', 'tmpfs', '-o', options, 'none', kept]).status, 0);
    try {
      refused(t, ':', what, why);
    } finally {
      spawnSync('umount', [kept]);
    }
  });

test('a run leaves nothing in the folder for temporary files, and ONNX Runtime sends nothing', async (t) => {
  const temporary = join(folder, 'temporary');
  mkdirSync(temporary);
  const { code, stderr } = await autopar(['run', compiled, '--seed', '1'], { env: { TMPDIR: temporary }, alone: true });
  t.is(code, 0, stderr);
  // Its telemetry keeps a session file there.
  t.deepEqual(readdirSync(temporary), []);
});
