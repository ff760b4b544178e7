/**
 * @file Pages show what their commands print, to the last figure (those that plan: guides.slow.ts).
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { commandsOf, GUIDE, SIMULATES, withOutputs } from '../../scripts/guides.js';
import { ROOT } from '../cli/autopar.js';
import { madeAnew } from './guide-outputs.js';

test(`${SIMULATES} shows what its commands print`, async (t) => {
  t.is(await madeAnew(SIMULATES), readFileSync(join(ROOT, SIMULATES), 'utf8'), 'npm run docs:guides writes it anew');
});

test(`every section of ${GUIDE} shows a command`, (t) => {
  const [, ...sections] = readFileSync(join(ROOT, GUIDE), 'utf8').split(/^## /m);
  t.true(sections.length >= 15);
  for (const section of sections) t.true(commandsOf(section).length > 0, section.split('\n')[0]);
});

test('a command of several lines is one', async (t) => {
  const page = '```console\n$ autopar x --a \\\n    --b\nold\n```\n';
  const run = async (words: readonly string[]) => `${words.join(' ')}\n`;
  const anew = await withOutputs(page, run, () => t.fail());
  t.is(anew, '```console\n$ autopar x --a \\\n    --b\nx --a --b\n```\n');
  t.deepEqual(commandsOf(anew), ['autopar x --a --b']);
});

test('an output is made anew, and grep keeps the lines that match', async (t) => {
  const page = "a\n\n```console\n$ autopar x | grep -E 'b|d'\nold\n$ autopar y\n```\nz\n";
  const run = async (words: readonly string[]) => (words[0] === 'x' ? 'b1\nc2\nd3\n' : 'all\nof it\n');
  t.is(
    await withOutputs(page, run, () => t.fail()),
    "a\n\n```console\n$ autopar x | grep -E 'b|d'\nb1\nd3\n$ autopar y\nall\nof it\n```\nz\n",
  );
});

test('a file that is shown is there for the commands below it, and stays as it is', async (t) => {
  const page = '```console\n$ cat a.yaml\nversion: 1\nnodes: []\n$ autopar x\nold\n```\n';
  const files = new Map<string, string>();
  const run = async () => files.get('a.yaml') ?? 'no file';
  const anew = await withOutputs(page, run, (name, text) => files.set(name, text));
  t.is(anew, page.replace('old', 'version: 1\nnodes: []'));
});
