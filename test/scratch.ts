/**
 * @file Loaded by ava before every test file: temporary folders that tests make, and those of the commands they start, are in one
 * folder of the process, which goes with it. Thousands of them were left behind otherwise, as few tests clean up after a failure.
 */
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const folder = mkdtempSync(join(realpathSync(tmpdir()), 'autopar-tests-'));
process.env.TMPDIR = folder;
process.env.TEMP = folder;
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
