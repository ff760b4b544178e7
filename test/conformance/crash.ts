/**
 * @file A case that takes its process with it, as a native library may: for the test of the runner.
 */
process.send?.({ kind: 'begin', mode: 'dp 2' }, () => process.abort());
