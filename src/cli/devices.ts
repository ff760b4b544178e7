/**
 * @file `autopar devices`: the devices of this machine that a program can run on.
 */
import type { ExitKind } from '../api/index.js';
import type { Command, CommandContext } from './command.js';
import { bytesText, countText } from './quantity.js';
import { printable, tableLines, textColumns } from './table.js';

export const devicesCommand: Command = {
  name: 'devices',
  says: 'list the devices of this machine',
  arguments: [],
  options: [],
  examples: [
    { line: 'autopar devices', says: 'cores, memory, available backends, and missing requirements of others' },
    { line: 'autopar devices --json', says: 'the same as JSON' },
  ],
  run: runDevices,
};

async function runDevices({ output }: CommandContext): Promise<ExitKind> {
  const { localDevices } = await import('../api/index.js');
  const { cores, memoryBytes, defaultRanks, backends } = await localDevices();
  output.print(
    `${countText(cores, 'core')}, ${bytesText(memoryBytes)} of memory, ${countText(defaultRanks, 'rank')} by default`,
  );
  const rows = backends.map(({ name, engine, version, missing }) => [
    name,
    `${engine} ${version}`,
    missing ? 'not available' : 'ready',
  ]);
  for (const line of tableLines(textColumns('backend', 'of', 'state'), rows)) output.print(line);
  for (const { missing } of backends)
    if (missing) for (const line of [missing.reason, `  hint: ${missing.remedy}`]) output.print(printable(line));
  output.data({ schema: 'autopar-devices-v1', cores, memoryBytes, defaultRanks, backends });
  return 'done';
}

/** The note for a run on a device that lacks kernels, with the substitute of each operator. */
export function substitutesNote(operators: readonly string[]): string {
  return `note: the device has no kernels for ${operators.join('; ')}`;
}
