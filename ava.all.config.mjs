/**
 * What `npm run test:all` adds to `npm test`: the slow suites, and those test files of which `npm test` runs a part (of a file that
 * only adds slow tests, these alone). A file that does the same in both is not run again.
 */
import fast from './ava.config.mjs';
import { doesMore, testFiles } from './scripts/suites.mjs';

export default {
  ...fast,
  files: [testFiles(4, doesMore), 'dist/test/**/*.slow.js'],
  environmentVariables: {
    ...fast.environmentVariables,
    AUTOPAR_TESTS: process.env.AUTOPAR_TESTS === 'whole' ? 'whole' : 'all',
  },
  timeout: '15m',
  // The longest first, so that no core waits at the end.
  sortTestFiles: (one, other) =>
    Number(other.endsWith('.slow.js')) - Number(one.endsWith('.slow.js')) || (one < other ? -1 : 1),
};
