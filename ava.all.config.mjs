/** Everything `npm test` runs, and what takes minutes: `npm run test:all`. */
import fast from './ava.config.mjs';
import { testFiles } from './scripts/suites.mjs';

export default {
  ...fast,
  files: testFiles(['.test.js', '.slow.js']),
  environmentVariables: { ...fast.environmentVariables, AUTOPAR_TESTS: 'all' },
  timeout: '15m',
};
