/**
 * @file `npm run build`: compiles to dist/, removes what no source stands for any more, and bundles the command.
 *
 * A command reads a few files in place of 340 modules, and starts the sooner for it (docs/reference/performance.md). That it is executable is what lets
 * `npx autopar` work in this folder again and again: npx links the command once and does not look at its mode a second time.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const output = join(root, 'dist');
/** As deep as the modules, whose paths to package.json hold here too. */
const bundle = join(output, 'bundle', 'cli');
/** What the compiler knows of its last run, so that it looks at changed files alone; it goes with `dist`, whose files it speaks for. */
const buildInfo = join(output, '.tsbuildinfo');
/** Of scripts/suites.mjs, which removes what it no longer needs. */
const suites = join(output, 'suites');
/** What is run by its path: the command, and what is started in a thread beside whatever module asks for it. */
const ENTRIES = [
  'cli/main',
  'cli/command-thread',
  'runtime/rank',
  'runtime/device-process',
  'solver/bounds/solver-thread',
  'solver/bounds/companion-thread',
];
const compiler = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc');

const result = spawnSync(process.execPath, [compiler, '-p', join(root, 'tsconfig.json')], { stdio: 'inherit' });
removeStale();
const command = join(output, 'src', 'cli', 'main.js');
if (existsSync(command)) {
  chmodSync(command, 0o755);
  await bundleCommand();
  await bundleCharts();
}
process.exit(result.status ?? 1);

/**
 * All files beside one another, so that a thread's file is found from wherever its starter ended up; packages stay packages. What
 * a command that runs meanwhile has yet to load is there until its successor is.
 */
async function bundleCommand() {
  const { metafile } = await build({
    metafile: true,
    entryPoints: ENTRIES.map((entry) => join(output, 'src', `${entry}.js`)),
    outdir: bundle,
    entryNames: '[name]',
    chunkNames: '[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    packages: 'external',
    logLevel: 'warning',
  });
  chmodSync(join(bundle, 'main.js'), 0o755);
  const made = new Set(Object.keys(metafile.outputs).map((file) => basename(file)));
  for (const file of readdirSync(bundle)) if (!made.has(file)) rmSync(join(bundle, file), { recursive: true });
}

/** The script of pictures with the library that it draws with, in place of the module: pages hold it, users install no library. */
async function bundleCharts() {
  const module = join(output, 'src', 'pictures', 'charts.js');
  await build({
    stdin: { contents: "export * from './src/pictures/charts.ts';", resolveDir: root, loader: 'ts' },
    outfile: module,
    allowOverwrite: true,
    bundle: true,
    minify: true,
    legalComments: 'inline',
    format: 'iife',
    globalName: 'charts',
    platform: 'browser',
    target: 'es2020',
    logLevel: 'warning',
  });
  rmSync(`${module}.map`, { force: true });
}

function removeStale() {
  if (!existsSync(output)) return;
  for (const entry of readdirSync(output, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || (entry.parentPath ?? entry.path).startsWith(bundle)) continue;
    const file = join(entry.parentPath ?? entry.path, entry.name);
    if (file === buildInfo || file.startsWith(suites)) continue;
    const source = relative(output, file)
      .replace(/\.part\.js$/, '.test.js')
      .replace(/\.(d\.ts|js|js\.map|d\.ts\.map)$/, '.ts');
    if (!existsSync(join(root, source))) rmSync(file);
  }
}
