/**
 * @file Loaded by ava before every test file: random inputs are the same in every run, so that a failure comes from the change.
 * `AUTOPAR_SEED=random` draws others, `AUTOPAR_SEED=7` those of that seed; a failing test prints its own.
 */
import fc from 'fast-check';

const { AUTOPAR_SEED: seed = '1' } = process.env;
if (seed !== 'random') fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: Number(seed) });
