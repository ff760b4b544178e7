/**
 * @file `npm run build`: compiles to dist/, removes what no source stands for any more, and makes the command executable.
 *
 * The last step is what lets `npx autopar` work in this folder again and again: npx links the command once and does not
 * look at its mode a second time.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const output = join(root, 'dist');
const compiler = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc');

const result = spawnSync(process.execPath, [compiler, '-p', join(root, 'tsconfig.json')], { stdio: 'inherit' });
removeStale();
const command = join(output, 'src', 'cli', 'main.js');
if (existsSync(command)) chmodSync(command, 0o755);
process.exit(result.status ?? 1);

function removeStale() {
  if (!existsSync(output)) return;
  for (const entry of readdirSync(output, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = join(entry.parentPath ?? entry.path, entry.name);
    const source = relative(output, file).replace(/\.(d\.ts|js|js\.map|d\.ts\.map)$/, '.ts');
    if (!existsSync(join(root, source))) rmSync(file);
  }
}
