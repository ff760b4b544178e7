/**
 * @file `npm run test:all` runs again just those test files that do more there (scripts/suites.mjs), and of those that only add
 * slow tests just these.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import test from 'ava';
import { ROOT } from '../cli/autopar.js';

const { addsTests, doesMore } = (await import(pathToFileURL(join(ROOT, 'scripts/suites.mjs')).href)) as {
  readonly addsTests: (file: string) => boolean;
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

test('a file that only adds slow tests is told from one whose other tests do more too', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  const write = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  write('selection.js', "export const EVERYTHING = process.env.AUTOPAR_TESTS === 'all';\n");
  write('shared.js', "export const FOLDER = process.env['AUTOPAR_SHARED'];\n");
  write('others.js', "import { EVERYTHING } from './selection.js';\nexport const MOST = EVERYTHING ? 9 : 1;\n");
  const slow = "import { slowTests } from './selection.js';\n";
  t.true(addsTests(write('slow.js', slow)));
  t.false(addsTests(write('all.js', "import { EVERYTHING, slowTests } from './selection.js';\n")));
  t.false(addsTests(write('models.js', `${slow}import { FOLDER } from './shared.js';\n`)));
  t.false(addsTests(write('behind.js', `${slow}import { MOST } from './others.js';\n`)));
  t.false(addsTests(write('same.js', "import './absent.js';\n")));
});
