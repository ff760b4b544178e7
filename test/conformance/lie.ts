/**
 * @file A child whose programs give wrong results, for the test of the runner: the last byte of every output is turned.
 */

import { join } from 'node:path';
import { runProgram } from '../../src/runtime/run-program.js';
import { runCase } from './case.js';
import type { CaseOrder } from './pool.js';

process.on('message', async ({ reference, settings }: CaseOrder) => {
  const spoiled: Parameters<typeof runCase>[3] = async (folder, inputs) => {
    const { outputs } = await runProgram(join(folder, 'program'), inputs, {});
    return Object.fromEntries(
      Object.entries(outputs).map(([name, output]) => [
        name,
        { ...output, data: output.data.map((byte, index) => (index === output.data.length - 1 ? byte ^ 0x40 : byte)) },
      ]),
    );
  };
  await runCase(reference, settings, (message) => process.send?.(message), spoiled);
  process.send?.({ kind: 'done' });
});
