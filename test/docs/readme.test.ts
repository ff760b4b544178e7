import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { PIPELINE_PICTURE, pipelinePicture } from '../../scripts/pipeline-picture.js';
import { autoparLine, ROOT, workplace } from '../cli/autopar.js';
import { slowTests } from '../selection.js';

const README = readFileSync(join(ROOT, 'README.md'), 'utf8');

interface Shown {
  readonly line: string;
  readonly output: readonly string[];
}

/** Blocks marked `console`: a line after `$ `, then what it prints. */
function shown(): readonly Shown[] {
  return [...README.matchAll(/^```console\n\$ (.*)\n([\s\S]*?)^```$/gm)].map(([, line = '', output = '']) => ({
    line,
    output: output.trimEnd().split('\n'),
  }));
}

/** Numbers with their units, and positions, differ from run to run and machine to machine. */
function withoutNumbers(lines: readonly string[]): readonly string[] {
  return lines
    .map((line) =>
      line
        .replaceAll(/(?<=\s)(\[[\d, ]+\]|–)$/g, '#')
        .replaceAll(/(?<![\w.])\d+(\.\d+)?(e[+-]?\d+)?( (s|ms|µs|ns|B|kB|MB|GB|%)(?!\w))?/g, '#')
        .replaceAll(/\s+/g, ' ')
        .trim(),
    )
    .sort();
}

slowTests(test)('every command that README shows runs and prints what README shows', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const commands = shown();
  t.true(commands.length >= 3);
  for (const { line, output } of commands) {
    const { code, stdout, stderr } = await autoparLine(line, { cwd: folder });
    t.is(code, 0, `${line}\n${stderr}`);
    t.deepEqual(withoutNumbers(stdout.trimEnd().split('\n')), withoutNumbers(output), line);
  }
});

slowTests(test)(`${PIPELINE_PICTURE} is current`, async (t) => {
  t.is(
    readFileSync(join(ROOT, PIPELINE_PICTURE), 'utf8'),
    await pipelinePicture(),
    'npm run docs:readme draws it anew',
  );
});

test('the first two commands are the ones that .ci/run runs in a fresh clone', async (t) => {
  const [first = '', second = ''] = [...README.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, text = '']) =>
    text.trim(),
  );
  t.regex(first, /^npm ci && npx autopar compile models\/\S+\.onnx --verify$/);
  t.is(second, 'npm ci && npm test');
  const { folder, remove } = workplace();
  t.teardown(remove);
  const { code, stderr } = await autoparLine(first.replace('npm ci && ', ''), { cwd: folder });
  t.is(code, 0, stderr);
});
