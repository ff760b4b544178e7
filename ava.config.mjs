/**
 * What `npm test` runs. Test files share processes in suites (scripts/suites.mjs), unless a command names files: each then has its
 * own. None has a thread in place of a process: ending a thread inside of native code aborts the whole process.
 * Their temporary folders lie in one folder of the run, which goes with it, however it ends; measurements that a user made of the
 * machine are not seen.
 */
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { testFiles } from './scripts/suites.mjs';

const folder = mkdtempSync(join(realpathSync(tmpdir()), 'autopar-tests-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));

/** As in src/cli/main.ts: a test file runs for seconds as well, and a third of its processor time went into optimised code. */
const nodeArguments = process.versions.node.startsWith('20.') ? ['--interrupt-budget=500000'] : [];

export default {
  // One more than there are cores: a test that waits for its ranks or a child leaves its core to another.
  concurrency: availableParallelism() + 1,
  files: [testFiles(8)],
  require: ['./dist/test/scratch.js', './dist/test/seed.js'],
  environmentVariables: { TMPDIR: folder, TEMP: folder, XDG_CACHE_HOME: folder },
  workerThreads: false,
  nodeArguments,
  timeout: '3m',
};
