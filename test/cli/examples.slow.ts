/** @file Every example of help runs as a user runs it: in a process of its own. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { COMMANDS } from '../../src/cli/commands.js';
import { autoparLine, workplace } from './autopar.js';

test('every example of help runs, in the order of the commands', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const own = { cwd: folder, alone: true };
  writeFileSync(
    join(folder, 'tokens.bin'),
    Uint16Array.from({ length: 2000 }, (_, index) => (index * 7) % 64),
  );
  const training = 'autopar compile models/gpt-tiny.onnx --train -o gpt-tiny.autopar';
  t.is((await autoparLine(training, own)).code, 0);
  for (const { line } of COMMANDS.flatMap(({ examples, subcommands = [] }) => [
    ...examples,
    ...subcommands.flatMap((subcommand) => subcommand.examples),
  ])) {
    const { code, stderr } = await autoparLine(line, own);
    t.is(code, 0, `${line}\n${stderr}`);
    t.notRegex(stderr, /error\[/);
  }
});
