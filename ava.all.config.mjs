/** Everything `npm test` runs, and what takes minutes: `npm run test:all`. */
import fast from './ava.config.mjs';

export default {
  ...fast,
  files: [...fast.files, 'dist/test/**/*.slow.js'],
  environmentVariables: { ...fast.environmentVariables, AUTOPAR_TESTS: 'all' },
  timeout: '15m',
};
