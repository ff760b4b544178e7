/**
 * @file docs/contributing.md shows the source as it is: every block of code that names a file is in that file.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { ROOT } from '../cli/autopar.js';

const page = readFileSync(join(ROOT, 'docs/contributing.md'), 'utf8');

/** Code blocks whose first line is a comment with a file's name. */
const SHOWN = [...page.matchAll(/```ts\n\/\/ (\S+)\n([\s\S]*?)```/g)].map(([, file = '', code = '']) => ({
  file,
  code,
}));

test('what docs/contributing.md shows is the code in the repository', (t) => {
  t.true(SHOWN.length >= 2);
  for (const { file, code } of SHOWN) {
    t.true(existsSync(join(ROOT, file)), file);
    t.true(readFileSync(join(ROOT, file), 'utf8').includes(code), `${file} no longer has:\n${code}`);
  }
});

test('the operator it adds is named in one source file, one sample and one sample of its gradient', (t) => {
  const op = /op: '(\w+)'/.exec(SHOWN[0]?.code ?? '')?.[1] ?? '';
  t.not(op, '');
  t.deepEqual(filesNaming('src', op), [SHOWN[0]?.file]);
  t.deepEqual([...filesNaming('test', op)].sort(), [SHOWN[1]?.file, SHOWN[2]?.file].sort());
});

function filesNaming(folder: string, word: string): readonly string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((file) => readFileSync(file, 'utf8').includes(word))
    .map((file) =>
      file
        .slice(ROOT.length)
        .replace(/^[/\\]/, '')
        .replaceAll('\\', '/'),
    );
}
