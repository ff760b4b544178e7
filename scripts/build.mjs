/**
 * @file `npm run build`: compiles to dist/, removes files that no longer have a source, and bundles the command.
 *
 * The bundled command reads a few files in place of 340 modules, and so starts sooner (docs/reference/performance.md). It is
 * executable so that `npx autopar` works in this folder repeatedly: npx links the command once and does not check its mode again.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const output = join(root, 'dist');
/** As deep as the modules, so that their paths to package.json are valid here too. */
const bundle = join(output, 'bundle', 'cli');
/** The compiler's record of its last run, so that it checks changed files alone. It is in `dist`, whose files it describes. */
const buildInfo = join(output, '.tsbuildinfo');
/** Folder of scripts/suites.mjs, which removes files that it no longer needs. */
const suites = join(output, 'suites');
/** Files that are run by their path: the command, and files started in a thread, which are beside the module that starts them. */
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
 * All files are in one folder, so that a thread's file is found from any file that starts it; packages stay external. Files that
 * a running command has yet to load stay until their successors exist.
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

/** The script of pictures with its drawing library, in place of the module: pages contain it, and users install no library. */
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
