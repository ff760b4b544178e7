/**
 * @file The guides show what their commands print, to the last figure.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import test from 'ava';
import { commandsOf, GUIDES, withOutputs } from '../../scripts/guides.js';
import { ROOT } from '../cli/autopar.js';

const WRITE = fileURLToPath(new URL('../../scripts/write-guides.js', import.meta.url));

for (const name of GUIDES) {
  test(`${name} shows what its commands print`, async (t) => {
    const page = readFileSync(join(ROOT, name), 'utf8');
    const { stdout } = await promisify(execFile)(process.execPath, [WRITE, '--print', name], { encoding: 'utf8' });
    t.is(stdout, page, 'npm run docs:guides writes it anew');
  });

  test(`every section of ${name} shows a command`, (t) => {
    const [, ...sections] = readFileSync(join(ROOT, name), 'utf8').split(/^## /m);
    t.true(sections.length >= 5);
    for (const section of sections) t.true(commandsOf(section).length > 0, section.split('\n')[0]);
  });
}

test('an output is made anew, and grep keeps the lines that match', async (t) => {
  const page = "a\n\n```console\n$ autopar x | grep -E 'b|d'\nold\n$ autopar y\n```\nz\n";
  const run = async (words: readonly string[]) => (words[0] === 'x' ? 'b1\nc2\nd3\n' : 'all\nof it\n');
  t.is(
    await withOutputs(page, run),
    "a\n\n```console\n$ autopar x | grep -E 'b|d'\nb1\nd3\n$ autopar y\nall\nof it\n```\nz\n",
  );
});
