/**
 * @file Suites: several test files in one process. To start a process and load the compiler takes two thirds of a second, a quarter
 * of all that `npm test` took when every file had a process of its own.
 *
 * Beside each test file `x.test.js` stands a part `x.part.js`, the same text with another first line: its tests are titled by
 * their file, and run one after the other (test/titled.ts). A suite imports its parts.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const output = join(dirname(dirname(fileURLToPath(import.meta.url))), 'dist');
const tests = join(output, 'test');
const suites = join(output, 'suites');

/** Files of a suite: more of them save little, and one core waits longer for the last suite of the other. */
const MOST = 8;
const IMPORT = /^import test(?:, \{\s*\})? from 'ava';$/m;
const slashed = (path) => path.split(sep).join('/');

/** Where ava finds the built tests whose names end as one of `endings` says: the files themselves where its command line names files. */
export function testFiles(endings) {
  if (process.argv.slice(2).some((word) => /^(\.[\\/])?dist[\\/]/.test(word)))
    return endings.map((ending) => `dist/test/**/*${ending}`);
  writeSuites(endings);
  return ['dist/suites/*.js'];
}

/**
 * Writes dist/suites anew, from the built tests whose names end as one of `endings` says; neighbours are together.
 * @throws Error for a test file that imports ava in a way of its own.
 */
function writeSuites(endings) {
  rmSync(suites, { recursive: true, force: true });
  mkdirSync(suites, { recursive: true });
  for (const ending of endings) {
    const files = readdirSync(tests, { recursive: true }).filter((file) => file.endsWith(ending));
    const sorted = files.map(slashed).sort();
    for (let first = 0; first < sorted.length; first += MOST) {
      const parts = sorted.slice(first, first + MOST).map((file) => writePart(file, ending));
      const number = String(first / MOST + 1).padStart(2, '0');
      writeFileSync(join(suites, `${number}${ending}`), parts.map((part) => `import '../test/${part}';\n`).join(''));
    }
  }
}

/** Writes the part of a test file, and returns its name. */
function writePart(file, ending) {
  const text = readFileSync(join(tests, file), 'utf8');
  const name = file.slice(0, -ending.length);
  const titled = slashed(relative(dirname(join(tests, file)), join(tests, 'titled.js')));
  const title = `${name}${ending}`.replace(/(\.test)?\.js$/, '').replaceAll('/', ' › ');
  const line = `import { titled } from '${titled.startsWith('.') ? titled : `./${titled}`}'; const test = titled('${title}');`;
  if (!IMPORT.test(text)) throw new Error(`${file}: no line \`import test from 'ava'\``);
  const part = `${name}${ending.replace('.js', '')}.part.js`;
  writeFileSync(
    join(tests, part),
    text.replace(IMPORT, () => line),
  );
  return part;
}
