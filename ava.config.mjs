/**
 * What `npm test` runs. Test files have processes of their own: ending a thread inside of native code aborts the whole process.
 * Their temporary folders lie in one folder of the run, which goes with it, however it ends.
 */
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const folder = mkdtempSync(join(realpathSync(tmpdir()), 'autopar-tests-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));

export default {
  files: ['dist/test/**/*.test.js'],
  require: ['./dist/test/scratch.js'],
  environmentVariables: { TMPDIR: folder, TEMP: folder },
  workerThreads: false,
  timeout: '3m',
};
