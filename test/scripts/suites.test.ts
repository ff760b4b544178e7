/**
 * @file `npm run test:all` runs again just those test files that do more there (scripts/suites.mjs).
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import test from 'ava';
import { ROOT } from '../cli/autopar.js';

const { doesMore } = (await import(pathToFileURL(join(ROOT, 'scripts/suites.mjs')).href)) as {
  readonly doesMore: (file: string) => boolean;
};

test('a test file that is cut short, or looks for shared models or PyTorch, is among them', (t) => {
  const sources = readdirSync(join(ROOT, 'test'), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.test.ts'))
    .map((file) => ({ file, text: readFileSync(join(ROOT, 'test', file), 'utf8') }));
  const [more, same] = [true, false].map((wanted) =>
    sources.filter(({ file }) => doesMore(join(ROOT, 'dist/test', file.replace(/ts$/, 'js'))) === wanted),
  );
  const told = sources.filter(({ text }) => /from '[./]*\/(selection|shared-models|torch)\.js'/.test(text));
  t.true(told.length > 10);
  for (const { file } of told)
    t.true(
      more?.some((one) => one.file === file),
      file,
    );
  t.true((same?.length ?? 0) > 100, 'most do the same in both');
});

test('it is found behind an import, a module that is loaded later and a process', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  const write = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  mkdirSync(join(folder, 'within'));
  write('told.js', "export const ALL = process.env.AUTOPAR_TESTS === 'all';\n");
  write('between.js', "export { ALL } from './told.js';\nimport './circle.js';\n");
  write('circle.js', "import './between.js';\nimport './absent.js';\n");
  t.true(doesMore(write('imports.js', "import { ALL } from './between.js';\n")));
  t.true(doesMore(write('within/later.js', "const { ALL } = await import('../between.js');\n")));
  t.true(doesMore(write('starts.js', "fork(new URL('./told.js', import.meta.url));\n")));
  t.true(doesMore(write('names.js', "const folder = process.env['AUTOPAR_SHARED'];\n")));
  t.false(doesMore(write('circular.js', "import './alone.js';\nimport 'node:fs';\n")));
  t.false(doesMore(write('gives.js', "run({ env: { AUTOPAR_DEBUG: '' } });\n")));
});
