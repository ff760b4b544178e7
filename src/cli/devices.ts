/**
 * @file `autopar devices`: what of this machine a program can run on.
 */
import type { ExitKind } from '../ir/error.js';
import type { Command, Context } from './command.js';
import { bytesText, countText } from './quantity.js';

export const devicesCommand: Command = {
  name: 'devices',
  says: 'list what programs can run on here',
  arguments: [],
  options: [],
  examples: [
    { line: 'autopar devices', says: 'cores, memory, and what computes' },
    { line: 'autopar devices --json', says: 'the same for programs' },
  ],
  run: runDevices,
};

async function runDevices({ output }: Context): Promise<ExitKind> {
  const { localDevices } = await import('../api/machine.js');
  const { cores, memoryBytes, defaultRanks, backends } = await localDevices();
  output.print(
    `${countText(cores, 'core')}, ${bytesText(memoryBytes)} of memory, ${countText(defaultRanks, 'rank')} by default`,
  );
  for (const { name, engine, version } of backends) output.print(`  ${name}  ${engine} ${version}`);
  output.data({ schema: 'autopar-devices-v1', cores, memoryBytes, defaultRanks, backends });
  return 'done';
}
