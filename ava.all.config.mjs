/** Everything `npm test` runs, and what takes minutes: `npm run test:all`. */
import fast from './ava.config.mjs';
import { testFiles } from './scripts/suites.mjs';

export default {
  ...fast,
  files: [testFiles(4), 'dist/test/**/*.slow.js'],
  environmentVariables: { ...fast.environmentVariables, AUTOPAR_TESTS: 'all' },
  timeout: '15m',
  // The longest first, so that no core waits at the end.
  sortTestFiles: (one, other) =>
    Number(other.endsWith('.slow.js')) - Number(one.endsWith('.slow.js')) || (one < other ? -1 : 1),
};
