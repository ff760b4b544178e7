/**
 * @file `npm run check`: format, lint, types, the import column, import cycles, names of types, long lines and dead code; all of
 * them run, whatever fails.
 */
import { spawnSync } from 'node:child_process';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));

const CHECKS = [
  {
    name: 'format and lint',
    command: ['npx', '--no-install', 'biome', 'check', '--error-on-warnings', '--max-diagnostics=50'],
  },
  { name: 'types', command: [process.execPath, 'scripts/build.mjs'] },
  {
    name: 'imports, cycles, names of types, long lines',
    command: [process.execPath, 'dist/scripts/check-imports.js'],
  },
  { name: 'dead code and packages', command: ['npx', '--no-install', 'knip', '--no-progress', '--no-config-hints'] },
];

const failed = CHECKS.filter(({ name, command: [program, ...args] }) => {
  const start = Date.now();
  console.log(`— ${name}`);
  const { status } = spawnSync(program, args, { cwd: root, stdio: 'inherit', shell: process.platform === 'win32' });
  console.log(`  ${status === 0 ? 'ok' : 'FAILED'} in ${((Date.now() - start) / 1000).toFixed(1)} s`);
  return status !== 0;
});
console.log(
  `check: ${CHECKS.length - failed.length} passed, ${failed.length} failed${failed.map(({ name }) => `\n  ${name}`).join('')}`,
);
process.exit(failed.length === 0 ? 0 : 1);
