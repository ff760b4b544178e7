/**
 * @file `autopar devices`: reports everything that each backend lacks, with what to do about it.
 */
import test from 'ava';
import type { LocalDevices } from '../../src/api/machine.js';
import { autopar } from './autopar.js';

test('every backend is ready, or its reason and its remedy stand in lines of their own', async (t) => {
  const { backends } = JSON.parse((await autopar(['devices', '--json'])).stdout) as LocalDevices;
  const lines = (await autopar(['devices'])).stdout.split('\n');
  t.is(backends.find(({ name }) => name === 'cpu')?.missing, null);
  for (const { name, missing } of backends) {
    const row = lines.find((line) => line.trimStart().startsWith(`${name} `)) ?? '';
    t.regex(row, missing ? /not available$/ : /ready$/);
    if (missing === null) continue;
    t.true(missing.remedy.length > 0, name);
    t.true(lines.includes(missing.reason), missing.reason);
    t.true(lines.includes(`  hint: ${missing.remedy}`), missing.remedy);
  }
});
