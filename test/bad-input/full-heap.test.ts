import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { autopar, type Ended } from '../cli/autopar.js';
import { slowTests } from '../selection.js';
import { listing, workplace } from './refusal.js';

const slow = slowTests(test);

/** A heap that a small model takes up, which any machine can give. */
const SMALL = '--max-old-space-size=24';

const MODEL = ['--model', 'gpt:layers=48,hidden=64,heads=4,seq=32,vocab=64', '--train', '--devices', '4'];

/** Runs a command in `folder`, which must be as it was afterwards. */
async function inSmallHeap(t: ExecutionContext, folder: string, words: readonly string[]): Promise<Ended> {
  const before = listing(folder);
  const ended = await autopar(words, { cwd: folder, env: { NODE_OPTIONS: SMALL }, alone: true });
  t.is(ended.code, 4, ended.stderr);
  t.deepEqual(listing(folder), before, 'nothing is left behind');
  return ended;
}

slow('command: a full heap is an error with its limit and how to raise it, and the old folder stays', async (t) => {
  const folder = workplace(t);
  const output = join(folder, 'd');
  mkdirSync(output);
  writeFileSync(join(output, 'kept'), '');
  const { stdout, stderr } = await inSmallHeap(t, folder, ['compile', ...MODEL, '-o', 'd', '--force']);
  t.is(stdout, '');
  const [, limit = ''] =
    /^error\[out-of-memory\]: the JavaScript heap reached its limit of (\d+) MiB \(\w+ing\); /.exec(stderr) ?? [];
  t.true(Number(limit) > 24, stderr);
  t.regex(
    stderr,
    new RegExp(`\n  hint: NODE_OPTIONS=--max-old-space-size=${2 * Number(limit)} raises the limit; or plan fewer`),
  );
  t.notRegex(stderr, /FATAL|\n\s+at |Last few GCs/);
});

slow('command: a full heap is one JSON object under --json', async (t) => {
  const { stdout, stderr } = await inSmallHeap(t, workplace(t), ['compile', ...MODEL, '-o', 'd', '--json']);
  t.is(stderr, '');
  const { error } = JSON.parse(stdout) as { readonly error: { readonly code: string; readonly message: string } };
  t.is(error.code, 'out-of-memory');
  t.regex(error.message, /^the JavaScript heap reached its limit of \d+ MiB \(\w+ing\); /);
});
