/** @file Every example of help, and README's training, run. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { COMMANDS } from '../../src/cli/commands.js';
import { autoparLine, ROOT, workplace } from './autopar.js';

test('every example of help runs, in the order of the commands', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const own = { cwd: folder };
  writeTokens(folder);
  const training =
    'autopar compile models/gpt-tiny.onnx --train --pp 2 --global-batch 4 --micro-batches 4 -o gpt-tiny.autopar';
  t.is((await autoparLine(training, own)).code, 0);
  const examples = COMMANDS.flatMap(({ examples, subcommands = [] }) => [
    ...examples,
    ...subcommands.flatMap((subcommand) => subcommand.examples),
  ]);
  // The machine is measured once: two examples differ in the file alone.
  for (const { line } of examples.filter((one) => one.line !== 'autopar profile --quick')) {
    const { code, stderr } = await autoparLine(line, own);
    t.is(code, 0, `${line}\n${stderr}`);
    t.notRegex(stderr, /error\[/);
  }
});

test("README's training runs", async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  writeTokens(folder);
  const blocks = [...readFileSync(join(ROOT, 'README.md'), 'utf8').matchAll(/```sh\n([^`]*)```/g)].map(
    ([, text = '']) => text,
  );
  const training = blocks.find((text) => text.includes('autopar train')) ?? '';
  const lines = training.trim().split('\n');
  t.is(lines.length, 3);
  for (const line of lines) {
    const { code, stderr } = await autoparLine(line.replace(/^npx /, ''), { cwd: folder });
    t.is(code, 0, `${line}\n${stderr}`);
  }
});

function writeTokens(folder: string): void {
  writeFileSync(
    join(folder, 'tokens.bin'),
    Uint16Array.from({ length: 2000 }, (_, index) => (index * 7) % 64),
  );
}
