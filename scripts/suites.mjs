/**
 * @file Suites: several test files in one process. Starting a process and loading the compiler takes two thirds of a second, a
 * quarter of the time of `npm test` when every file had a process of its own.
 *
 * Each test file `x.test.js` has a part `x.part.js` beside it, the same text with another first line: its tests are titled by
 * their file, and run one after the other (test/titled.ts). A suite imports its parts. In `npm run test:all` a file that only adds
 * slow tests declares these alone.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const output = join(dirname(dirname(fileURLToPath(import.meta.url))), 'dist');
const tests = join(output, 'test');
/** Folders of the compiler: the settings that it reads itself do not change the work of a test. */
const COMPILER = ['src', 'bundle'].map((folder) => join(output, folder));

const ENDING = '.test.js';
const IMPORT = /^import test(?:, \{\s*\})? from 'ava';$/m;
const slashed = (path) => path.split(sep).join('/');

/** Whether ava's command line names built files: each of them then has a process of its own. */
const named = process.argv.slice(2).some((word) => /^(\.[\\/])?dist[\\/]/.test(word));

/**
 * Where ava finds the built tests that `takes` accepts: in suites of a folder of dist/suites, neighbours together, `most` files
 * in each suite. More of them save little, and one core waits longer for the last suite of the other.
 * @throws Error for a test file that imports ava in a way of its own.
 */
export function testFiles(most, takes = () => true) {
  if (named) return `dist/test/**/*${ENDING}`;
  const suites = `suites/of-${most}`;
  mkdirSync(join(output, suites), { recursive: true });
  const files = readdirSync(tests, { recursive: true }).filter(
    (file) => file.endsWith(ENDING) && takes(join(tests, file)),
  );
  const parts = files.map(slashed).sort().map(writePart);
  const made = new Set();
  for (let first = 0; first < parts.length; first += most) {
    const imports = parts.slice(first, first + most).map((part) => `import '../../test/${part}';\n`);
    const name = `${String(first / most + 1).padStart(2, '0')}${ENDING}`;
    made.add(name);
    write(join(suites, name), `${imports.join('')}import { declare } from '../../test/titled.js';\n\ndeclare();\n`);
  }
  for (const name of readdirSync(join(output, suites))) if (!made.has(name)) rmSync(join(output, suites, name));
  return `dist/${suites}/*${ENDING}`;
}

/** Settings of a run: that all tests are requested (test/selection.ts), where shared models are, which Python has PyTorch. */
const TOLD = /process\.env(?:\.|\[['"])AUTOPAR_/;
/** A module that is imported, loaded later or started as a process: all name it by its path. */
const MODULE = /['"](\.{1,2}\/[^'"]+\.js)['"]/g;

/**
 * Whether a built test file does more in `npm run test:all` than in `npm test`: it, or a file that it loads besides the compiler,
 * reads the settings of the run.
 */
export function doesMore(file, seen = new Set()) {
  seen.add(file);
  const text = readFileSync(file, 'utf8');
  if (TOLD.test(text)) return true;
  return loadedBy(file, text).some((path) => !seen.has(path) && doesMore(path, seen));
}

/** Modules besides the compiler's that a file loads by its text. */
function loadedBy(file, text) {
  const loaded = [...text.matchAll(MODULE)].map(([, path]) => join(dirname(file), path));
  return loaded.filter((path) => existsSync(path) && !COMPILER.some((folder) => path.startsWith(folder)));
}

/** What a test file imports of the selection, if it only declares tests that are slow, perhaps of some cases. */
const SLOW_TESTS = /^import \{ slowTests(?:, thinned)? \} from '\.{1,2}\/[^']*selection\.js';$/m;

/**
 * Whether a built test file does more in `npm run test:all` only by the tests that it declares to be slow: it need not run its
 * others there again.
 */
export function addsTests(file) {
  const text = readFileSync(file, 'utf8');
  const others = text.replace(SLOW_TESTS, '');
  return others !== text && !TOLD.test(others) && !loadedBy(file, others).some((path) => doesMore(path));
}

/** Writes the part of a test file, and returns its name. */
function writePart(file) {
  const text = readFileSync(join(tests, file), 'utf8');
  if (!IMPORT.test(text)) throw new Error(`${file}: no line \`import test from 'ava'\``);
  const name = file.slice(0, -ENDING.length);
  const titled = slashed(relative(dirname(join(tests, file)), join(tests, 'titled.js')));
  const from = titled.startsWith('.') ? titled : `./${titled}`;
  const title = `'${name.replaceAll('/', ' › ')}', ${addsTests(join(tests, file))}`;
  const line = `import { titled } from '${from}'; const test = titled(${title});`;
  const part = `${name}.part.js`;
  write(join('test', part), text.replace(IMPORT, line));
  return part;
}

/** Writes a file unless it has this text already: another run may be reading it. */
function write(file, text) {
  const path = join(output, file);
  if (!existsSync(path) || readFileSync(path, 'utf8') !== text) writeFileSync(path, text);
}
