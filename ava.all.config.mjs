/** Everything `npm test` runs, and what takes minutes: `npm run test:all`. */
export default {
  files: ['dist/test/**/*.test.js', 'dist/test/**/*.slow.js'],
  require: ['./dist/test/scratch.js'],
  environmentVariables: { AUTOPAR_TESTS: 'all' },
  timeout: '15m',
};
